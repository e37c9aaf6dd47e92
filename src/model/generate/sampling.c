/* Choosing a token from logits, in double precision on the host. The filters and their order are
 * those of Hugging Face Transformers. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/given.h"
#include "base/struct_size.h"
#include "model/generate/generator.h"
#include "tessera/rng.h"

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
    return TSR_OK;
}

const char *tsr_finish_name(tsr_finish finish)
{
    static const char *const names[] = {"none", "token", "max_tokens", "context", "interrupt"};
    return (unsigned)finish < sizeof names / sizeof *names ? names[finish] : "?";
}

/* Buckets that divide tokens by how far their logits are below the largest, so that only tokens of
 * a few buckets need to be put in order. The last bucket has all tokens that are too far below for
 * the others. */
#define BUCKETS 4096
#define BUCKETS_PER_UNIT 256

/* The logits while they are filtered. A logit of −inf means that the token has been removed. */
typedef struct filter {
    int64_t count;
    double *logits; /* [count]: the caller's `probabilities` */
    /* The tokens that have not been removed, those of bucket b in order[starts[b] … starts[b + 1] −
     * 1]. */
    int32_t *order;
    int32_t *starts;
    int32_t *heap; /* a part of `order` as a heap, the most likely token first */
    int32_t left;  /* tokens in the heap */
} filter;

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

static tsr_status take_logits(filter *f, const float *logits)
{
    int64_t best;
    TSR__TRY(check_logits(f->count, logits, &best));
    for (int64_t i = 0; i < f->count; i++)
        f->logits[i] = (double)logits[i];
    return TSR_OK;
}

static bool penalises(const tsr_sampling_params *params)
{
    return params->repetition_penalty != 0 && params->repetition_penalty != 1;
}

static tsr_status penalise(filter *f, double penalty, int64_t count, const int32_t *history)
{
    uint8_t *seen = tsr__calloc((size_t)f->count, 1);
    if (!seen)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        const int32_t id = history[i];
        if (id < 0 || id >= f->count || seen[id])
            continue;
        seen[id] = 1;
        f->logits[id] = f->logits[id] < 0 ? f->logits[id] * penalty : f->logits[id] / penalty;
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

/* Returns the bucket of a logit. Of two logits, the larger one is in the same bucket or an earlier
 * one, because every step here is monotonic. */
static int bucket_of(double logit, double largest)
{
    const double place = (largest - logit) * BUCKETS_PER_UNIT;
    return place < BUCKETS - 1 ? (int)place : BUCKETS - 1;
}

/* Divides the tokens into buckets. */
static void fill_buckets(filter *f, double largest)
{
    int32_t next[BUCKETS] = {0}, all = 0;
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] != -INFINITY)
            next[bucket_of(f->logits[i], largest)]++;
    for (int b = 0; b < BUCKETS; b++) {
        const int32_t size = next[b];
        f->starts[b] = next[b] = all;
        all += size;
    }
    f->starts[BUCKETS] = all;
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] != -INFINITY)
            f->order[next[bucket_of(f->logits[i], largest)]++] = (int32_t)i;
}

static void remove_below(filter *f, double limit)
{
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] < limit)
            f->logits[i] = -INFINITY;
}

static void keep_top_k(filter *f, int64_t k)
{
    if (k == 0 || k >= f->count)
        return;
    fill_buckets(f, f->logits[most_likely(f)]);
    if (k >= f->starts[BUCKETS])
        return;
    int bucket = 0;
    while (f->starts[bucket + 1] < k)
        bucket++;
    double limit = -INFINITY;
    make_heap(f, bucket);
    for (int64_t i = f->starts[bucket]; i < k; i++)
        limit = f->logits[pop(f)];
    remove_below(f, limit);
}

/* Returns the sum over all logits of exp(logit − largest). */
static double exponentials(const filter *f, double largest)
{
    double sum = 0;
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] != -INFINITY)
            sum += exp(f->logits[i] - largest);
    return sum;
}

static void keep_top_p(filter *f, double given)
{
    const double wanted = tsr__given_double(given, 1);
    if (wanted == 1)
        return;
    const double p = fmax(wanted, DBL_MIN); /* the most likely token always remains */
    const double largest = f->logits[most_likely(f)], sum = exponentials(f, largest);
    double mass = 0;
    int bucket = 0;
    fill_buckets(f, largest);
    for (; bucket < BUCKETS && mass < p; bucket++) {
        make_heap(f, bucket);
        while (f->left > 0 && mass < p)
            mass += exp(f->logits[pop(f)] - largest) / sum;
        for (int32_t i = 0; i < f->left; i++)
            f->logits[f->heap[i]] = -INFINITY;
    }
    for (int32_t i = f->starts[bucket]; i < f->starts[BUCKETS]; i++)
        f->logits[f->order[i]] = -INFINITY;
}

static void keep_min_p(filter *f, double p)
{
    if (p == 0)
        return;
    const double largest = f->logits[most_likely(f)];
    for (int64_t i = 0; i < f->count; i++)
        if (f->logits[i] != -INFINITY && exp(f->logits[i] - largest) < p)
            f->logits[i] = -INFINITY;
}

static tsr_status compute(filter *f, const tsr_sampling_params *params, const float *logits,
                          int64_t history_count, const int32_t *history)
{
    TSR__TRY(take_logits(f, logits));
    if (penalises(params))
        TSR__TRY(penalise(f, params->repetition_penalty, history_count, history));
    if (params->temperature == 0) {
        const int64_t best = most_likely(f);
        memset(f->logits, 0, (size_t)f->count * sizeof *f->logits);
        f->logits[best] = 1;
        return TSR_OK;
    }
    /* Divides the differences to the largest logit, because quotients of logits by a tiny
     * temperature would overflow. */
    const double top = f->logits[most_likely(f)];
    for (int64_t i = 0; i < f->count; i++)
        f->logits[i] = (f->logits[i] - top) / params->temperature;
    keep_top_k(f, params->top_k);
    keep_top_p(f, params->top_p);
    keep_min_p(f, params->min_p);
    const double largest = f->logits[most_likely(f)], sum = exponentials(f, largest);
    for (int64_t i = 0; i < f->count; i++)
        f->logits[i] = f->logits[i] != -INFINITY ? exp(f->logits[i] - largest) / sum : 0;
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

/* Computes the probabilities from arguments that have been checked. */
static tsr_status find_probabilities(const tsr_sampling_params *params, int64_t count,
                                     const float *logits, int64_t history_count,
                                     const int32_t *history, double *probabilities)
{
    filter f = {.count = count, .logits = probabilities};
    if (params->top_k > 0 || tsr__given_double(params->top_p, 1) != 1) {
        f.order = tsr__calloc((size_t)count + BUCKETS + 1, sizeof *f.order);
        if (!f.order)
            return TSR_ERR_NO_MEMORY;
        f.starts = f.order + count;
    }
    const tsr_status status = compute(&f, params, logits, history_count, history);
    tsr__free(f.order);
    return status;
}

tsr_status tsr__sampling_probabilities(const tsr_sampling_params *params, int64_t count,
                                       const float *logits, int64_t history_count,
                                       const int32_t *history, double *probabilities)
{
    TSR__TRY(check(params, count, logits, history_count, history));
    TSR__REQUIRE(probabilities, "sampling: probabilities is NULL");
    return find_probabilities(params, count, logits, history_count, history, probabilities);
}

/* Returns the first token at which the sum of probabilities exceeds `at`, a random number. */
static int32_t draw(const double *probabilities, int64_t count, double at)
{
    int32_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        if (probabilities[i] == 0)
            continue;
        last = (int32_t)i;
        if (at < probabilities[i])
            return last;
        at -= probabilities[i];
    }
    return last;
}

tsr_status tsr_sampling_draw(const tsr_sampling_params *params, uint64_t number, int64_t position,
                             int64_t count, const float *logits, int64_t history_count,
                             const int32_t *history, int32_t *token)
{
    TSR__REQUIRE(token, "sampling: token is NULL");
    TSR__REQUIRE(position >= 0, "sampling: position is %" PRId64, position);
    TSR__TAKE(tsr_sampling_params, params);
    TSR__TRY(check(params, count, logits, history_count, history));
    /* The most likely token is taken without a draw, so no probabilities are needed. */
    if (params->temperature == 0 && !penalises(params)) {
        int64_t best = 0;
        TSR__TRY(check_logits(count, logits, &best));
        *token = (int32_t)best;
        return TSR_OK;
    }
    double *probabilities = tsr__calloc((size_t)count, sizeof *probabilities);
    if (!probabilities)
        return TSR_ERR_NO_MEMORY;
    tsr_status status =
        find_probabilities(params, count, logits, history_count, history, probabilities);
    tsr_rng random;
    if (status == TSR_OK)
        status = tsr_rng_init(TSR_RNG_PHILOX, params->seed, number, &random);
    if (status == TSR_OK) {
        random.as.philox.position = 2 * (uint64_t)position;
        *token = draw(probabilities, count, tsr_rng_next_double(&random));
    }
    tsr__free(probabilities);
    return status;
}
