// Finds the largest elements of a row, in descending order. THREADS invocations work on a row. Each
// has every THREADS-th element, and keeps the best of its elements that have not been written. Each
// round writes the best element of all invocations, and only the invocation that had it searches
// for its next one. THREADS is 1, 8, or a multiple of 8 that equals WORKGROUP.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/argmax.glsl"
#include "include/rows.glsl"
#include "params/topk.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint THREADS = 8;

layout(push_constant, std430) uniform tsr_push
{
    tsr_topk_params p;
};

// Memory for two rounds, so that a round does not wait for invocations that still read the results
// of the previous round.
shared uvec2 bests[2 * WORKGROUP];
shared uvec2 eighths[8];

const uvec2 NOTHING = uvec2(0u, 0xffffffffu);

bool comes_after(uvec2 pair, uvec2 last)
{
    return pair.x < last.x || (pair.x == last.x && pair.y > last.y);
}

// Returns the best of the invocation's elements if `any` is true, otherwise the best of those that
// come after `last` in descending order. An iteration processes several elements, because Mesa's
// CPU driver limits the number of iterations.
uvec2 search(uvec2 row, uint member, bool any, uvec2 last)
{
    uvec2 best = NOTHING;
    for (uint first = member; first < p.count; first += TSR_TOPK_UNROLLED * THREADS) {
        [[unroll]] for (uint i = 0u; i < TSR_TOPK_UNROLLED; i++) {
            uint j = first + i * THREADS;
            float value = tsr_load_float(tsr_at_stride(row, min(j, p.count - 1u), p.x_step), 0u, X_DTYPE);
            uvec2 pair = uvec2(argmax_key(value), j);
            bool is_better = j < p.count && pair.x > best.x && (any || comes_after(pair, last));
            best = mix(best, pair, bvec2(is_better));
        }
    }
    return best;
}

uvec2 best_of_all(uvec2 mine, uint member, uint slot)
{
    if (THREADS == 1u)
        return mine;
    uint base = slot * WORKGROUP + gl_LocalInvocationID.x - member;
    bests[base + member] = mine;
    barrier();
    if (THREADS > 8u) {
        if (member < 8u) {
            for (uint other = member + 8u; other < THREADS; other += 8u)
                mine = argmax_better(mine, bests[base + other]);
            eighths[member] = mine;
        }
        barrier();
    }
    uvec2 best = NOTHING;
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        best = argmax_better(best, THREADS > 8u ? eighths[i] : bests[base + i]);
    return best;
}

void main()
{
    uint member = gl_LocalInvocationID.x % THREADS;
    uint wanted = tsr_flat_group() * (WORKGROUP / THREADS) + gl_LocalInvocationID.x / THREADS;
    uint job = min(wanted, p.jobs - 1u); // invocations without a job only take part in the barriers
    uvec4 at = tsr_row_position(job, 4u, p.shape);
    uvec2 x = tsr_at_mul(p.x, tsr_row_offset(at, p.x_strides), tsr_dtype_bytes(X_DTYPE));
    uvec2 values = tsr_at_mul(p.values, tsr_row_offset(at, p.values_strides), tsr_dtype_bytes(X_DTYPE));
    uvec2 indices = tsr_at_mul(p.indices, tsr_row_offset(at, p.indices_strides), 4u);

    uvec2 last = NOTHING;
    if (p.from > 0u) {
        float value = tsr_load_float(tsr_at_stride(values, p.from - 1u, p.values_step), 0u, X_DTYPE);
        last = uvec2(argmax_key(value), tsr_words(tsr_at_stride(indices, p.from - 1u, p.indices_step)).v[0]);
    }
    uvec2 mine = search(x, member, p.from == 0u, last);
    for (uint k = p.from; k < p.to; k++) {
        uvec2 best = best_of_all(mine, member, k % 2u);
        if (member == 0u && wanted < p.jobs) {
            float value = tsr_load_float(tsr_at_stride(x, best.y, p.x_step), 0u, X_DTYPE);
            tsr_store_float(tsr_at_stride(values, k, p.values_step), 0u, X_DTYPE, value);
            tsr_words(tsr_at_stride(indices, k, p.indices_step)).v[0] = best.y;
        }
        if (mine == best)
            mine = search(x, member, false, best);
    }
}
