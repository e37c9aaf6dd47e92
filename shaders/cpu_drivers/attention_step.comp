// Attention of one query of each sequence over the pages of a cache, on Mesa's CPU driver, for the generation of tokens. A subgroup
// computes one head and the keys of one page. Lanes are columns, so that keys and values are read as they are. If there are several pages,
// attention_merge.comp merges their results. It is compiled with -O0, which leaves its loops for the driver to unroll (see
// matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/vectors.h"
#include "params/attention_step.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_attention_step_push p;
};

// Volatile loads compile faster (see matmul_lavapipe.glsl). They are never merged, but no load
// occurs twice in a result.
#define TSR_MEMORY volatile
#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"
#include "include/exp_log.glsl"

layout(constant_id = 0) const uint WORKGROUP = 8;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8; // the subgroup size, 8 or 16
layout(constant_id = 2) const uint KEYS = 8; // keys in a page
layout(constant_id = 3) const uint VECTORS = 1; // head_dim / LANES
layout(constant_id = 4) const uint DTYPE = TSR_DT_F32; // the dtype of keys and values
// 1: stores results for attention_merge.comp, because there are several pages
layout(constant_id = 5) const uint SEVERAL_PAGES = 0;
layout(constant_id = 6) const uint READERS = 1; // heads that read a kv head

const uint SUMS = (KEYS + LANES - 1) / LANES * LANES;
const uint FIRST = 2 * SUMS - 2 * SUMS / LANES; // where the last level of the tree below starts
const uint BYTES = LANES * BYTES_OF(DTYPE);     // the bytes of a vector of keys or values
#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

int integer_at(uint64_t at)
{
    return floatBitsToInt(Float(at).v);
}

void main()
{
    uint lane = gl_SubgroupInvocationID;
    uint number = uniform_index(gl_WorkGroupID.x), head = uniform_index(gl_WorkGroupID.y), sequence = uniform_index(gl_WorkGroupID.z);
    uint kv_head = uniform_index(gl_WorkGroupID.y / READERS);
    int keys = clamp(integer_at(p.kv_lengths + sequence * 4), 0, int(gl_NumWorkGroups.x * KEYS));
    // Keys past the last one repeat it with a probability of 0, because their memory might contain NaN.
    uint last = uniform_index(uint(clamp(keys - 1 - int(number * KEYS), 0, int(KEYS) - 1)));
    int entry = integer_at(p.pages + uint64_t(sequence) * p.pages_stride + number * 4);
    uint page = uniform_index(uint(clamp(entry, 0, int(p.page_count) - 1)));
    uint64_t rows = uint64_t(page) * p.page_stride + uint64_t(kv_head) * p.head_stride;
    uint64_t q_at = p.q + uint64_t(sequence) * p.q_batch + uint64_t(head) * p.q_head;

    float q[VECTORS], c[2 * SUMS], s[SUMS / LANES], y[VECTORS];
    [[unroll]] for (uint n = 0; n < VECTORS; n++)
        q[n] = load_lanes(q_at, n * LANES * 4, TSR_DT_F32, LANES);
    [[unroll]] for (uint e = 0; e < SUMS; e++) {
        uint64_t row = p.k + rows + uint64_t(min(e, last)) * p.row_stride;
        c[e] = q[0] * load_lanes(row, 0, DTYPE, LANES);
        [[unroll]] for (uint n = 1; n < VECTORS; n++)
            c[e] += q[n] * load_lanes(row, n * BYTES, DTYPE, LANES);
    }
    // Adds up the lanes in a fixed tree. At the end, lane l of vector i has the score of key i · LANES + l. See matmul_lavapipe_nt.glsl.
    [[unroll]] for (uint e = 0; e < SUMS - SUMS / LANES; e++) {
        uint level = e < SUMS / 2 ? 0 : e < SUMS / 4 * 3 ? 1 : e < SUMS / 8 * 7 ? 2 : 3;
        uint distance = 1u << level;
        bool odd = (lane & distance) != 0;
        c[SUMS + e] = mix(c[2 * e], c[2 * e + 1], odd) + subgroupShuffle(mix(c[2 * e + 1], c[2 * e], odd), lane ^ distance);
    }

    float largest = MINUS_INFINITY;
    precise float sum = 0.0;
    int first = keys - int(min(p.window, uint(keys)));
    [[unroll]] for (uint i = 0; i < SUMS / LANES; i++) {
        int in_page = int(i * LANES + lane), key = int(number * KEYS) + in_page;
        s[i] = mix(MINUS_INFINITY, c[FIRST + i] * p.scale, in_page < int(KEYS) && key >= first && key < keys);
        largest = max(largest, s[i]);
    }
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
        largest = max(largest, subgroupShuffleXor(largest, distance));
    float shift = mix(largest, 0.0, largest == MINUS_INFINITY); // avoids -inf − -inf
    [[unroll]] for (uint i = 0; i < SUMS / LANES; i++) {
        precise float difference = s[i] - shift;
        s[i] = tsr_exp_down(difference);
        sum += s[i];
    }
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
        sum += subgroupShuffleXor(sum, distance);

    [[unroll]] for (uint n = 0; n < VECTORS; n++)
        y[n] = 0.0;
    [[unroll]] for (uint e = 0; e < KEYS; e++) {
        uint64_t row = p.v + rows + uint64_t(min(e, last)) * p.row_stride;
        float probability = subgroupShuffle(s[e / LANES], e % LANES);
        [[unroll]] for (uint n = 0; n < VECTORS; n++)
            y[n] += probability * load_lanes(row, n * BYTES, DTYPE, LANES);
    }
    float factor = 1.0, pinned = sum;
    if (SEVERAL_PAGES == 0)
        factor = 1.0 / sum;
    [[unroll]] for (uint n = 0; n < VECTORS; n++) {
        y[n] = mix(y[n] * factor, 0.0, sum == 0.0);
        pinned += y[n];
    }
    // A second use of the results, which is never executed; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Float(p.to).v = pinned;

    uint64_t to = p.to + uint64_t(sequence) * p.y_batch + uint64_t(head) * p.y_head;
    if (SEVERAL_PAGES != 0)
        to += uint64_t(number) * ((VECTORS * LANES + 4) * 4) + 16;
    [[unroll]] for (uint n = 0; n < VECTORS; n++)
        Float(target(to + (n * LANES + lane) * 4)).v = y[n];
    if (SEVERAL_PAGES != 0 && lane == 0) {
        Float(to - 16).v = largest;
        Float(to - 12).v = sum;
    }
}
