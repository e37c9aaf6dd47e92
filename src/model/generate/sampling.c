/* Choosing a token from logits on the host, with the arithmetic of shaders/params/choose.h. The
 * filters and their order are those of Hugging Face Transformers. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/error.h"
#include "base/given.h"
#include "base/struct_size.h"
#include "model/generate/generator.h"
#include "tessera/rng.h"

#define LOG2_E 1.4426950408889634074

tsr_status tsr__sampling_check(const tsr_sampling_params *params)
{
    TSR__REQUIRE(isfinite(params->temperature) && params->temperature >= 0,
                 "sampling: temperature is %g; it must not be negative", params->temperature);
    TSR__REQUIRE(params->top_k >= 0, "sampling: top_k is %" PRId64 "; it must not be negative",
                 params->top_k);
    TSR__REQUIRE(params->top_p >= 0 && params->top_p <= 1,
                 "sampling: top_p is %g; 0 to 1 is possible", params->top_p);
    TSR__REQUIRE(params->min_p >= 0 && params->min_p <= 1,
                 "sampling: min_p is %g; 0 to 1 is possible", params->min_p);
    TSR__REQUIRE(isfinite(params->repetition_penalty) && params->repetition_penalty >= 0,
                 "sampling: repetition_penalty is %g; a positive number is needed",
                 params->repetition_penalty);
    return tsr__sampling_check_adjust(params);
}

const char *tsr_finish_name(tsr_finish finish)
{
    static const char *const names[] = {"none",      "token",   "max_tokens", "context",
                                        "interrupt", "grammar", "stuck"};
    return (unsigned)finish < sizeof names / sizeof *names ? names[finish] : "?";
}

/* Buckets that divide tokens by their distance from the most likely one, so that only tokens of a
 * few buckets need to be put in order. The last bucket has all tokens that are too far away for the
 * others. */
#define BUCKETS 4096
#define BUCKETS_PER_OCTAVE_BITS 8 /* a weight halves over 2^8 buckets */

/* The logits while they are filtered. A logit of −inf means that the token has been removed. */
typedef struct filter {
    const tsr_sampling_params *params;
    const struct tsr_choice_words *words;
    int64_t count;
    float *logits; /* [count] */
    float largest; /* the largest logit */
    /* the sum of the weights of less likely tokens that the caller has left out, none of which
     * top_p keeps */
    uint64_t others;
    /* The tokens that have not been removed, those of bucket b in order[starts[b] … starts[b + 1] −
     * 1]. NULL unless top_k or top_p needs them. */
    int32_t *order;
    int32_t *starts;
    int32_t *heap; /* a part of `order` as a heap, the most likely token first */
    int32_t left;  /* tokens in the heap */
} filter;

static uint64_t from_words(const uint32_t words[2])
{
    return words[0] | (uint64_t)words[1] << 32;
}

static void to_words(uint64_t value, uint32_t words[2])
{
    words[0] = (uint32_t)value;
    words[1] = (uint32_t)(value >> 32);
}

/* Returns a number in [0, 1), times 2^64. */
static uint64_t fraction(double value)
{
    return (uint64_t)(value * 0x1p53) << 11;
}

/* Rounds to an f32, but not to infinity, nor to a subnormal number. */
static float bounded(double value)
{
    return tsr__choice_normal(value > (double)FLT_MAX ? FLT_MAX : (float)value);
}

tsr_status tsr__sampling_choice(const tsr_sampling_params *params, uint64_t number,
                                int64_t position, struct tsr_choice_words *out)
{
    const double penalty = params->repetition_penalty, top_p = tsr__given_double(params->top_p, 1);
    tsr_rng random;
    *out = (struct tsr_choice_words){.penalty = 1, .inverse_penalty = 1};
    if (penalty != 0 && penalty != 1) {
        out->flags |= TSR_CHOICE_PENALISED;
        out->penalty = bounded(penalty);
        out->inverse_penalty = bounded(1 / penalty);
    }
    if (params->temperature == 0) {
        out->flags |= TSR_CHOICE_GREEDY;
        return TSR_OK;
    }
    out->scale = bounded(LOG2_E * (1 << TSR_CHOICE_DISTANCE_BITS) / params->temperature);
    out->top_k = params->top_k < UINT32_MAX ? (uint32_t)params->top_k : UINT32_MAX;
    if (top_p < 1) {
        out->flags |= TSR_CHOICE_TOP_P;
        to_words(fraction(top_p), out->top_p);
    }
    to_words((uint64_t)ceil(ldexp(params->min_p, TSR_CHOICE_WEIGHT_BITS)), out->least);
    TSR__TRY(tsr_rng_init(TSR_RNG_PHILOX, params->seed, number, &random));
    random.as.philox.position = 2 * (uint64_t)position;
    to_words(fraction(tsr_rng_next_double(&random)), out->random);
    return TSR_OK;
}

/* Steps -------------------------------------------------------------------------------------- */

/* Finds the first of the most likely tokens. Refuses a logit that is NaN or +inf, and logits that
 * are all −inf. */
static tsr_status check_logits(int64_t count, const float *logits, int64_t *most_likely)
{
    int64_t best = 0;
    for (int64_t i = 0; i < count; i++) {
        TSR__REQUIRE(logits[i] < INFINITY, "sampling: the logit of token %" PRId64 " is %s", i,
                     isnan(logits[i]) ? "NaN" : "infinite");
        if (logits[i] > logits[best])
            best = i;
    }
    TSR__REQUIRE(logits[best] != -INFINITY, "sampling: all of %" PRId64 " logits are -inf", count);
    *most_likely = best;
    return TSR_OK;
}

bool tsr__sampling_changes(const tsr_sampling_params *params)
{
    return tsr__sampling_adjusts(params) ||
           (params->repetition_penalty != 0 && params->repetition_penalty != 1);
}

/* Applies the repetition penalty to the logits of tokens first, first + 1, …, first + count − 1. */
static tsr_status penalise(const struct tsr_choice_words *words, int64_t first, int64_t count,
                           float *logits, int64_t history_count, const int32_t *history)
{
    uint8_t *seen = tsr__calloc((size_t)count, 1);
    if (!seen)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < history_count; i++) {
        const int64_t at = history[i] - first;
        if (at < 0 || at >= count || seen[at])
            continue;
        seen[at] = 1;
        logits[at] = tsr__choice_penalised(logits[at], words->penalty, words->inverse_penalty);
    }
    tsr__free(seen);
    return TSR_OK;
}

static int64_t most_likely(const filter *f)
{
    int64_t best = 0;
    for (int64_t i = 1; i < f->count; i++)
        if (f->logits[i] > f->logits[best])
            best = i;
    return best;
}

/* Returns the weight of a token that has not been removed. */
static uint64_t weight_of(const filter *f, int64_t token)
{
    return tsr__choice_weight(tsr__choice_distance(f->largest, f->logits[token], f->words->scale));
}

/* Returns whether token a comes before token b: it is more likely, or as likely and has a higher
 * id. Of equally likely tokens, top_p removes those with low ids first. */
static bool before(const filter *f, int32_t a, int32_t b)
{
    return f->logits[a] > f->logits[b] || (f->logits[a] == f->logits[b] && a > b);
}

static void sink(filter *f, int32_t at)
{
    const int32_t moving = f->heap[at];
    for (;;) {
        int64_t child = 2 * (int64_t)at + 1;
        if (child >= f->left)
            break;
        if (child + 1 < f->left && before(f, f->heap[child + 1], f->heap[child]))
            child++;
        if (!before(f, f->heap[child], moving))
            break;
        f->heap[at] = f->heap[child];
        at = (int32_t)child;
    }
    f->heap[at] = moving;
}

/* Makes a heap of the tokens of a bucket. */
static void make_heap(filter *f, int bucket)
{
    f->heap = f->order + f->starts[bucket];
    f->left = f->starts[bucket + 1] - f->starts[bucket];
    for (int32_t i = f->left / 2 - 1; i >= 0; i--)
        sink(f, i);
}

/* Removes the most likely token from the heap and returns it. */
static int32_t pop(filter *f)
{
    const int32_t top = f->heap[0];
    f->heap[0] = f->heap[--f->left];
    if (f->left > 0)
        sink(f, 0);
    return top;
}

/* Returns the bucket of a token. Of two tokens, the more likely one is in the same bucket or an
 * earlier one, because distances never decrease when logits do. */
static uint32_t bucket_of(const filter *f, int64_t token)
{
    const uint32_t place = tsr__choice_distance(f->largest, f->logits[token], f->words->scale) >>
                           (TSR_CHOICE_DISTANCE_BITS - BUCKETS_PER_OCTAVE_BITS);
    return place < BUCKETS - 1 ? place : BUCKETS - 1;
}

/* Divides the tokens into buckets. */
static void fill_buckets(filter *f)
{
    int32_t next[BUCKETS] = {0}, all = 0;
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] != -INFINITY)
            next[bucket_of(f, i)]++;
    for (int b = 0; b < BUCKETS; b++) {
        const int32_t size = next[b];
        f->starts[b] = next[b] = all;
        all += size;
    }
    f->starts[BUCKETS] = all;
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] != -INFINITY)
            f->order[next[bucket_of(f, i)]++] = (int32_t)i;
}

static void remove_below(filter *f, float limit)
{
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] < limit)
            f->logits[i] = -INFINITY;
}

static void keep_top_k(filter *f, uint32_t k)
{
    if (k == 0 || k >= f->count)
        return;
    fill_buckets(f);
    if (k >= (uint32_t)f->starts[BUCKETS])
        return;
    int bucket = 0;
    while (f->starts[bucket + 1] < (int32_t)k)
        bucket++;
    float limit = -INFINITY;
    make_heap(f, bucket);
    for (int32_t i = f->starts[bucket]; i < (int32_t)k; i++)
        limit = f->logits[pop(f)];
    remove_below(f, limit);
}

/* Returns the sum of the weights of all tokens that have not been removed. */
static uint64_t sum_of(const filter *f)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] != -INFINITY)
            sum += weight_of(f, i);
    return sum;
}

static void keep_top_p(filter *f, uint64_t p)
{
    const uint64_t share = tsr__mul_high_u64(p, sum_of(f) + f->others);
    const uint64_t wanted = share > 0 ? share : 1; /* the most likely token always remains */
    uint64_t mass = 0;
    int bucket = 0;
    fill_buckets(f);
    for (; bucket < BUCKETS && mass < wanted; bucket++) {
        make_heap(f, bucket);
        while (f->left > 0 && mass < wanted)
            mass += weight_of(f, pop(f));
        for (int32_t i = 0; i < f->left; i++)
            f->logits[f->heap[i]] = -INFINITY;
    }
    for (int32_t i = f->starts[bucket]; i < f->starts[BUCKETS]; i++)
        f->logits[f->order[i]] = -INFINITY;
}

/* Filters f->logits, and computes the weights of all tokens: 0 for those that are removed. With a
 * temperature of 0, the chosen token has 1. */
static tsr_status compute(filter *f, int64_t history_count, const int32_t *history,
                          uint64_t *weights)
{
    const struct tsr_choice_words *words = f->words;
    int64_t best;
    TSR__TRY(check_logits(f->count, f->logits, &best));
    if (tsr__sampling_adjusts(f->params)) {
        TSR__TRY(tsr__sampling_check_biases(f->params, f->count));
        TSR__TRY(tsr__sampling_adjust(f->params, 0, f->count, f->logits, history_count, history));
        TSR__TRY(check_logits(f->count, f->logits, &best));
    }
    if (words->flags & TSR_CHOICE_PENALISED) {
        TSR__TRY(penalise(words, 0, f->count, f->logits, history_count, history));
        best = most_likely(f);
    }
    f->largest = f->logits[best];
    if (words->flags & TSR_CHOICE_GREEDY) {
        weights[best] = 1;
        return TSR_OK;
    }
    keep_top_k(f, words->top_k);
    if (words->flags & TSR_CHOICE_TOP_P)
        keep_top_p(f, from_words(words->top_p));
    const uint64_t least = from_words(words->least);
    for (int64_t i = 0; i < f->count; i++) {
        const uint64_t weight = f->logits[i] != -INFINITY ? weight_of(f, i) : 0;
        weights[i] = weight >= least ? weight : 0;
    }
    return TSR_OK;
}

/* Public ------------------------------------------------------------------------------------- */

static tsr_status check(const tsr_sampling_params *params, int64_t count, const float *logits,
                        int64_t history_count, const int32_t *history)
{
    TSR__REQUIRE(logits, "sampling: logits is NULL");
    TSR__REQUIRE(history || history_count == 0, "sampling: history is NULL");
    TSR__REQUIRE(count >= 1 && count <= INT32_MAX && history_count >= 0,
                 "sampling: count is %" PRId64 ", history_count %" PRId64, count, history_count);
    return tsr__sampling_check(params);
}

/* Computes the weights of all tokens, weights[count], which must be 0, from arguments that have
 * been checked. */
static tsr_status find_weights(const tsr_sampling_params *params,
                               const struct tsr_choice_words *words, int64_t count,
                               const float *logits, uint64_t others, int64_t history_count,
                               const int32_t *history, uint64_t *weights)
{
    filter f = {.params = params, .words = words, .count = count, .others = others};
    f.logits = tsr__calloc((size_t)count, sizeof *f.logits);
    if (words->top_k > 0 || words->flags & TSR_CHOICE_TOP_P)
        f.order = tsr__calloc((size_t)count + BUCKETS + 1, sizeof *f.order);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (f.logits && (f.order || !(words->top_k > 0 || words->flags & TSR_CHOICE_TOP_P))) {
        memcpy(f.logits, logits, (size_t)count * sizeof *logits);
        f.starts = f.order ? f.order + count : NULL;
        status = compute(&f, history_count, history, weights);
    }
    tsr__free(f.order);
    tsr__free(f.logits);
    return status;
}

static uint64_t total_of(int64_t count, const uint64_t *weights)
{
    uint64_t total = 0;
    for (int64_t i = 0; i < count; i++)
        total += weights[i];
    return total;
}

tsr_status tsr__sampling_probabilities(const tsr_sampling_params *params, int64_t count,
                                       const float *logits, int64_t history_count,
                                       const int32_t *history, double *probabilities)
{
    struct tsr_choice_words words;
    TSR__TRY(check(params, count, logits, history_count, history));
    TSR__REQUIRE(probabilities, "sampling: probabilities is NULL");
    TSR__TRY(tsr__sampling_choice(params, 0, 0, &words));
    uint64_t *weights = tsr__calloc((size_t)count, sizeof *weights);
    if (!weights)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status =
        find_weights(params, &words, count, logits, 0, history_count, history, weights);
    const double total = (double)total_of(count, weights);
    for (int64_t i = 0; i < count && status == TSR_OK; i++)
        probabilities[i] = (double)weights[i] / total;
    tsr__free(weights);
    return status;
}

/* Returns the first token at which the sum of weights exceeds a part of their total, which is a
 * random number, times 2^64. */
static int32_t draw(const uint64_t *weights, int64_t count, uint64_t random)
{
    const uint64_t place = tsr__mul_high_u64(random, total_of(count, weights));
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += weights[i];
        if (place < sum)
            return (int32_t)i;
    }
    return 0; /* not reached: the most likely token has a weight, and the place is in the total */
}

tsr_status tsr_sampling_draw(const tsr_sampling_params *params, uint64_t number, int64_t position,
                             int64_t count, const float *logits, int64_t history_count,
                             const int32_t *history, int32_t *token)
{
    TSR__REQUIRE(token, "sampling: token is NULL");
    TSR__REQUIRE(position >= 0, "sampling: position is %" PRId64, position);
    TSR__TAKE(tsr_sampling_params, params);
    TSR__TRY(check(params, count, logits, history_count, history));
    /* The most likely token is taken without a draw, so no weights are needed. */
    if (params->temperature == 0 && !tsr__sampling_changes(params)) {
        int64_t best = 0;
        TSR__TRY(check_logits(count, logits, &best));
        *token = (int32_t)best;
        return TSR_OK;
    }
    struct tsr_choice_words words;
    TSR__TRY(tsr__sampling_choice(params, number, position, &words));
    uint64_t *weights = tsr__calloc((size_t)count, sizeof *weights);
    if (!weights)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status =
        find_weights(params, &words, count, logits, 0, history_count, history, weights);
    if (status == TSR_OK)
        *token = draw(weights, count, from_words(words.random));
    tsr__free(weights);
    return status;
}

tsr_status tsr__sampling_change(const tsr_sampling_params *params,
                                const struct tsr_choice_words *words, int64_t first, int64_t count,
                                float *logits, int64_t history_count, const int32_t *history)
{
    TSR__TRY(tsr__sampling_adjust(params, first, count, logits, history_count, history));
    return words->flags & TSR_CHOICE_PENALISED
               ? penalise(words, first, count, logits, history_count, history)
               : TSR_OK;
}

tsr_status tsr__sampling_draw_some(const tsr_sampling_params *params,
                                   const struct tsr_choice_words *words, int64_t count,
                                   const float *logits, uint64_t others, int32_t *index)
{
    /* The logits have been changed already. */
    tsr_sampling_params unchanged = *params;
    struct tsr_choice_words drawn = *words;
    unchanged.bias_count = 0;
    unchanged.presence_penalty = unchanged.frequency_penalty = 0;
    drawn.flags &= ~(uint32_t)TSR_CHOICE_PENALISED;
    uint64_t *weights = tsr__calloc((size_t)count, sizeof *weights);
    if (!weights)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status =
        find_weights(&unchanged, &drawn, count, logits, others, 0, NULL, weights);
    if (status == TSR_OK)
        *index = draw(weights, count, from_words(words->random));
    tsr__free(weights);
    return status;
}

/* Drafts ------------------------------------------------------------------------------------- */

/* Where the numbers for drafts begin in the stream of a sequence: behind those for its tokens. Each
 * position has two, one that draws the draft, and one that accepts it. */
#define DRAFT_ELEMENTS (UINT64_C(1) << 62)

static tsr_status random_at(const tsr_sampling_params *params, uint64_t number, uint64_t element,
                            double *out)
{
    tsr_rng random;
    TSR__TRY(tsr_rng_init(TSR_RNG_PHILOX, params->seed, number, &random));
    random.as.philox.position = element;
    *out = tsr_rng_next_double(&random);
    return TSR_OK;
}

/* Returns the first token at which the sum of probabilities exceeds a part of their total. */
static int32_t pick(const double *probabilities, int64_t count, double total, double random)
{
    double sum = 0;
    int32_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        if (probabilities[i] <= 0)
            continue;
        sum += probabilities[i];
        last = (int32_t)i;
        if (random * total < sum)
            break;
    }
    return last;
}

tsr_status tsr__sampling_draft(const tsr_sampling_params *params, uint64_t number, int64_t position,
                               int64_t count, const float *logits, int64_t history_count,
                               const int32_t *history, double *probabilities, int32_t *token)
{
    double random;
    TSR__TRY(
        tsr__sampling_probabilities(params, count, logits, history_count, history, probabilities));
    TSR__TRY(random_at(params, number, DRAFT_ELEMENTS + 4 * (uint64_t)position, &random));
    *token = pick(probabilities, count, 1, random);
    return TSR_OK;
}

tsr_status tsr__sampling_accept(const tsr_sampling_params *params, uint64_t number,
                                int64_t position, int64_t count, const float *logits,
                                int64_t history_count, const int32_t *history, int32_t draft,
                                const double *drafts, int32_t *token)
{
    double accepts = 0, random = 0, total = 0;
    double *rest = tsr__calloc((size_t)count, sizeof *rest);
    if (!rest)
        return TSR_ERR_NO_MEMORY;
    tsr_status status =
        tsr__sampling_probabilities(params, count, logits, history_count, history, rest);
    if (status == TSR_OK)
        status = random_at(params, number, DRAFT_ELEMENTS + 4 * (uint64_t)position + 2, &accepts);
    if (status == TSR_OK)
        status = random_at(params, number, 2 * (uint64_t)position, &random);
    const bool right = status == TSR_OK && accepts * drafts[draft] < rest[draft];
    for (int64_t i = 0; i < count; i++) {
        rest[i] = rest[i] > drafts[i] ? rest[i] - drafts[i] : 0;
        total += rest[i];
    }
    /* Without a rest, both distributions are the same, except for rounding. */
    if (status == TSR_OK)
        *token = right || total <= 0 ? draft : pick(rest, count, total, random);
    tsr__free(rest);
    return status;
}
