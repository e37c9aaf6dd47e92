/* Push constants of softmax, its logarithm and their gradients. The kernels compute each row of y
 * from a row of a, and for gradients also from a row of b. */
#ifndef TSR_PARAMS_SOFTMAX_H
#define TSR_PARAMS_SOFTMAX_H

#include "rows.h"

/* Row (i0, i1, …) of a starts at a + Σ i·a_strides elements, and its elements are a_step bytes
 * apart. The same holds for b and y.
 *
 * If rows are divided into segments, ndim is at most 3, and the address of the partial results is
 * in a_strides[3] (low half) and b_strides[3] (high half), which are not used for rows. */
struct tsr_softmax_params {
    TSR_ADDRESS a, b, y;
    TSR_ADDRESS a_step, b_step, y_step;
    TSR_UINT count; /* elements in a row */
    TSR_UINT jobs;  /* rows */
    TSR_UINT ndim;
    TSR_UINT shape[TSR_ROW_DIMS];
    TSR_UINT a_strides[TSR_ROW_DIMS];
    TSR_UINT b_strides[TSR_ROW_DIMS];
    TSR_UINT y_strides[TSR_ROW_DIMS];
};
TSR_PUSH_CHECK(tsr_softmax_params);

#endif
