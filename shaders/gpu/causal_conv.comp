// The depthwise causal convolution: z[t] = bias + Σ_j weight[j] · input[t − (taps − 1) + j], and y = z or SiLU(z). With TSR_CONV_GRAD it
// writes the gradient of z instead, from dy. Each invocation computes one channel of one token; with
// KEEP, for rows of one token, it also writes the channel's new state.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/causal_conv.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint TAPS = 4;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint SLOTS = 0;
layout(constant_id = 6) const uint KEEP = 0;

layout(push_constant, std430) uniform tsr_push
{
    tsr_causal_conv_push p;
};

#include "include/causal_conv.glsl"
#include "include/causal_conv_keep.glsl"
#include "include/exp_log.glsl"

void main()
{
    uint across = (p.channels + WORKGROUP - 1u) / WORKGROUP;
    uint row = tsr_flat_group() / across, c = tsr_flat_group() % across * WORKGROUP + gl_LocalInvocationID.x;
    if (row >= p.batch * p.tokens || c >= p.channels)
        return;
    uint b = row / p.tokens, t = row % p.tokens, length = conv_length(b);
    uint slot = tsr_slot(TSR_READS_SLOTS, p.read_slots, b, p.slots);
    precise float z = 0.0;
    if (t < length) {
        int first = conv_first(b, t), oldest = int(t) - int(TAPS) + 1;
        [[unroll]] for (uint j = 0u; j < TAPS; j++)
            if (oldest + int(j) >= first)
                z += tsr_floats(p.weight).v[c * TAPS + j] * conv_input(b, slot, oldest + int(j), c);
        if ((p.bias.x | p.bias.y) != 0u)
            z += tsr_floats(p.bias).v[c];
    }
    bool silu = (p.flags & TSR_CONV_SILU) != 0u;
    float sigmoid = 1.0 / (1.0 + tsr_exp(-z)), result = silu ? z * sigmoid : z;
    if ((p.flags & TSR_CONV_GRAD) != 0u) {
        uvec2 dy = tsr_at_mul(p.dy, row, p.dy_stride * tsr_dtype_bytes(DY_DTYPE));
        float slope = silu ? sigmoid * (1.0 + z * (1.0 - sigmoid)) : 1.0;
        result = t < length ? tsr_load_float(dy, c, DY_DTYPE) * slope : 0.0;
    } else if (t >= length) {
        result = 0.0;
    }
    bool kept = (SLOTS & TSR_SLOTS_EACH_TOKEN) == 0u || length > 0u;
    if (KEEP != 0u && kept)
        conv_keep(b, slot, c, length);
    tsr_store_float(tsr_at_mul(p.y, row, p.y_stride * tsr_dtype_bytes(Y_DTYPE)), c, Y_DTYPE, result);
}
