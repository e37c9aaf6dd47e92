/* Push constants of the embedding kernels. */
#ifndef TSR_PARAMS_EMBEDDING_H
#define TSR_PARAMS_EMBEDDING_H

#include "rows.h"

/* Strides between rows, and steps between the elements of a row, count bytes. */
struct tsr_embedding_params {
    TSR_ADDRESS table, indices, y; /* gradient: y is dy */
    TSR_ADDRESS table_stride, indices_stride, y_stride;
    TSR_ADDRESS table_step, y_step;
    TSR_UINT rows, width;
    TSR_UINT first, here; /* the rows of the complete table that this part has */
    TSR_UINT index_bytes; /* 1, 4 or 8 */
    TSR_UINT buckets;     /* gradient: the number of workgroups among which the table's rows
                             are divided, a power of two */
};
TSR_PUSH_CHECK(tsr_embedding_params);

#endif
