// What the kernels of routing share: a row of logits in registers, and the scores of experts. An
// invocation holds experts lane, lane + THREADS, … Loops over them have no unroll hint, because
// SwiftShader computed wrong results with one.
#ifndef TSR_ROUTE_GLSL
#define TSR_ROUTE_GLSL

#include "include/activation.glsl"
#include "include/tessera.glsl"
#include "params/route.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 64; // a power of two
layout(constant_id = 1) const uint HELD = 1;     // experts of an invocation
layout(constant_id = 2) const uint GATING = TSR_ROUTE_SOFTMAX;

shared float route_tree[THREADS];

float logit[HELD], score[HELD];

// Sums of, and the largest of, the values of all invocations. Sums are in a fixed tree.
float route_sum(uint lane, float value)
{
    route_tree[lane] = value;
    for (uint span = THREADS / 2u; span > 0u; span /= 2u) {
        barrier();
        if (lane < span)
            route_tree[lane] += route_tree[lane + span];
    }
    barrier();
    float result = route_tree[0];
    barrier();
    return result;
}

float route_max(uint lane, float value)
{
    route_tree[lane] = value;
    for (uint span = THREADS / 2u; span > 0u; span /= 2u) {
        barrier();
        if (lane < span)
            route_tree[lane] = max(route_tree[lane], route_tree[lane + span]);
    }
    barrier();
    float result = route_tree[0];
    barrier();
    return result;
}

void route_load(uvec2 logits, uint lane, uint experts)
{
    for (uint i = 0u; i < HELD; i++)
        logit[i] = tsr_floats(logits).v[min(lane + i * THREADS, experts - 1u)];
}

// Sets `score` to the softmax of the logits.
void route_softmax(uint lane, uint experts)
{
    float largest = logit[0];
    for (uint i = 1u; i < HELD; i++)
        largest = max(largest, logit[i]);
    largest = route_max(lane, largest);
    float total = 0.0;
    for (uint i = 0u; i < HELD; i++) {
        score[i] = tsr_exp_down(logit[i] - largest);
        total += lane + i * THREADS < experts ? score[i] : 0.0;
    }
    total = route_sum(lane, total);
    for (uint i = 0u; i < HELD; i++)
        score[i] /= total;
}

void route_scores(uint lane, uint experts, uint gating)
{
    if (gating == TSR_ROUTE_SOFTMAX)
        route_softmax(lane, experts);
    for (uint i = 0u; i < HELD; i++) {
        float complement;
        if (gating == TSR_ROUTE_SIGMOID)
            score[i] = tsr_is_nan(logit[i]) ? logit[i] : tsr_sigmoid(logit[i], complement);
        else if (gating == TSR_ROUTE_CHOSEN)
            score[i] = logit[i];
    }
}

#endif
