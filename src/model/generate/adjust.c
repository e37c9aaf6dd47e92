/* Changes of logits that only the host makes: biases of single tokens, and penalties for tokens
 * that have been generated. */
#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "model/generate/generator.h"

bool tsr__sampling_adjusts(const tsr_sampling_params *p)
{
    return p->bias_count > 0 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

tsr_status tsr__sampling_check_adjust(const tsr_sampling_params *p)
{
    TSR__REQUIRE(isfinite(p->presence_penalty) && isfinite(p->frequency_penalty),
                 "sampling: presence_penalty is %g, frequency_penalty %g; both must be finite",
                 p->presence_penalty, p->frequency_penalty);
    TSR__REQUIRE(p->prompt_count >= 0, "sampling: prompt_count is %" PRId64, p->prompt_count);
    TSR__REQUIRE(p->bias_count == 0 || (p->bias_count > 0 && p->biases),
                 "sampling: bias_count is %d, and biases is %s", p->bias_count,
                 p->biases ? "not NULL" : "NULL");
    for (int i = 0; i < p->bias_count; i++)
        TSR__REQUIRE(isfinite(p->biases[i].bias) && p->biases[i].token >= 0,
                     "sampling: bias %d is %g for token %" PRId32
                     "; a finite number and a token are needed",
                     i, (double)p->biases[i].bias, p->biases[i].token);
    return TSR_OK;
}

tsr_status tsr__sampling_check_biases(const tsr_sampling_params *p, int64_t count)
{
    for (int i = 0; i < p->bias_count; i++)
        TSR__REQUIRE(p->biases[i].token < count,
                     "sampling: bias %d is for token %" PRId32 "; there are 0 to %" PRId64, i,
                     p->biases[i].token, count - 1);
    return TSR_OK;
}

tsr_status tsr__sampling_adjust(const tsr_sampling_params *p, int64_t first, int64_t count,
                                float *logits, int64_t history_count, const int32_t *history)
{
    for (int i = 0; i < p->bias_count; i++) {
        const int64_t at = p->biases[i].token - first;
        if (at >= 0 && at < count)
            logits[at] += p->biases[i].bias;
    }
    if ((p->presence_penalty == 0 && p->frequency_penalty == 0) || history_count <= p->prompt_count)
        return TSR_OK;
    uint32_t *times = tsr__calloc((size_t)count, sizeof *times);
    if (!times)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = p->prompt_count; i < history_count; i++)
        if (history[i] >= first && history[i] - first < count)
            times[history[i] - first]++;
    for (int64_t i = 0; i < count; i++)
        if (times[i] > 0)
            logits[i] -= (float)(p->presence_penalty + p->frequency_penalty * (double)times[i]);
    tsr__free(times);
    return TSR_OK;
}
