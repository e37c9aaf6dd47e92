/* Push constants of the reductions: each job reduces `count` elements of x, `step` bytes apart, to
 * one element of y. */
#ifndef TSR_PARAMS_REDUCE_H
#define TSR_PARAMS_REDUCE_H

#include "rows.h"

/* The operation, a specialization constant. */
#define TSR_REDUCE_KIND_SUM 0
#define TSR_REDUCE_KIND_MAX 1
#define TSR_REDUCE_KIND_MIN 2
#define TSR_REDUCE_KIND_ARGMAX 3 /* has kernels of its own */
/* The kind of argmax's input and output, two specialization constants. */
#define TSR_ARGMAX_VALUES 0
#define TSR_ARGMAX_INDICES 1
#define TSR_ARGMAX_PAIRS 2

/* Job (i0, i1, …) reads x from Σ i·x_strides elements on and writes the element of y at Σ
 * i·y_strides. The last of `ndim` dimensions is the innermost. */
struct tsr_reduce_params {
    TSR_ADDRESS x, y, step;
    TSR_UINT count;
    TSR_UINT jobs;
    TSR_UINT ndim;
    TSR_UINT accumulate; /* y += result */
    TSR_FLOAT scale;     /* a factor of the result */
    /* For argmax, the number of elements of the original row that each pair in x represents. For
     * other reductions, the number of elements of each chunk, if CHUNKS is more than 1. */
    TSR_UINT unit;
    TSR_UINT shape[TSR_ROW_DIMS];
    TSR_UINT x_strides[TSR_ROW_DIMS];
    TSR_UINT y_strides[TSR_ROW_DIMS];
};
TSR_PUSH_CHECK(tsr_reduce_params);

#endif
