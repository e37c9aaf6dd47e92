/* The comparison of what the ranks' callers have asked for. Without it, ranks with different
 * prompts would compute passes of different sizes, and wait for each other until one of them ends.
 */
#include <inttypes.h>

#include "base/error.h"
#include "base/hash.h"
#include "grammar/grammar.h"
#include "model/generate/generator.h"
#include "model/model.h"

static void add(tsr_generator *g, tsr__same what, const void *data, size_t size)
{
    g->same[what] = tsr__hash(g->same[what], data, size);
}

static void add_integer(tsr_generator *g, tsr__same what, int64_t value)
{
    add(g, what, &value, sizeof value);
}

/* Returns whether several ranks have the draft_model. */
static bool is_divided(const tsr_generator_params *p)
{
    return p->draft_model && tsr_group_size(p->draft_model->group) > 1;
}

void tsr__generator_note_settings(tsr_generator *g)
{
    const tsr_generator_params *p = &g->params;
    for (int i = 0; i < TSR__SAME_COUNT; i++)
        g->same[i] = TSR__HASH_START;
    const int64_t settings[] = {
        p->sequences,    p->context,          p->cache_tokens,      (int64_t)p->cache_dtype,
        p->prefill,      p->logits_positions, p->log_probabilities, p->piece,
        p->prefix_cache, (int64_t)p->draft,   p->draft_tokens,      p->rejection_sampling,
        p->snapshots,    is_divided(p)};
    add(g, TSR__SAME_SETTINGS, settings, sizeof settings);
}

void tsr__generator_note_tokens(tsr_generator *g, int number, int64_t count)
{
    const tsr__sequence *s = &g->sequences[number];
    add_integer(g, TSR__SAME_PROMPTS, number);
    add_integer(g, TSR__SAME_PROMPTS, count);
    add(g, TSR__SAME_PROMPTS, s->tokens + s->length - count, (size_t)count * sizeof *s->tokens);
    add_integer(g, TSR__SAME_ENDS, s->limit);
    g->last_number = number;
    g->last = *s;
    g->last.tokens = g->last.stop = NULL;
    g->last.biases = NULL;
    g->last.sampling.biases = NULL;
    g->last.grammar = g->last.grammar_start = NULL;
    g->last_count = count;
    g->last_tokens[0] = s->tokens[s->length - count];
    g->last_tokens[1] = s->tokens[s->length - 1];
    g->unchecked = true;
}

void tsr__generator_note_sequence(tsr_generator *g, int number)
{
    const tsr__sequence *s = &g->sequences[number];
    const tsr_sampling_params *p = &s->sampling;
    const double reals[] = {p->repetition_penalty, p->temperature,      p->top_p, p->min_p,
                            p->presence_penalty,   p->frequency_penalty};
    tsr__generator_note_tokens(g, number, s->length);
    add(g, TSR__SAME_SAMPLING, reals, sizeof reals);
    add_integer(g, TSR__SAME_SAMPLING, p->top_k);
    add_integer(g, TSR__SAME_SAMPLING, (int64_t)p->seed);
    add_integer(g, TSR__SAME_SAMPLING, (int64_t)s->number);
    add_integer(g, TSR__SAME_SAMPLING, p->prompt_count);
    add_integer(g, TSR__SAME_SAMPLING, s->log_probabilities);
    add_integer(g, TSR__SAME_SAMPLING, s->top_log_probabilities);
    add_integer(g, TSR__SAME_SAMPLING, s->process != NULL);
    add_integer(g, TSR__SAME_SAMPLING, p->bias_count);
    add(g, TSR__SAME_SAMPLING, s->biases, (size_t)p->bias_count * sizeof *s->biases);
    add_integer(g, TSR__SAME_SAMPLING, (int64_t)tsr__generator_chain(g, s));
    add_integer(g, TSR__SAME_ENDS, s->ignore_end);
    add_integer(g, TSR__SAME_ENDS, s->stop_count);
    add(g, TSR__SAME_ENDS, s->stop, (size_t)s->stop_count * sizeof *s->stop);
    add_integer(g, TSR__SAME_GRAMMAR, s->grammar ? (int64_t)s->grammar->grammar->digest : 0);
}

static tsr_status differ(const tsr_generator *g, tsr__same what)
{
    const tsr_generator_params *p = &g->params;
    const tsr__sequence *s = &g->last;
    switch (what) {
    case TSR__SAME_SETTINGS:
        return tsr__fail(TSR_ERR_INVALID,
                         "generator: not all ranks have the same params; this one has sequences "
                         "%d, context %" PRId64 ", cache_tokens %" PRId64 ", cache_dtype %s, "
                         "prefill %" PRId64 ", logits_positions %" PRId64
                         ", log_probabilities %d, piece %" PRId64
                         ", prefix_cache %d, snapshots %d, draft %d, draft_tokens %d, "
                         "rejection_sampling %d, and a draft_model that is%s divided",
                         p->sequences, p->context, p->cache_tokens, tsr_dtype_name(p->cache_dtype),
                         p->prefill, p->logits_positions, p->log_probabilities, p->piece,
                         p->prefix_cache, p->snapshots, (int)p->draft, p->draft_tokens,
                         p->rejection_sampling, is_divided(p) ? "" : " not");
    case TSR__SAME_PROMPTS:
        return tsr__fail(TSR_ERR_INVALID,
                         "generator: not all ranks have the same prompts; the last one of this "
                         "rank, of sequence %d, has %" PRId64 " tokens, the first is %" PRId32
                         " and the last %" PRId32,
                         g->last_number, g->last_count, g->last_tokens[0], g->last_tokens[1]);
    case TSR__SAME_SAMPLING:
        return tsr__fail(
            TSR_ERR_INVALID,
            "generator: not all ranks choose tokens in the same way; sequence %d of "
            "this rank has number %" PRIu64 ", seed %" PRIu64 ", temperature %g, top_k %" PRId64
            ", top_p %g, min_p %g, repetition_penalty %g, presence_penalty %g, frequency_penalty "
            "%g, bias_count %d, log_probabilities %d, top_log_probabilities %d, and process is %s",
            g->last_number, s->number, s->sampling.seed, s->sampling.temperature, s->sampling.top_k,
            s->sampling.top_p, s->sampling.min_p, s->sampling.repetition_penalty,
            s->sampling.presence_penalty, s->sampling.frequency_penalty, s->sampling.bias_count,
            s->log_probabilities, s->top_log_probabilities, s->process ? "not NULL" : "NULL");
    case TSR__SAME_GRAMMAR:
        return tsr__fail(
            TSR_ERR_INVALID,
            "generator: not all ranks have the same grammar; the last sequence of this "
            "rank is %d",
            g->last_number);
    default:
        return tsr__fail(TSR_ERR_INVALID,
                         "generator: not all ranks end sequences in the same way; sequence %d of "
                         "this rank has at most %" PRId64 " tokens, %d stop tokens, ignore_end %d",
                         g->last_number, s->limit, s->stop_count, s->ignore_end);
    }
}

tsr_status tsr__generator_check_same(tsr_generator *g)
{
    int32_t values[TSR__SAME_COUNT][2];
    for (int i = 0; i < TSR__SAME_COUNT; i++) {
        const int32_t digest = (int32_t)((g->same[i] ^ g->same[i] >> 32) & INT32_MAX);
        values[i][0] = digest;
        values[i][1] = -digest; /* the largest is minus the smallest digest */
    }
    TSR__TRY(tsr__model_all_max(g->model, values[0], sizeof values / sizeof values[0][0]));
    for (int i = 0; i < TSR__SAME_COUNT; i++)
        if (values[i][0] != -values[i][1])
            return differ(g, (tsr__same)i);
    g->unchecked = false;
    return TSR_OK;
}
