/* Push constants of the reductions: each job folds `count` elements of x, `step` bytes apart, into one element of y. */
#ifndef TSR_PARAMS_REDUCE_H
#define TSR_PARAMS_REDUCE_H

#include "types.h"

#define TSR_REDUCE_DIMS 4

/* How many sums an element is dealt to in turn: element j goes to lane j % 32, and the lanes are then added as a tree. */
#define TSR_REDUCE_LANES 32

/* Specialization constants: what is done … */
#define TSR_REDUCE_KIND_SUM 0
#define TSR_REDUCE_KIND_MAX 1
#define TSR_REDUCE_KIND_MIN 2
/* … and what argmax reads and writes. */
#define TSR_ARGMAX_VALUES 0
#define TSR_ARGMAX_INDICES 1
#define TSR_ARGMAX_PAIRS 2

/* Job (i0, …) starts at x + Σ i·x_strides elements and writes y + Σ i·y_strides. The last of `ndim` dimensions is the innermost. */
struct tsr_reduce_params {
    TSR_ADDRESS x, y, step;
    TSR_UINT count;
    TSR_UINT jobs;
    TSR_UINT ndim;
    TSR_UINT accumulate; /* y += result */
    TSR_FLOAT scale;     /* of the result */
    TSR_UINT unit;       /* argmax: original elements per element of x */
    TSR_UINT shape[TSR_REDUCE_DIMS];
    TSR_UINT x_strides[TSR_REDUCE_DIMS];
    TSR_UINT y_strides[TSR_REDUCE_DIMS];
};
TSR_PUSH_CHECK(tsr_reduce_params);

#endif
