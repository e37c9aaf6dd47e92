// dst = src for any strides and dtypes. Each invocation moves GROUP elements that are neighbours
// along the innermost dimension.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/convert.glsl"
#include "include/elements.glsl"
#include "include/walk.glsl"
#include "params/copy.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SOURCE = TSR_DT_U32;
layout(constant_id = 2) const uint DESTINATION = TSR_DT_U32;
layout(constant_id = 3) const uint GROUP = 4; // 1 or 4
layout(constant_id = 4) const uint SOURCE_INNER = TSR_COPY_STRIDED;
layout(constant_id = 5) const uint DESTINATION_INNER = TSR_COPY_STRIDED;

layout(push_constant, std430) uniform tsr_push
{
    tsr_copy_params p;
};

uint size_of(uint kind)
{
    return kind == TSR_DT_U8                             ? 1u
           : kind == TSR_DT_F16 || kind == TSR_DT_BF16 ? 2u
           : kind == TSR_DT_I64                          ? 8u
                                                         : 4u;
}

void move128(uint d, uint s, uint count)
{
    [[unroll]] for (uint k = 0u; k < GROUP; k++)
        if (k < count)
            tsr_words4(p.destination).v[d + k * p.destination_strides[3]] =
                tsr_words4(p.source).v[s + k * p.source_strides[3]];
}

void main()
{
    uint item = tsr_flat_invocation();
    if (item >= p.walk.items)
        return;
    uvec4 position = tsr_walk_position(p.walk, item);
    position.w *= GROUP;
    uint count = min(GROUP, p.walk.inner - position.w);
    uint d = tsr_walk_element(position, p.destination_strides);
    uint s = tsr_walk_element(position, p.source_strides);
    if (SOURCE == TSR_COPY_BITS128) {
        move128(d, s, count);
        return;
    }

    uvec2 bits[4];
    if (GROUP == 1u) {
        bits[0] = tsr_load_bits(p.source, s, size_of(SOURCE));
        tsr_store_bits(p.destination, d, size_of(DESTINATION), tsr_convert(bits[0], SOURCE, DESTINATION));
        return;
    }
    // Past the row's end, an aligned load reads whatever follows in memory, and the other loads
    // read the last element again. These elements are not stored.
    if (SOURCE_INNER == TSR_COPY_ALIGNED)
        tsr_load_bits4(p.source, s, size_of(SOURCE), bits);
    else
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            bits[k] = tsr_load_bits(p.source, s + min(k, count - 1u) * p.source_strides[3], size_of(SOURCE));
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        bits[k] = tsr_convert(bits[k], SOURCE, DESTINATION);

    if (DESTINATION_INNER == TSR_COPY_ALIGNED && count == 4u)
        tsr_store_bits4(p.destination, d, size_of(DESTINATION), bits);
    else if (DESTINATION_INNER != TSR_COPY_STRIDED)
        tsr_store_run(p.destination, d, size_of(DESTINATION), count, bits);
    else
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            if (k < count)
                tsr_store_bits(p.destination, d + k * p.destination_strides[3], size_of(DESTINATION), bits[k]);
}
