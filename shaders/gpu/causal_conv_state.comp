// The new state of the depthwise causal convolution: the last taps − 1 inputs of each row. One invocation reads and then writes the
// state of a channel, so that the new state may be the old one.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/causal_conv.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint TAPS = 4;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32;

layout(push_constant, std430) uniform tsr_push
{
    tsr_causal_conv_push p;
};

#include "include/causal_conv.glsl"

void main()
{
    uint n = tsr_flat_invocation();
    if (n >= p.batch * p.channels)
        return;
    uint b = n / p.channels, c = n % p.channels, length = conv_length(b);
    int first = length > 0u ? conv_first(b, length - 1u) : -int(TAPS);
    float kept[TAPS];
    [[unroll]] for (uint j = 0u; j + 1u < TAPS; j++) {
        int t = int(length) - int(TAPS) + 1 + int(j);
        kept[j] = t >= first ? conv_input(b, t, c) : 0.0;
    }
    [[unroll]] for (uint j = 0u; j + 1u < TAPS; j++)
        tsr_floats(tsr_at_mul(p.new_state, n, (TAPS - 1u) * 4u)).v[j] = kept[j];
}
