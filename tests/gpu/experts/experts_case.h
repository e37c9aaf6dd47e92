/* References in double precision for mixtures of experts. */
#ifndef TESTS_GPU_EXPERTS_CASE_H
#define TESTS_GPU_EXPERTS_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/close.h"
#include "support/gpu.h"

static inline double *doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

/* A contiguous tensor with values that its dtype can represent. */
static inline tsr_tensor *filled(tsr_dtype dtype, double *values, int ndim, const int64_t *shape)
{
    tsr_tensor *tensor = gpu_new(dtype, ndim, shape);
    const int64_t count = tsr_layout_count(tsr_tensor_layout(tensor));
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(values[i], dtype);
    gpu_put(tensor, values);
    return tensor;
}

static inline double *drawn(gpu_random *random, int64_t count, double scale)
{
    double *values = doubles(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = scale * gpu_random_unit(random);
    return values;
}

/* Routing of one token. Experts of dropped groups have the selection value -inf. */
static inline void reference_route(const double *logits, int64_t experts, int64_t chosen,
                                   const double *bias, const tsr_route_params *params, double *ids,
                                   double *weights)
{
    double scores[1024], selection[1024], sum = 0, largest = -INFINITY;
    bool taken[1024] = {false};
    for (int64_t e = 0; e < experts; e++)
        largest = fmax(largest, logits[e]);
    for (int64_t e = 0; e < experts; e++)
        sum += exp(logits[e] - largest);
    for (int64_t e = 0; e < experts; e++) {
        scores[e] = params->gating == TSR_GATING_SOFTMAX   ? exp(logits[e] - largest) / sum
                    : params->gating == TSR_GATING_SIGMOID ? 1 / (1 + exp(-logits[e]))
                                                           : logits[e];
        selection[e] = scores[e] + (bias ? bias[e] : 0);
    }
    if (params->groups > 1) {
        const int64_t size = experts / params->groups;
        double group[1024];
        bool kept[1024] = {false};
        for (int g = 0; g < params->groups; g++) {
            double first = -INFINITY, second = -INFINITY;
            for (int64_t e = g * size; e < (g + 1) * size; e++) {
                if (selection[e] > first) {
                    second = first;
                    first = selection[e];
                } else if (selection[e] > second) {
                    second = selection[e];
                }
            }
            group[g] = size > 1 ? first + second : first;
        }
        for (int used = 0; used < params->groups_used; used++) {
            int best = -1;
            for (int g = 0; g < params->groups; g++)
                if (!kept[g] && (best < 0 || group[g] > group[best]))
                    best = g;
            kept[best] = true;
        }
        for (int64_t e = 0; e < experts; e++)
            taken[e] = !kept[e / size];
    }
    double total = 0;
    for (int64_t r = 0; r < chosen; r++) {
        int64_t best = -1;
        for (int64_t e = 0; e < experts; e++)
            if (!taken[e] && (best < 0 || selection[e] > selection[best]))
                best = e;
        taken[best] = true;
        ids[r] = (double)best;
        weights[r] = scores[best];
    }
    if (params->gating == TSR_GATING_SOFTMAX_CHOSEN) {
        const double first = weights[0];
        largest = first;
        for (int64_t r = 0; r < chosen; r++)
            largest = fmax(largest, weights[r]);
        for (int64_t r = 0; r < chosen; r++)
            total += weights[r] = exp(weights[r] - largest);
        for (int64_t r = 0; r < chosen; r++)
            weights[r] /= total;
        total = 0;
    }
    for (int64_t r = 0; r < chosen; r++)
        total += weights[r];
    const double divisor =
        params->normalise ? fmax(total, (double)params->least_sum) + (double)params->epsilon : 1;
    const double scale = params->scale != 0 ? (double)params->scale : 1;
    for (int64_t r = 0; r < chosen; r++)
        weights[r] *= scale / divisor;
}

static inline double reference_gated(double gate, double up, tsr_expert_activation activation,
                                     double limit)
{
    if (activation == TSR_EXPERT_SWIGLU_OAI) {
        const double g = fmin(gate, limit), u = fmax(fmin(up, limit), -limit);
        return g / (1 + exp(-1.702 * g)) * (u + 1);
    }
    if (activation == TSR_EXPERT_GEGLU)
        return gate / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (gate + 0.044715 * gate * gate * gate))) *
               up;
    return gate / (1 + exp(-gate)) * up;
}

#endif
