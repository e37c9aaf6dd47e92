// Partial sums of the gradients of the weight and the bias of the depthwise causal convolution, of which a reduction makes the sums. Each
// invocation computes one channel of one part, which has `rows` tokens.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/causal_conv.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint TAPS = 4;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32;
const uint SLOTS = 0;

layout(push_constant, std430) uniform tsr_push
{
    tsr_causal_conv_grad_push p;
};

#include "include/causal_conv.glsl"

void main()
{
    uint across = (p.channels + WORKGROUP - 1u) / WORKGROUP;
    uint part = tsr_flat_group() / across, c = tsr_flat_group() % across * WORKGROUP + gl_LocalInvocationID.x;
    if (part >= p.parts || c >= p.channels)
        return;
    precise float sums[TAPS + 1u]; // the last one is the bias
    [[unroll]] for (uint j = 0u; j <= TAPS; j++)
        sums[j] = 0.0;
    uint end = min((part + 1u) * p.rows, p.batch * p.tokens);
    for (uint row = part * p.rows; row < end; row++) {
        uint b = row / p.tokens, t = row % p.tokens;
        if (t >= conv_length(b))
            continue;
        float dz = tsr_floats(tsr_at_mul(p.dz, row, p.channels * 4u)).v[c];
        int first = conv_first(b, t), oldest = int(t) - int(TAPS) + 1;
        [[unroll]] for (uint j = 0u; j < TAPS; j++)
            if (oldest + int(j) >= first)
                sums[j] += dz * conv_input(b, b, oldest + int(j), c);
        sums[TAPS] += dz;
    }
    [[unroll]] for (uint j = 0u; j <= TAPS; j++)
        tsr_floats(tsr_at_mul(p.dx, part * p.channels + c, (TAPS + 1u) * 4u)).v[j] = sums[j];
}
