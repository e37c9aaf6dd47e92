/* Push constants of the kernels that normalise short rows on Mesa's CPU driver. Strides between
 * rows count bytes. */
#ifndef TSR_PARAMS_NORM_SHORT_H
#define TSR_PARAMS_NORM_SHORT_H

#include "norm.h"

struct tsr_norm_short_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS x, dy;    /* their first rows; dy for gradients only */
    TSR_ADDRESS y;        /* the result, the gradient or the statistics */
    TSR_ADDRESS weight, bias;
    TSR_UINT x_row, dy_row, y_row;
    TSR_UINT rows;
    TSR_UINT overlap; /* elements that both halves of a row contain; see norm_short.comp */
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_norm_short_push);

/* norm_short_grad.comp */
struct tsr_norm_short_grad_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS x, dy, dx;
    TSR_ADDRESS weight;
    TSR_ADDRESS added; /* the first row of the gradient that is added to dx */
    /* Rows of f32: the sums for dweight of each workgroup and, subgroup_sums_bytes after these,
     * those of each subgroup. The rows for dbias start sums_bytes after those for dweight. */
    TSR_ADDRESS sums;
    TSR_UINT x_row, dy_row, dx_row, added_row, sums_row;
    TSR_UINT sums_bytes, subgroup_sums_bytes;
    TSR_UINT rows, overlap;
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_norm_short_grad_push);

/* What the kernel writes, a specialization constant: */
#define TSR_NORM_WRITES_DX 1u
#define TSR_NORM_WRITES_WEIGHT 2u
#define TSR_NORM_WRITES_BIAS 4u

#endif
