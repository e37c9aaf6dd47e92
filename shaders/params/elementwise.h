/* Push constants of the element-wise kernels: y = f(a, b, c). */
#ifndef TSR_PARAMS_ELEMENTWISE_H
#define TSR_PARAMS_ELEMENTWISE_H

#include "walk.h"

/* The function f, a specialization constant. include/functions.glsl computes it. */
#define TSR_EW_ADD 0u
#define TSR_EW_SUB 1u
#define TSR_EW_MUL 2u
#define TSR_EW_SCALE 3u /* alpha · a + beta */
#define TSR_EW_AXPY 4u  /* alpha · a + b */
#define TSR_EW_DIV 5u
#define TSR_EW_MINIMUM 6u
#define TSR_EW_MAXIMUM 7u
#define TSR_EW_CLAMP 8u
#define TSR_EW_CLAMP_GRAD 9u /* b is dy */

/* Comparisons, whose result is 1 or 0. */
#define TSR_EW_EQUAL 10u
#define TSR_EW_NOT_EQUAL 11u
#define TSR_EW_LESS 12u
#define TSR_EW_LESS_EQUAL 13u
#define TSR_EW_GREATER 14u
#define TSR_EW_GREATER_EQUAL 15u

#define TSR_EW_KEEP 16u /* a is not 0 ? b : 0 */
#define TSR_EW_DROP 17u /* a is not 0 ? 0 : b */

/* Functions of three inputs. */
#define TSR_EW_SELECT 20u       /* a is not 0 ? b : c */
#define TSR_EW_DIV_GRAD 21u     /* the gradient with respect to b; c is dy */
#define TSR_EW_MINIMUM_GRAD 22u /* the gradient with respect to a; c is dy */
#define TSR_EW_MAXIMUM_GRAD 23u

/* Functions of one input, and their gradients. In a gradient, b is dy. */
#define TSR_EW_EXP 32u
#define TSR_EW_LOG 33u
#define TSR_EW_SQRT 34u
#define TSR_EW_RSQRT 35u
#define TSR_EW_SIGMOID 36u
#define TSR_EW_TANH 37u
#define TSR_EW_ABS 38u
#define TSR_EW_NEG 39u
#define TSR_EW_EXP_GRAD 40u
#define TSR_EW_LOG_GRAD 41u
#define TSR_EW_SQRT_GRAD 42u
#define TSR_EW_RSQRT_GRAD 43u
#define TSR_EW_SIGMOID_GRAD 44u
#define TSR_EW_TANH_GRAD 45u
#define TSR_EW_ABS_GRAD 46u
#define TSR_EW_NEG_GRAD 47u

/* The layout of an operand's innermost dimension, a specialization constant for each operand. */
#define TSR_EW_STRIDED 0u /* any stride */
#define TSR_EW_RUN 1u     /* stride 1 */
#define TSR_EW_ALIGNED 2u /* stride 1; groups of four elements are aligned to their size */
#define TSR_EW_ONE 3u     /* stride 0: one element for the whole row */

struct tsr_elementwise_params {
    TSR_ADDRESS y, a, b;
    TSR_FLOAT alpha, beta;
    TSR_WALK walk; /* y's dimensions and strides; an invocation computes four elements of a row */
    TSR_UINT y_strides[TSR_WALK_DIMS];
    TSR_UINT a_strides[TSR_WALK_DIMS];
    TSR_UINT b_strides[TSR_WALK_DIMS];
};
TSR_PUSH_CHECK(tsr_elementwise_params);

/* The push constants of the kernel with three inputs. They have the members of a TSR_WALK except
 * size[0], which the kernel computes from `inner`, because TSR_PUSH_MAX leaves no room for it. */
struct tsr_elementwise3_params {
    TSR_ADDRESS y, a, b, c;
    TSR_UINT items, inner, shifts, size1, size2, magic[3];
    TSR_UINT y_strides[TSR_WALK_DIMS];
    TSR_UINT a_strides[TSR_WALK_DIMS];
    TSR_UINT b_strides[TSR_WALK_DIMS];
    TSR_UINT c_strides[TSR_WALK_DIMS];
};
TSR_PUSH_CHECK(tsr_elementwise3_params);

#endif
