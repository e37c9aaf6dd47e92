/* Push constants of the kernels of gates: those of delta nets, and those of heads. */
#ifndef TSR_PARAMS_GATES_H
#define TSR_PARAMS_GATES_H

#include "types.h"

/* delta_gates.comp. A row of a tensor [rows, heads] begins at row · stride; beta, g and terms,
 * [rows, 2 · heads], are contiguous. For the gradients, beta and g are dbeta and dg. */
struct tsr_delta_gates_push {
    TSR_ADDRESS x, alpha, a_log, dt_bias;
    TSR_ADDRESS beta, g;
    TSR_ADDRESS dx, dalpha, terms;
    TSR_UINT rows, heads;
    TSR_UINT x_stride, alpha_stride, dx_stride, dalpha_stride;
};
TSR_PUSH_CHECK(tsr_delta_gates_push);

/* gated_heads.comp. The heads of a token of x, gate and y, [tokens, heads, dim], begin at token ·
 * stride and are contiguous. */
struct tsr_gated_heads_push {
    TSR_ADDRESS x, gate, weight, y;
    TSR_UINT tokens, heads, dim;
    TSR_UINT x_stride, gate_stride, y_stride;
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_gated_heads_push);

#endif
