/* The log-probabilities of the chosen tokens, and of those that were most likely. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/generate/generator.h"
#include "model/model.h"

static float *logits_of(const tsr_generator *g, int number)
{
    return g->logits + (size_t)number * (size_t)g->model->config->vocabulary;
}

bool tsr__generator_wants_probability(const tsr_generator *g, int number)
{
    return g->params.log_probabilities || g->sequences[number].log_probabilities;
}

/* Returns the logarithm of the sum of the exponentials of all logits. */
static double log_sum(const float *logits, int64_t count)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++)
        if (logits[i] > largest)
            largest = (double)logits[i];
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

/* Finds the most likely tokens, the most likely one first. Of equal ones, the first comes first. */
static void find_top(const float *logits, int64_t count, double sum, int most,
                     tsr_log_probability *top)
{
    int found = 0;
    for (int64_t i = 0; i < count && most > 0; i++) {
        if (found == most && logits[i] <= logits[top[found - 1].token])
            continue;
        int at = found < most ? found++ : found - 1;
        for (; at > 0 && logits[top[at - 1].token] < logits[i]; at--)
            top[at] = top[at - 1];
        top[at].token = (int32_t)i;
    }
    for (int i = 0; i < found; i++)
        top[i].log_probability = (double)logits[top[i].token] - sum;
}

tsr_status tsr__generator_find_probabilities(tsr_generator *g, int count, const int *numbers)
{
    const int64_t vocabulary = g->model->config->vocabulary;
    bool wanted = false;
    int most = 0;
    for (int i = 0; i < count; i++) {
        const tsr__sequence *s = &g->sequences[numbers[i]];
        g->log_probabilities[i] = NAN;
        wanted = wanted || tsr__generator_wants_probability(g, numbers[i]);
        most = s->top_log_probabilities > most ? s->top_log_probabilities : most;
    }
    if (!wanted)
        return TSR_OK;
    if (most > 0 && !g->top) {
        g->top = tsr__calloc((size_t)g->count * TSR_MAX_TOP_LOG_PROBABILITIES, sizeof *g->top);
        if (!g->top)
            return TSR_ERR_NO_MEMORY;
    }
    for (int i = 0; g->model->is_last && i < count; i++) {
        const tsr__sequence *s = &g->sequences[numbers[i]];
        if (!tsr__generator_wants_probability(g, numbers[i]) || g->votes[i] >= vocabulary)
            continue; /* or the sequence ends without a token */
        const float *logits = logits_of(g, numbers[i]);
        const double sum = log_sum(logits, vocabulary);
        g->log_probabilities[i] = (double)logits[g->votes[i]] - sum;
        if (s->top_log_probabilities > 0)
            find_top(logits, vocabulary, sum, s->top_log_probabilities,
                     g->top + (size_t)i * TSR_MAX_TOP_LOG_PROBABILITIES);
    }
    TSR__TRY(tsr__model_from_last(g->model, g->log_probabilities, (uint64_t)count, TSR_F64));
    return most == 0
               ? TSR_OK
               : tsr__model_from_last(
                     g->model, g->top,
                     (uint64_t)count * TSR_MAX_TOP_LOG_PROBABILITIES * sizeof *g->top, TSR_U8);
}
