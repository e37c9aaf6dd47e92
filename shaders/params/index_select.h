/* Push constants of the selection by index along a dimension, and of its gradient. */
#ifndef TSR_PARAMS_INDEX_SELECT_H
#define TSR_PARAMS_INDEX_SELECT_H

#include "walk.h"

/* An invocation takes four neighbours of y. */
struct tsr_index_select_params {
    TSR_ADDRESS y, x, indices; /* x at index 0 */
    TSR_ADDRESS x_stride;      /* bytes from index to index */
    TSR_WALK walk;             /* over y, in groups of four */
    TSR_UINT y_strides[TSR_WALK_DIMS];
    TSR_UINT x_strides[TSR_WALK_DIMS]; /* 0 along the dimension */
    TSR_UINT indices_strides[TSR_WALK_DIMS];
    TSR_UINT size; /* of x along the dimension */
};
TSR_PUSH_CHECK(tsr_index_select_params);

/* An invocation takes one position in the other dimensions. */
struct tsr_index_add_params {
    TSR_ADDRESS dx, dy, indices;
    TSR_ADDRESS dx_stride, dy_stride, indices_stride; /* bytes along the dimension */
    TSR_WALK walk;                                    /* over the other dimensions */
    TSR_UINT dx_strides[TSR_WALK_DIMS];
    TSR_UINT dy_strides[TSR_WALK_DIMS];
    TSR_UINT rows; /* indices */
    TSR_UINT size; /* of dx along the dimension */
    TSR_UINT buckets;
};
TSR_PUSH_CHECK(tsr_index_add_params);

#endif
