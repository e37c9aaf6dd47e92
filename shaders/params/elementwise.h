/* Push constants of the element-wise kernels: y = f(a, b). */
#ifndef TSR_PARAMS_ELEMENTWISE_H
#define TSR_PARAMS_ELEMENTWISE_H

#include "walk.h"

/* f, a specialization constant. */
#define TSR_EW_ADD 0u
#define TSR_EW_SUB 1u
#define TSR_EW_MUL 2u
#define TSR_EW_SCALE 3u /* alpha · a + beta */
#define TSR_EW_AXPY 4u  /* alpha · a + b */

/* The layout of an operand's innermost dimension, a specialization constant for each operand. */
#define TSR_EW_STRIDED 0u /* any stride */
#define TSR_EW_RUN 1u     /* stride 1 */
#define TSR_EW_ALIGNED 2u /* stride 1, and every group of four begins at a multiple of its size */
#define TSR_EW_ONE 3u     /* stride 0: one element for the whole row */

struct tsr_elementwise_params {
    TSR_ADDRESS y, a, b;
    TSR_FLOAT alpha, beta;
    TSR_WALK walk; /* in groups of four */
    TSR_UINT y_strides[TSR_WALK_DIMS];
    TSR_UINT a_strides[TSR_WALK_DIMS];
    TSR_UINT b_strides[TSR_WALK_DIMS];
};
TSR_PUSH_CHECK(tsr_elementwise_params);

#endif
