/* Push constants of the embedding kernels. */
#ifndef TSR_PARAMS_EMBEDDING_H
#define TSR_PARAMS_EMBEDDING_H

#include "rows.h"

/* Strides are the bytes from one row to the next. Steps are the bytes from one element of a row to
 * the next. */
struct tsr_embedding_params {
    /* In embedding_grad.comp, table is the gradient of the table, and y is dy. */
    TSR_ADDRESS table, indices, y;
    TSR_ADDRESS table_stride, indices_stride, y_stride;
    TSR_ADDRESS table_step, y_step;
    TSR_UINT rows, width; /* rows of y, and elements of a row */
    /* The rows of the complete table that `table` has: `here` rows from number `first` on. */
    TSR_UINT first, here;
    TSR_UINT index_bytes; /* the size of an index: 1, 4 or 8 */
    /* In embedding_grad.comp, the number of workgroups among which the table's rows are divided, a
     * power of two. */
    TSR_UINT buckets;
};
TSR_PUSH_CHECK(tsr_embedding_params);

#endif
