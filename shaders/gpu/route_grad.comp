// The gradient of route.comp: of the logits from those of the weights, plus that of the softmax
// probabilities, which a loss for balanced loads adds. A workgroup works on one token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/route.glsl"

layout(push_constant, std430) uniform tsr_push
{
    tsr_route_grad_push p;
};

shared float chosen_scores[TSR_ROUTE_MOST_CHOSEN];
shared float chosen_grads[TSR_ROUTE_MOST_CHOSEN]; // of the scores
shared float pull;

void main()
{
    uint token = tsr_flat_group();
    if (token >= p.tokens)
        return;
    uint lane = gl_LocalInvocationID.x;
    uvec2 logits = tsr_at_mul(p.logits, token * p.logits_stride, 4u);
    uint ids = token * p.ids_stride;
    bool chosen_given = (p.weights.x | p.weights.y) != 0u;
    bool probabilities_given = (p.probabilities.x | p.probabilities.y) != 0u;
    route_load(logits, lane, p.experts);
    route_scores(lane, p.experts, GATING);

    // The scores of the chosen experts, in the order of selection.
    for (uint i = 0u; i < HELD; i++) {
        uint j = lane + i * THREADS;
        for (uint r = 0u; r < p.chosen; r++)
            if (j < p.experts && tsr_words(p.ids).v[ids + r] == j)
                chosen_scores[r] = score[i];
    }
    barrier();
    if (lane == 0u) {
        precise float sum = 0.0;
        if (GATING == TSR_ROUTE_CHOSEN) {
            float largest = chosen_scores[0];
            for (uint r = 0u; r < p.chosen; r++)
                largest = max(largest, chosen_scores[r]);
            for (uint r = 0u; r < p.chosen; r++) {
                chosen_scores[r] = tsr_exp_down(chosen_scores[r] - largest);
                sum += chosen_scores[r];
            }
            for (uint r = 0u; r < p.chosen; r++)
                chosen_scores[r] /= sum;
            sum = 0.0;
        }
        precise float product = 0.0; // Σ dw·s
        for (uint r = 0u; r < p.chosen; r++) {
            float grad = chosen_given ? tsr_floats(p.weights).v[token * p.weights_stride + r] * p.scale : 0.0;
            chosen_grads[r] = grad;
            sum += chosen_scores[r];
            product += grad * chosen_scores[r];
        }
        if (p.normalise != 0u) {
            float divisor = max(sum, p.least_sum) + p.epsilon;
            float shared_part = sum < p.least_sum ? 0.0 : product / divisor;
            for (uint r = 0u; r < p.chosen; r++)
                chosen_grads[r] = (chosen_grads[r] - shared_part) / divisor;
        }
        precise float total = 0.0;
        for (uint r = 0u; r < p.chosen; r++)
            total += chosen_grads[r] * chosen_scores[r];
        pull = total;
    }
    barrier();

    float result[HELD];
    for (uint i = 0u; i < HELD; i++) {
        uint j = lane + i * THREADS;
        float grad = 0.0, own = score[i];
        bool is_chosen = false;
        for (uint r = 0u; r < p.chosen; r++)
            if (tsr_words(p.ids).v[ids + r] == j) {
                grad = chosen_grads[r];
                own = chosen_scores[r];
                is_chosen = true;
            }
        float complement;
        float sigmoid = tsr_sigmoid(logit[i], complement); // `complement` keeps its digits where it is small
        if (GATING == TSR_ROUTE_SIGMOID)
            result[i] = is_chosen ? grad * sigmoid * complement : 0.0;
        else
            result[i] = is_chosen || GATING == TSR_ROUTE_SOFTMAX ? own * (grad - pull) : 0.0;
    }

    if (probabilities_given) {
        if (GATING != TSR_ROUTE_SOFTMAX)
            route_softmax(lane, p.experts);
        float total = 0.0;
        for (uint i = 0u; i < HELD; i++) {
            uint j = lane + i * THREADS;
            if (j < p.experts)
                total += score[i] * tsr_floats(p.probabilities).v[j];
        }
        total = route_sum(lane, total);
        for (uint i = 0u; i < HELD; i++) {
            uint j = min(lane + i * THREADS, p.experts - 1u);
            result[i] += score[i] * (tsr_floats(p.probabilities).v[j] - total);
        }
    }
    uvec2 to = tsr_at_mul(p.result, token * p.result_stride, 4u);
    for (uint i = 0u; i < HELD; i++) {
        uint j = lane + i * THREADS;
        if (j < p.experts)
            tsr_floats(to).v[j] = result[i];
    }
}
