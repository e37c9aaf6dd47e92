/* Push constants of top-k. Each job finds the outputs `from` to `to` − 1 of one row of `count`
 * elements; output 0 is the largest element. */
#ifndef TSR_PARAMS_TOPK_H
#define TSR_PARAMS_TOPK_H

#include "rows.h"

#define TSR_TOPK_UNROLLED 8u /* elements that an invocation compares in an iteration */

/* The row of job (i0, i1, …) starts at x + Σ i·x_strides elements, and its outputs start at places
 * that are computed in the same way. Steps are the bytes from one element or output of a row to the
 * next. */
struct tsr_topk_params {
    TSR_ADDRESS x, values, indices;
    TSR_ADDRESS x_step, values_step, indices_step;
    TSR_UINT jobs, count;
    TSR_UINT from, to;
    TSR_UINT shape[TSR_ROW_DIMS]; /* the sizes of the dimensions; missing dimensions are the last
                                     ones and have size 1 */
    TSR_UINT x_strides[TSR_ROW_DIMS];
    TSR_UINT values_strides[TSR_ROW_DIMS];
    TSR_UINT indices_strides[TSR_ROW_DIMS];
};
TSR_PUSH_CHECK(tsr_topk_params);

#endif
