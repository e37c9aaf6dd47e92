// Stores keys or values in the pages of a cache. An invocation copies four elements of a row, or packs one block of it.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/cached_blocks.glsl"
#include "params/kv_append.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint CACHE_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint SOURCE_DTYPE = TSR_DT_F32;

layout(push_constant, std430) uniform Push {
    tsr_kv_append_push p;
};

void main()
{
    uint item = tsr_flat_invocation();
    if (item >= p.items)
        return;
    uint group = item % p.groups;
    uint row = item / p.groups;
    uint token = row % p.tokens;
    uint head = row / p.tokens % p.heads;
    uint entry = row / p.tokens / p.heads;
    if (token >= tsr_words(p.lengths).v[entry])
        return;

    uint position = tsr_words(p.positions).v[entry * p.tokens + token];
    uint page = tsr_words(p.pages).v[entry * p.pages_per_sequence + position / p.page_tokens];
    uvec2 from = tsr_at_mul(tsr_at_mul(tsr_at_mul(p.source, entry, p.source_strides[0]), head, p.source_strides[1]), token,
                            p.source_strides[2]);
    uvec2 to = tsr_at_mul(tsr_at_mul(p.cache, page, p.cache_strides[0]), head, p.cache_strides[1]);
    if (tsr_is_block(CACHE_DTYPE)) {
        vec4 values[TSR_BLOCK_QUADS];
        uint halves[TSR_MOST_BLOCK_HALVES];
        [[unroll]] for (uint i = 0u; i < TSR_BLOCK_QUADS; i++)
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                values[i][c] = tsr_load_float(tsr_at_mul(from, TSR_BLOCK * group + 4u * i + c, p.source_strides[3]), 0u, SOURCE_DTYPE);
        tsr_pack_block(values, CACHE_DTYPE, p.items >> 31, halves);
        tsr_store_block(tsr_at_mul(to, position % p.page_tokens, tsr_row_bytes(p.head_dim, CACHE_DTYPE)), group, CACHE_DTYPE, halves);
        return;
    }
    uint first = position % p.page_tokens * p.head_dim;
    for (uint d = 4u * group; d < min(4u * group + 4u, p.head_dim); d++) {
        float value = tsr_load_float(tsr_at_mul(from, d, p.source_strides[3]), 0u, SOURCE_DTYPE);
        tsr_store_float(to, first + d, CACHE_DTYPE, value);
    }
}
