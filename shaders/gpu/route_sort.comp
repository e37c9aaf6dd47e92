// Sorts pairs (token, chosen expert) by expert; the pairs of an expert stay in their order. A
// workgroup finds the pairs of one expert: each invocation counts, in its range of pairs, those of
// earlier experts and those of this one, and then writes the latter. Ids that are not experts
// belong to none.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/route.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 256; // a power of two

layout(push_constant, std430) uniform tsr_push
{
    tsr_route_sort_push p;
};

shared uvec2 counts[THREADS]; // of pairs of earlier experts, and of this one

uint id_of(uint pair)
{
    return tsr_words(p.ids).v[pair / p.chosen * p.ids_stride + pair % p.chosen];
}

void main()
{
    uint expert = tsr_flat_group();
    if (expert >= p.experts)
        return;
    uint lane = gl_LocalInvocationID.x;
    uint each = (p.pairs + THREADS - 1u) / THREADS;
    uint begin = min(lane * each, p.pairs), end = min(begin + each, p.pairs);
    uvec2 own = uvec2(0u);
    for (uint pair = begin; pair < end; pair++) {
        uint id = id_of(pair);
        own += uvec2(id < expert, id == expert);
    }
    // Inclusive sums over the invocations.
    counts[lane] = own;
    barrier();
    for (uint span = 1u; span < THREADS; span *= 2u) {
        uvec2 before = lane >= span ? counts[lane - span] : uvec2(0u);
        barrier();
        counts[lane] += before;
        barrier();
    }
    uvec2 total = counts[THREADS - 1u];
    uint at = total.x + counts[lane].y - own.y;
    for (uint pair = begin; pair < end; pair++)
        if (id_of(pair) == expert)
            tsr_words(p.order).v[at++] = pair;
    if (lane == 0u) {
        tsr_words(p.offsets).v[expert] = total.x;
        if (expert == p.experts - 1u)
            tsr_words(p.offsets).v[p.experts] = total.x + total.y;
    }
}
