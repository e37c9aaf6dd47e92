/* Push constants of the selection by index along a dimension, and of its gradient. */
#ifndef TSR_PARAMS_INDEX_SELECT_H
#define TSR_PARAMS_INDEX_SELECT_H

#include "walk.h"

/* index_select.comp: an invocation computes four neighbours of y. */
struct tsr_index_select_params {
    TSR_ADDRESS y, x, indices; /* x: the address for index 0 */
    TSR_ADDRESS x_stride;      /* bytes of x from one index to the next */
    TSR_WALK walk;             /* the walk over y */
    TSR_UINT y_strides[TSR_WALK_DIMS];
    TSR_UINT x_strides[TSR_WALK_DIMS]; /* 0 along the selected dimension */
    TSR_UINT indices_strides[TSR_WALK_DIMS];
    TSR_UINT size; /* the size of x along the selected dimension */
};
TSR_PUSH_CHECK(tsr_index_select_params);

/* index_add.comp: an invocation computes one position in the dimensions that are not selected. */
struct tsr_index_add_params {
    TSR_ADDRESS dx, dy, indices;
    /* Bytes from one element to the next along the selected dimension. */
    TSR_ADDRESS dx_stride, dy_stride, indices_stride;
    TSR_WALK walk; /* the walk over the dimensions that are not selected */
    TSR_UINT dx_strides[TSR_WALK_DIMS];
    TSR_UINT dy_strides[TSR_WALK_DIMS];
    TSR_UINT rows;    /* the number of indices */
    TSR_UINT size;    /* the size of dx along the selected dimension */
    TSR_UINT buckets; /* a power of two; see index_add.comp */
};
TSR_PUSH_CHECK(tsr_index_add_params);

#endif
