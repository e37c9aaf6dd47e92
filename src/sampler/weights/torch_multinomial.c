/* Computes the same draws as torch.multinomial, with plain IEEE arithmetic in the same order of
 * operations. */
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rng/rng.h"
#include "sampler/weights/weighted_draws.h"

tsr_status tsr__sums_init(const tsr__weights *weights, tsr__sums *out)
{
    tsr__sums sums = {.count = weights->count};
    size_t count = (size_t)weights->count;
    bool is_finite;
    if (weights->wide != NULL) {
        double sum = 0;
        sums.wide = tsr__calloc(count, sizeof *sums.wide);
        if (sums.wide == NULL)
            return TSR_ERR_NO_MEMORY;
        for (size_t i = 0; i < count; i++) {
            sum += weights->wide[i];
            sums.wide[i] = sum;
        }
        for (size_t i = 0; i < count; i++)
            sums.wide[i] /= sum;
        sums.wide[count - 1] = 1;
        is_finite = isfinite(sum);
    } else {
        float sum = 0;
        sums.narrow = tsr__calloc(count, sizeof *sums.narrow);
        if (sums.narrow == NULL)
            return TSR_ERR_NO_MEMORY;
        for (size_t i = 0; i < count; i++) {
            sum += weights->narrow[i];
            sums.narrow[i] = sum;
        }
        for (size_t i = 0; i < count; i++)
            sums.narrow[i] /= sum;
        sums.narrow[count - 1] = 1;
        is_finite = isfinite(sum);
    }
    if (!is_finite) {
        tsr__sums_finish(&sums);
        return tsr__fail(TSR_ERR_INVALID, "weighted: the sum of the weights overflows their type");
    }
    *out = sums;
    return TSR_OK;
}

void tsr__sums_finish(tsr__sums *sums)
{
    tsr__free(sums->wide);
    tsr__free(sums->narrow);
    *sums = (tsr__sums){0};
}

uint64_t tsr__sums_find(const tsr__sums *sums, double u)
{
    uint64_t low = 0, high = sums->count - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        double sum = sums->wide != NULL ? sums->wide[middle] : (double)sums->narrow[middle];
        if (sum < u)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void tsr__weights_draw_torch(const tsr__weights *weights, tsr_mt19937 *rng, tsr__best *best)
{
    for (uint64_t i = 0; i < weights->count; i++) {
        double waiting = -log1p(-tsr__mt19937_next_double(rng)), key;
        if (weights->wide != NULL)
            key = weights->wide[i] / waiting;
        else
            key = (double)(weights->narrow[i] / (float)waiting);
        if (tsr__weight(weights, i) > 0)
            tsr__best_offer(best, key, (uint32_t)i);
    }
}
