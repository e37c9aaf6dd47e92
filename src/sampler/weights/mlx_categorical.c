/* Computes the same draws as mx.random.categorical, except that logarithms may be rounded
 * differently. */
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rng/logarithm.h"
#include "rng/rng.h"
#include "sampler/weights/weighted_draws.h"

static float rounded_log(float x)
{
    if (!(x > 0))
        return -INFINITY;
    return isinf(x) ? x : (float)tsr__logarithm((double)x);
}

tsr_status tsr__logits_init(const tsr__weights *weights, tsr__logits *out)
{
    tsr__logits logits = {.count = weights->count};
    double sum = 0;
    for (uint64_t i = 0; i < weights->count; i++)
        sum += (double)(float)tsr__weight(weights, i);
    const float total = (float)sum;
    TSR__REQUIRE(isfinite(total) && total > 0,
                 "weighted: the sum of the weights, %g, is 0 or infinite in 32 bits", sum);
    logits.values = tsr__calloc((size_t)weights->count, sizeof *logits.values);
    if (logits.values == NULL)
        return TSR_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < weights->count; i++) {
        const float share = (float)tsr__weight(weights, i) / total;
        logits.values[i] = rounded_log(share);
        logits.above_zero += share > 0;
    }
    *out = logits;
    return TSR_OK;
}

void tsr__logits_finish(tsr__logits *logits)
{
    tsr__free(logits->values);
    *logits = (tsr__logits){0};
}

/* Returns a logit plus noise. The noise is computed from number `word` of
 * `words` random numbers. */
static float noisy(float logit, tsr_threefry_key key, uint64_t words, uint64_t word)
{
    return logit - rounded_log(-rounded_log(tsr__threefry_uniform_at(key, words, word)));
}

/* MLX computes its noise as an array of the shape [count, draws]. */
int64_t tsr__logits_draw(const tsr__logits *logits, tsr_threefry_key key, uint64_t draws,
                         uint64_t draw)
{
    uint64_t best = UINT64_MAX;
    float most = 0;
    for (uint64_t i = 0; i < logits->count; i++) {
        if (isinf(logits->values[i]))
            continue;
        const float value = noisy(logits->values[i], key, logits->count * draws, i * draws + draw);
        if (best == UINT64_MAX || value > most) {
            best = i;
            most = value;
        }
    }
    return (int64_t)best;
}

void tsr__logits_offer(const tsr__logits *logits, tsr_threefry_key key, tsr__best *best)
{
    for (uint64_t i = 0; i < logits->count; i++)
        if (!isinf(logits->values[i]))
            tsr__best_offer(best, noisy(logits->values[i], key, logits->count, i), (uint32_t)i);
}
