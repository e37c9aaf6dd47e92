// The new state of the depthwise causal convolution: the last taps − 1 inputs of each row. One invocation reads and then writes the
// state of a channel, so that the new state may be the old one. With TSR_SLOTS_EACH_TOKEN, write_slots has a slot for the state after each token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/causal_conv.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint TAPS = 4;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint SLOTS = 0;

layout(push_constant, std430) uniform tsr_push
{
    tsr_causal_conv_push p;
};

#include "include/causal_conv.glsl"
#include "include/causal_conv_keep.glsl"

void main()
{
    uint n = tsr_flat_invocation();
    if (n >= p.batch * p.channels)
        return;
    uint b = n / p.channels, c = n % p.channels, length = conv_length(b);
    uint old_slot = tsr_slot(TSR_READS_SLOTS, p.read_slots, b, p.slots);
    if ((SLOTS & TSR_SLOTS_EACH_TOKEN) != 0u) {
        float last[TAPS]; // the inputs up to a token
        [[unroll]] for (uint j = 0u; j + 1u < TAPS; j++)
            last[j + 1u] = conv_input(b, old_slot, int(j) + 1 - int(TAPS), c);
        for (uint t = 0u; t < length; t++) {
            [[unroll]] for (uint j = 0u; j + 1u < TAPS; j++)
                last[j] = last[j + 1u];
            last[TAPS - 1u] = conv_input(b, old_slot, int(t), c);
            uint slot = tsr_slot(true, p.write_slots, b * p.tokens + t, p.slots);
            if (slot != TSR_NO_SLOT)
                [[unroll]] for (uint j = 0u; j + 1u < TAPS; j++)
                    tsr_floats(tsr_at_mul(p.new_state, slot * p.channels + c, (TAPS - 1u) * 4u)).v[j] = last[j + 1u];
        }
        return;
    }
    conv_keep(b, old_slot, c, length);
}
