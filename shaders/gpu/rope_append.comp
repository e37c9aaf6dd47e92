// Rotary position embedding of a step's queries and keys. Queries are rotated in place or stored in a tensor of their own; rotated keys,
// and values, are stored in the pages of a cache. An invocation computes four neighbouring pairs of a row.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/rope.glsl"
#include "params/rope_append.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint CACHE_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32;
// 1: any four neighbouring components are aligned to their size, in x and in the cache
layout(constant_id = 3) const uint VECTORS = 1u;
layout(constant_id = 4) const uint ADJACENT = 0u; // 1: the components of a pair are neighbours
layout(constant_id = 5) const uint Q_DTYPE = 0u; // of p.q; 0: queries are rotated in place

layout(push_constant, std430) uniform Push {
    tsr_rope_append_push p;
};

// A pair's components are components `first` and `first + second()` of the row; the next pair is STEP components further.
const uint STEP = ADJACENT != 0u ? 2u : 1u;
uint second()
{
    return ADJACENT != 0u ? 1u : p.pairs;
}

void load_pairs(uvec2 row, uint first, uint count, out vec4 u, out vec4 w)
{
    if (VECTORS != 0u) {
        u = rope_load4(row, first, X_DTYPE);
        w = rope_load4(row, first + (ADJACENT != 0u ? 4u : p.pairs), X_DTYPE);
        if (ADJACENT != 0u) {
            vec4 front = u, back = w;
            u = vec4(front.xz, back.xz);
            w = vec4(front.yw, back.yw);
        }
        return;
    }
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        uint at = first + min(k, count - 1u) * STEP;
        u[k] = tsr_load_float(tsr_at_mul(row, at, p.x_strides[3]), 0u, X_DTYPE);
        w[k] = tsr_load_float(tsr_at_mul(row, at + second(), p.x_strides[3]), 0u, X_DTYPE);
    }
}

// Stores pairs in a row whose components are `stride` bytes apart.
void store_pairs(uvec2 row, uint stride, uint dtype, uint first, uint count, vec4 u, vec4 w)
{
    if (VECTORS != 0u && ADJACENT != 0u) {
        rope_store4(row, first, dtype, vec4(u.x, w.x, u.y, w.y));
        rope_store4(row, first + 4u, dtype, vec4(u.z, w.z, u.w, w.w));
    } else if (VECTORS != 0u) {
        rope_store4(row, first, dtype, u);
        rope_store4(row, first + p.pairs, dtype, w);
    } else {
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            if (k < count) {
                tsr_store_float(tsr_at_mul(row, first + k * STEP, stride), 0u, dtype, u[k]);
                tsr_store_float(tsr_at_mul(row, first + k * STEP + second(), stride), 0u, dtype, w[k]);
            }
    }
}

void main()
{
    uint item = tsr_flat_invocation();
    if (item >= p.items)
        return;
    uint pair = item % p.groups * 4u, row = item / p.groups, all_heads = p.heads + 2u * p.kv_heads;
    uint token = row % p.tokens, head = row / p.tokens % all_heads, entry = row / p.tokens / all_heads;
    uint count = min(4u, p.pairs - pair), first = pair * STEP;
    tsr_words step = tsr_words(p.step);
    uint positions = p.batch * p.pages_per_sequence, lengths = positions + p.batch * p.tokens;
    uint position = step.v[positions + entry * p.tokens + token];
    bool is_query = head < p.heads;
    if (!is_query && token >= step.v[lengths + entry])
        return;

    uvec2 x = tsr_at_mul(tsr_at_mul(tsr_at_mul(p.x, entry, p.x_strides[0]), head, p.x_strides[1]), token, p.x_strides[2]);
    vec4 u, w;
    load_pairs(x, first, count, u, w);
    if (head < p.heads + p.kv_heads) {
        vec4 cosine, sine, before = u;
        [[unroll]] for (uint k = 0u; k < 4u; k++) {
            vec2 turn = rope_turn(rope_angle(int(position), tsr_words2(p.table).v[pair + min(k, count - 1u)]));
            cosine[k] = turn.x;
            sine[k] = turn.y;
        }
        cosine *= p.scale;
        sine *= p.scale;
        u = before * cosine - w * sine;
        w = before * sine + w * cosine;
    }
    if (is_query && Q_DTYPE != 0u) {
        uint size = Q_DTYPE == TSR_DT_F32 ? 4u : 2u;
        uvec2 to = tsr_at_mul(p.q, (entry * p.heads + head) * p.tokens + token, 2u * p.pairs * size);
        store_pairs(to, size, Q_DTYPE, first, count, u, w);
        return;
    }
    if (is_query) {
        store_pairs(x, p.x_strides[3], X_DTYPE, first, count, u, w);
        return;
    }
    uint page = step.v[entry * p.pages_per_sequence + position / p.page_tokens], in_page = position % p.page_tokens;
    uvec2 to = tsr_at_mul(tsr_at_mul(p.cache, page, p.cache_strides[0]), head - p.heads, p.cache_strides[1]);
    uint size = CACHE_DTYPE == TSR_DT_F32 ? 4u : 2u;
    to = tsr_at_mul(to, in_page * 2u * p.pairs, size);
    store_pairs(to, size, CACHE_DTYPE, first, count, u, w);
}
