// The gradients of the inputs of the depthwise causal convolution: of input i, Σ_j weight[j] · dz[i + (taps − 1) − j], over the tokens
// that see it, plus that of the new state, if the input is part of it. Each invocation computes one channel of one input. The inputs
// before token 0 are the state.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/causal_conv.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint TAPS = 4;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32; // of dx

const uint SLOTS = 0;

layout(push_constant, std430) uniform tsr_push
{
    tsr_causal_conv_grad_push p;
};

#include "include/causal_conv.glsl"

void main()
{
    uint across = (p.channels + WORKGROUP - 1u) / WORKGROUP, inputs = p.tokens + TAPS - 1u;
    uint row = tsr_flat_group() / across, c = tsr_flat_group() % across * WORKGROUP + gl_LocalInvocationID.x;
    if (row >= p.batch * inputs || c >= p.channels)
        return;
    uint b = row / inputs, length = conv_length(b);
    int i = int(row % inputs) - int(TAPS) + 1; // the input's place among the tokens
    precise float sum = 0.0;
    [[unroll]] for (uint j = 0u; j < TAPS; j++) {
        int t = i + int(TAPS) - 1 - int(j);
        if (t >= 0 && t < int(length) && i >= conv_first(b, uint(t)))
            sum += tsr_floats(p.weight).v[c * TAPS + j] * tsr_floats(tsr_at_mul(p.dz, b * p.tokens + uint(t), p.channels * 4u)).v[c];
    }
    uint place = uint(i + int(TAPS) - 1); // in a state, or after it
    uint last = uint(i - int(length) + int(TAPS) - 1); // in the new state; 2^32 − 1 and below for inputs before it
    if ((p.dnew_state.x | p.dnew_state.y) != 0u && i < int(length) && last < TAPS - 1u &&
        i >= (length > 0u ? conv_first(b, length - 1u) : -int(TAPS)))
        sum += tsr_floats(tsr_at_mul(p.dnew_state, b * p.channels + c, (TAPS - 1u) * 4u)).v[last];
    if (i < 0 && (p.dstate.x | p.dstate.y) != 0u)
        tsr_floats(tsr_at_mul(p.dstate, b * p.channels + c, (TAPS - 1u) * 4u)).v[place] = sum;
    else if (i >= 0 && (p.dx.x | p.dx.y) != 0u)
        tsr_store_float(tsr_at_mul(p.dx, b * p.tokens + uint(i), p.dx_stride * tsr_dtype_bytes(X_DTYPE)), c, X_DTYPE, sum);
}
