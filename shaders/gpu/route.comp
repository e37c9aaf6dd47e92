// Chooses the experts of each token from the logits of the router, and computes their weights. A
// workgroup works on one token. An invocation has every THREADS-th expert. An expert's place in the
// order of selection is the number of experts that are better, so that nothing depends on the order
// of execution, and of equal experts the one with the lower index comes first.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/argmax.glsl"
#include "include/route.glsl"

layout(push_constant, std430) uniform tsr_push
{
    tsr_route_push p;
};

shared uint keys[TSR_ROUTE_MOST_EXPERTS];
shared uint group_keys[TSR_ROUTE_MOST_EXPERTS];
shared float chosen_scores[TSR_ROUTE_MOST_CHOSEN];

// The key of a group: that of the sum of its two largest values. `values` are in keys[] as bits.
uint group_key(uint group, uint size)
{
    uint first = 0u, second = 0u;
    float largest = 0.0, next = 0.0;
    for (uint j = 0u; j < size; j++) {
        float value = uintBitsToFloat(keys[group * size + j]);
        uint key = argmax_key(value);
        if (key > first) {
            second = first;
            next = largest;
            first = key;
            largest = value;
        } else if (key > second) {
            second = key;
            next = value;
        }
    }
    return argmax_key(second == 0u ? largest : largest + next);
}

void main()
{
    uint token = tsr_flat_group();
    if (token >= p.tokens)
        return;
    uint lane = gl_LocalInvocationID.x;
    uvec2 logits = tsr_at_mul(p.logits, token * p.logits_stride, 4u);
    route_load(logits, lane, p.experts);
    route_scores(lane, p.experts, GATING);

    // Without a bias and without groups, the choice is by the logits: the functions keep their
    // order, and rounding cannot make two of them equal.
    bool by_logit = (p.bias.x | p.bias.y) == 0u && p.groups == 0u;
    for (uint i = 0u; i < HELD; i++) {
        uint j = lane + i * THREADS;
        if (j < p.experts) {
            float value = by_logit ? logit[i] : score[i];
            if ((p.bias.x | p.bias.y) != 0u)
                value += tsr_floats(p.bias).v[j];
            keys[j] = p.groups == 0u ? argmax_key(value) : floatBitsToUint(value);
        }
    }
    barrier();
    if (p.groups > 0u) {
        uint size = p.experts / p.groups;
        for (uint g = lane; g < p.groups; g += THREADS)
            group_keys[g] = group_key(g, size);
        barrier();
        for (uint i = 0u; i < HELD; i++) {
            uint j = lane + i * THREADS;
            if (j < p.experts) {
                uint own = j / size, better = 0u;
                for (uint g = 0u; g < p.groups; g++)
                    better += uint(group_keys[g] > group_keys[own] || (group_keys[g] == group_keys[own] && g < own));
                keys[j] = better < p.groups_used ? argmax_key(uintBitsToFloat(keys[j])) : 0u;
            }
        }
        barrier();
    }

    for (uint i = 0u; i < HELD; i++) {
        uint j = lane + i * THREADS;
        if (j < p.experts) {
            uint key = keys[j], better = 0u;
            for (uint other = 0u; other < p.experts; other++)
                better += uint(keys[other] > key || (keys[other] == key && other < j));
            if (better < p.chosen) {
                tsr_words(p.ids).v[token * p.ids_stride + better] = j;
                if ((p.here.x | p.here.y) != 0u)
                    tsr_words(p.here).v[token * p.ids_stride + better] = tsr_words(p.local).v[j];
                chosen_scores[better] = score[i];
            }
        }
    }
    barrier();
    if (lane == 0u) {
        if (GATING == TSR_ROUTE_CHOSEN) {
            float largest = chosen_scores[0];
            precise float total = 0.0;
            for (uint r = 0u; r < p.chosen; r++)
                largest = max(largest, chosen_scores[r]);
            for (uint r = 0u; r < p.chosen; r++) {
                chosen_scores[r] = tsr_exp_down(chosen_scores[r] - largest);
                total += chosen_scores[r];
            }
            for (uint r = 0u; r < p.chosen; r++)
                chosen_scores[r] /= total;
        }
        precise float sum = 0.0;
        for (uint r = 0u; r < p.chosen; r++)
            sum += chosen_scores[r];
        float divisor = p.normalise != 0u ? max(sum, p.least_sum) + p.epsilon : 1.0;
        divisor = tsr_is_nan(sum) ? sum : divisor;
        for (uint r = 0u; r < p.chosen; r++)
            tsr_floats(p.weights).v[token * p.weights_stride + r] = chosen_scores[r] / divisor * p.scale;
    }
}
