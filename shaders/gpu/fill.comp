// Sets every element to one value, given as bits.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/elements.glsl"
#include "include/walk.glsl"
#include "params/fill.h"

layout(local_size_x_id = 0) in;
// Bytes of an element; 16 if the kernel fills units of 16 bytes instead.
layout(constant_id = 1) const uint SIZE = 4;
layout(constant_id = 2) const uint CONTIGUOUS = 1; // the innermost stride is 1

layout(push_constant, std430) uniform tsr_push
{
    tsr_fill_params p;
};

void main()
{
    uint item = tsr_flat_invocation();
    if (item >= p.walk.items)
        return;
    uvec4 position = tsr_walk_position(p.walk, item);
    if (SIZE == 16u) { // one unit per invocation
        tsr_words4(p.destination).v[tsr_walk_element(position, p.strides)] =
            uvec4(p.value[0], p.value[1], p.value[0], p.value[1]);
        return;
    }
    position.w *= 4u;
    uint count = min(4u, p.walk.inner - position.w);
    uint at = tsr_walk_element(position, p.strides);
    uvec2 value = uvec2(p.value[0], p.value[1]);
    uvec2 bits[4] = {value, value, value, value};
    if (CONTIGUOUS != 0u)
        tsr_store_run(p.destination, at, SIZE, count, bits);
    else
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            if (k < count)
                tsr_store_bits(p.destination, at + k * p.strides[3], SIZE, value);
}
