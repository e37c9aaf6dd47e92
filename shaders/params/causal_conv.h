/* Push constants of the kernels of the depthwise causal convolution. */
#ifndef TSR_PARAMS_CAUSAL_CONV_H
#define TSR_PARAMS_CAUSAL_CONV_H

#include "types.h"

#define TSR_CONV_SILU 1u
/* causal_conv.comp writes dz, the gradient of z, f32 and contiguous, instead of y */
#define TSR_CONV_GRAD 2u

/* A row of a tensor [batch, tokens, channels] begins at (b · tokens + t) · stride. An address that
 * is 0 means that the tensor is missing. With read_slots or write_slots, the states are [slots, …]
 * instead of [batch, …]. */
struct tsr_causal_conv_push {
    TSR_ADDRESS x, y, weight, bias;
    TSR_ADDRESS state, new_state; /* [batch, channels, taps − 1] */
    TSR_ADDRESS lengths, starts;  /* [batch], [batch, tokens] */
    TSR_ADDRESS dy;
    TSR_ADDRESS read_slots, write_slots; /* [batch]; the latter also [batch, tokens] */
    TSR_UINT batch, tokens, channels;
    TSR_UINT x_stride, y_stride, dy_stride;
    TSR_UINT flags, slots;
};
TSR_PUSH_CHECK(tsr_causal_conv_push);

/* causal_conv_grad.comp: dx and dstate from dz. causal_conv_weight_grad.comp: `parts` partial sums
 * of dweight and dbias, each of `rows` rows of x, to [parts, channels, taps + 1]. */
struct tsr_causal_conv_grad_push {
    TSR_ADDRESS dz, x, weight, state;
    TSR_ADDRESS dx, dstate, dnew_state; /* dx: of causal_conv_weight_grad.comp the partial sums */
    TSR_ADDRESS lengths, starts;
    TSR_UINT batch, tokens, channels;
    TSR_UINT x_stride, dx_stride;
    TSR_UINT rows, parts;
};
TSR_PUSH_CHECK(tsr_causal_conv_grad_push);

#endif
