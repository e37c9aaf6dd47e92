/* Compares filters of logits with recorded distributions, and tests draws. */
#include <math.h>

#include "model/generate/generator.h"
#include "model/generate/split_draw.h"
#include "support/golden_tensor.h"
#include "tessera/rng.h"

/* A recorded case ----------------------------------------------------------------------------- */

static double real_of(const json_t *object, const char *name)
{
    return json_number_value(golden_member(object, name));
}

static void check_case(const json_t *one)
{
    const char *name = golden_text(one, "name");
    golden_tensor logits = golden_tensor_load(one, "logits"),
                  want = golden_tensor_load(one, "probs");
    const json_t *list = golden_member(one, "history");
    const int64_t history_count = (int64_t)json_array_size(list), count = logits.count;
    int32_t *history = calloc((size_t)history_count + 1, sizeof *history);
    float *values = calloc((size_t)count, sizeof *values);
    double *got = calloc((size_t)count, sizeof *got);
    for (int64_t i = 0; i < history_count; i++)
        history[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)logits.values[i];
    ck_assert_ok(tsr__sampling_probabilities(
        tsr_sampling_params(.repetition_penalty = real_of(one, "repetition_penalty"),
                            .temperature = real_of(one, "temperature"),
                            .top_k = golden_integer(one, "top_k"), .top_p = real_of(one, "top_p"),
                            .min_p = real_of(one, "min_p")),
        count, values, history_count, history, got));
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(fabs(got[i] - want.values[i]) <= 3e-6 * want.values[i] + 1e-12,
                      "%s: the probability of token %d is %.17g, not %.17g", name, (int)i, got[i],
                      want.values[i]);
    free(history);
    free(values);
    free(got);
    golden_tensor_free(&logits);
    golden_tensor_free(&want);
}

START_TEST(filters_are_those_of_transformers)
{
    json_t *document = golden_load("model/sampling_filters"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one) check_case(one);
    ck_assert_uint_eq(i, (size_t)golden_integer(document, "n_cases"));
    json_decref(document);
}
END_TEST

/* Many tokens -------------------------------------------------------------------------------- */

enum { MANY = 5000 };

typedef struct ranked {
    double logit;
    int id;
} ranked;

static int descending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : y->id - x->id;
}

/* Compares the tokens that filters keep with those that follow from a sorted list. The scales make
 * all logits equal, close together, spread out, or far apart; a third of them have only five
 * values. Tokens that are e^27 times less likely than the most likely one have no weight. */
START_TEST(filters_keep_the_same_tokens_as_a_sorted_list)
{
    static const double scales[] = {0, 0.01, 3, 500};
    static const int64_t ks[] = {1, 2, 40, 2500, 4800, MANY - 1};
    static const double ps[] = {1e-9, 0.3, 0.95, 0.9999};
    const double scale = scales[_i];
    float logits[MANY];
    ranked sorted[MANY];
    double got[MANY], sum = 0;
    int count = 0;
    tsr_rng random;
    ck_assert_ok(tsr_rng_init(TSR_RNG_PHILOX, 5, (uint64_t)_i, &random));
    for (int i = 0; i < MANY; i++) {
        const double x = tsr_rng_next_double(&random);
        logits[i] = i % 50 == 0  ? -INFINITY
                    : i % 3 == 0 ? (float)(round(4 * x) * scale)
                                 : (float)(log(x + 1e-12) * scale);
        if (logits[i] != -INFINITY)
            sorted[count++] = (ranked){(double)logits[i], i};
    }
    qsort(sorted, (size_t)count, sizeof *sorted, descending);
    for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
        ck_assert_ok(tsr__sampling_probabilities(
            tsr_sampling_params(.temperature = 1, .top_k = ks[j]), MANY, logits, 0, NULL, got));
        const double limit = sorted[ks[j] < count ? ks[j] - 1 : count - 1].logit;
        for (int i = 0; i < count; i++)
            ck_assert_msg((got[sorted[i].id] > 0) == (sorted[i].logit >= limit) ||
                              sorted[0].logit - sorted[i].logit > 27,
                          "top_k %d: token %d, rank %d", (int)ks[j], sorted[i].id, i);
    }
    for (int i = 0; i < MANY; i++)
        if (logits[i] != -INFINITY)
            sum += exp((double)logits[i] - sorted[0].logit);
    for (size_t j = 0; j < sizeof ps / sizeof *ps; j++) {
        double mass = 0;
        ck_assert_ok(tsr__sampling_probabilities(
            tsr_sampling_params(.temperature = 1, .top_p = ps[j]), MANY, logits, 0, NULL, got));
        for (int i = 0; i < count; i++) {
            ck_assert_msg((got[sorted[i].id] > 0) == (mass < ps[j]), "top_p %g: token %d, rank %d",
                          ps[j], sorted[i].id, i);
            mass += exp(sorted[i].logit - sorted[0].logit) / sum;
        }
    }
}
END_TEST

/* Draws ---------------------------------------------------------------------------------------- */

enum { COUNT = 6 };
static const float some[COUNT] = {0.5f, -INFINITY, 2, 2, -1, 0};

START_TEST(no_temperature_takes_the_first_of_the_most_likely)
{
    int32_t token = -1;
    double probabilities[COUNT];
    ck_assert_ok(tsr_sampling_draw(NULL, 3, 5, COUNT, some, 0, NULL, &token));
    ck_assert_int_eq(token, 2);
    ck_assert_ok(tsr__sampling_probabilities(tsr_sampling_params(.top_k = 3), COUNT, some, 0, NULL,
                                             probabilities));
    for (int i = 0; i < COUNT; i++)
        ck_assert_equal(probabilities[i], i == 2 ? 1 : 0);
    /* The penalty still applies. */
    ck_assert_ok(tsr_sampling_draw(tsr_sampling_params(.repetition_penalty = 2), 3, 5, COUNT, some,
                                   1, (int32_t[]){2}, &token));
    ck_assert_int_eq(token, 3);
}
END_TEST

/* Biases are added first; only generated tokens have the other penalties. */
START_TEST(logits_are_adjusted)
{
    static const tsr_logit_bias biases[] = {{0, 3}, {5, 1.25f}};
    static const int32_t history[] = {2, 2, 3, 0, 0, 0};
    const double logits[COUNT] = {0.5 + 3 - (0.5 + 3 * 0.25), -INFINITY, 2,
                                  2 - (0.5 + 0.25),           -1,        0 + 1.25};
    double got[COUNT], sum = 0;
    int32_t token;
    for (int i = 0; i < COUNT; i++)
        sum += exp(logits[i]);
    const tsr_sampling_params params = {.struct_size = sizeof params,
                                        .biases = biases,
                                        .bias_count = 2,
                                        .presence_penalty = 0.5,
                                        .frequency_penalty = 0.25,
                                        .prompt_count = 2,
                                        .temperature = 1};
    ck_assert_ok(tsr__sampling_probabilities(&params, COUNT, some, 6, history, got));
    for (int i = 0; i < COUNT; i++)
        ck_assert_msg(fabs(got[i] - exp(logits[i]) / sum) <= 1e-6, "token %d has %.9g, not %.9g", i,
                      got[i], exp(logits[i]) / sum);
    ck_assert_ok(tsr_sampling_draw(tsr_sampling_params(.biases = biases, .bias_count = 1), 0, 0,
                                   COUNT, some, 0, NULL, &token));
    ck_assert_int_eq(token, 0);
    ck_assert_ok(tsr_sampling_draw(tsr_sampling_params(.presence_penalty = 2), 0, 3, COUNT, some, 3,
                                   history, &token));
    ck_assert_int_eq(token, 0);
}
END_TEST

START_TEST(draws_are_numbers_of_philox)
{
    const tsr_sampling_params params = {
        .struct_size = sizeof params, .temperature = 1.5, .seed = 77};
    double probabilities[COUNT];
    ck_assert_ok(tsr__sampling_probabilities(&params, COUNT, some, 0, NULL, probabilities));
    for (int64_t position = 0; position < 200; position++) {
        tsr_rng random;
        int32_t token = -1, want = 0;
        ck_assert_ok(tsr_rng_init(TSR_RNG_PHILOX, 77, 9, &random));
        for (int64_t i = 0; i < position; i++)
            (void)tsr_rng_next_double(&random);
        double at = tsr_rng_next_double(&random);
        while (at >= probabilities[want])
            at -= probabilities[want++];
        ck_assert_ok(tsr_sampling_draw(&params, 9, position, COUNT, some, 0, NULL, &token));
        ck_assert_int_eq(token, want);
    }
}
END_TEST

/* Returns chi² of counts[COUNT] of draws with these probabilities. */
static double chi_of(const int *counts, const double *probabilities, int draws)
{
    double chi = 0;
    for (int i = 0; i < COUNT; i++) {
        const double expected = probabilities[i] * draws;
        if (expected == 0)
            ck_assert_int_eq(counts[i], 0);
        else
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return chi;
}

START_TEST(draws_have_the_probabilities)
{
    const tsr_sampling_params params = {.struct_size = sizeof params, .temperature = 1, .seed = 4};
    double probabilities[COUNT];
    int counts[COUNT] = {0};
    const int draws = 20000;
    ck_assert_ok(tsr__sampling_probabilities(&params, COUNT, some, 0, NULL, probabilities));
    for (int i = 0; i < draws; i++) {
        int32_t token = -1;
        ck_assert_ok(tsr_sampling_draw(&params, (uint64_t)i, 3, COUNT, some, 0, NULL, &token));
        counts[token]++;
    }
    const double chi = chi_of(counts, probabilities, draws);
    ck_assert_msg(chi < 23.5, "chi² of 4 degrees of freedom is %g", chi); /* p = 1e-4 */
}
END_TEST

/* Several ranks ------------------------------------------------------------------------------- */

enum { SPLIT_MOST_RANKS = 5, SPLIT_VOCABULARY = 1200 };

typedef struct split_case {
    int ranks;
    int64_t parts[SPLIT_MOST_RANKS];
    float logits[SPLIT_VOCABULARY];
    tsr__candidate candidates[SPLIT_MOST_RANKS * TSR__SPLIT_MOST];
    uint64_t sums[SPLIT_MOST_RANKS];
} split_case;

static int by_logit(const void *a, const void *b)
{
    const tsr__candidate *first = a, *second = b;
    if (first->logit != second->logit)
        return first->logit > second->logit ? -1 : 1;
    return (first->token > second->token) - (first->token < second->token);
}

/* Divides the vocabulary, and finds each rank's largest logits. */
static void split_divide(split_case *c, int64_t most)
{
    int64_t first = 0;
    for (int r = 0; r < c->ranks; r++) {
        tsr__candidate all[SPLIT_VOCABULARY], list[TSR__SPLIT_MOST];
        c->parts[r] =
            r + 1 < c->ranks ? SPLIT_VOCABULARY / c->ranks - 7 * r : SPLIT_VOCABULARY - first;
        for (int64_t i = 0; i < c->parts[r]; i++)
            all[i] = (tsr__candidate){c->logits[first + i], (int32_t)(first + i)};
        qsort(all, (size_t)c->parts[r], sizeof *all, by_logit);
        memcpy(c->candidates + r * most, all, (size_t)most * sizeof *all);
        tsr__split_list(c->parts[r], c->logits + first, (int32_t)first, most, list);
        for (int64_t i = 0; i < most && all[0].logit < INFINITY; i++)
            ck_assert(list[i].logit == all[i].logit &&
                      (list[i].logit == -INFINITY || list[i].token == all[i].token));
        first += c->parts[r];
    }
}

/* Changes the logits as each rank does with its own ones. */
static void split_change(split_case *c, const tsr_sampling_params *params,
                         const struct tsr_choice_words *words, int64_t history_count,
                         const int32_t *history)
{
    int64_t first = 0;
    for (int r = 0; r < c->ranks; first += c->parts[r++])
        ck_assert_ok(tsr__sampling_change(params, words, first, c->parts[r], c->logits + first,
                                          history_count, history));
}

/* Draws as the ranks do. Returns -1 if all logits are needed. */
static int32_t split_draw_after(split_case *c, const tsr_sampling_params *params, uint64_t number,
                                int64_t history_count, const int32_t *history)
{
    tsr__split_row row = {.params = params, .ranks = c->ranks, .parts = c->parts};
    int64_t first = 0;
    int32_t token = -1;
    row.kind = tsr__split_kind_of(params, &row.most);
    if (row.kind == TSR__SPLIT_GATHER)
        return -1;
    ck_assert_ok(tsr__sampling_choice(params, number, 3, &row.words));
    split_divide(c, row.most);
    if (tsr__sampling_changes(params)) {
        split_change(c, params, &row.words, history_count, history);
        split_divide(c, row.most);
    }
    row.candidates = c->candidates;
    row.stride = row.most;
    if (!tsr__split_suffices(&row))
        return -1;
    for (int r = 0; r < c->ranks; first += c->parts[r++])
        c->sums[r] = tsr__split_sum(&row, c->parts[r], c->logits + first);
    row.sums = c->sums;
    row.sums_stride = 1;
    if (row.kind != TSR__SPLIT_SUMS) {
        ck_assert_ok(tsr__split_choose(&row, &token));
        return token;
    }
    int rank;
    uint64_t place;
    tsr__split_find_rank(&row, &rank, &place);
    first = 0;
    for (int r = 0; r < rank; r++)
        first += c->parts[r];
    return (int32_t)first + tsr__split_find_token(&row, c->parts[rank], c->logits + first, place);
}

static int32_t split_draw(split_case *c, const tsr_sampling_params *params, uint64_t number)
{
    return split_draw_after(c, params, number, 0, NULL);
}

/* Logits of which some are far above the others; with few different values, so that many are equal,
 * if `steps` is not 0. */
static void split_logits(split_case *c, uint64_t seed, float spread, float steps)
{
    tsr_rng random;
    ck_assert_ok(tsr_rng_init(TSR_RNG_PHILOX, 77, seed, &random));
    for (int i = 0; i < SPLIT_VOCABULARY; i++) {
        const float uniform = (float)tsr_rng_next_double(&random);
        const float logit = spread * uniform * uniform * uniform * uniform;
        c->logits[i] = steps > 0 ? floorf(logit * steps) / steps : logit;
        if (i % 97 == 0)
            c->logits[i] = -INFINITY;
    }
}

START_TEST(ranks_draw_the_tokens_of_one)
{
    static const struct {
        tsr_sampling_params params;
        float spread, steps;
        int least; /* how many of 1000 draws need not all logits, at least */
        int most;
    } cases[] = {
        {{.temperature = 0}, 30, 0, 1000, 1000},
        {{.temperature = 0}, 9, 0.5f, 1000, 1000},
        {{.temperature = 1}, 9, 0, 1000, 1000},
        {{.temperature = 1.5, .min_p = 0.05}, 9, 2, 1000, 1000},
        {{.temperature = 1, .top_p = 0.9}, 30, 0, 900, 1000},
        {{.temperature = 1, .top_p = 0.9}, 6, 0, 0, 700}, /* many tokens are likely */
        {{.temperature = 0.8, .top_p = 0.8, .min_p = 0.02}, 25, 4, 500, 1000},
        {{.temperature = 1, .top_k = 40}, 12, 0, 1000, 1000},
        {{.temperature = 1, .top_k = 40}, 12, 0.25f, 0, 800}, /* many are equal to the last one */
        {{.temperature = 2, .top_k = 20, .top_p = 0.7, .min_p = 0.01}, 20, 0, 1000, 1000},
    };
    static split_case c;
    int draws = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_sampling_params params = cases[i].params;
        int without = 0;
        params.struct_size = sizeof params;
        params.seed = 5 + i;
        for (uint64_t n = 0; n < 1000; n++, draws++) {
            int32_t want = -1;
            c.ranks = 2 + (int)(n % (SPLIT_MOST_RANKS - 1));
            if (n % 20 == 0)
                split_logits(&c, 1000 * i + n, cases[i].spread, cases[i].steps);
            const int32_t got = split_draw(&c, &params, n);
            ck_assert_ok(
                tsr_sampling_draw(&params, n, 3, SPLIT_VOCABULARY, c.logits, 0, NULL, &want));
            ck_assert_msg(got == want || got == -1, "case %d, draw %d: token %d, not %d", (int)i,
                          (int)n, got, want);
            without += got >= 0;
        }
        ck_assert_msg(without >= cases[i].least && without <= cases[i].most,
                      "case %d: %d draws without all logits", (int)i, without);
    }
    ck_assert_int_eq(draws, 10000);
}
END_TEST

/* Each rank changes the logits of its own tokens by biases and penalties. */
START_TEST(ranks_change_their_logits)
{
    static const tsr_logit_bias biases[] = {{7, 3}, {500, -2.5f}, {SPLIT_VOCABULARY - 1, 6}};
    static const tsr_sampling_params cases[] = {
        {.temperature = 0, .repetition_penalty = 1.3},
        {.temperature = 1,
         .top_k = 40,
         .repetition_penalty = 1.2,
         .biases = biases,
         .bias_count = 3},
        {.temperature = 1, .top_p = 0.9, .repetition_penalty = 0.8},
        {.temperature = 1.5,
         .min_p = 0.05,
         .presence_penalty = 1,
         .frequency_penalty = 0.25,
         .prompt_count = 20},
    };
    static split_case c, kept;
    int without = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_sampling_params params = cases[i];
        params.struct_size = sizeof params;
        params.seed = 5 + i;
        for (uint64_t n = 0; n < 500; n++) {
            int32_t want = -1, history[60];
            c.ranks = 2 + (int)(n % (SPLIT_MOST_RANKS - 1));
            if (n % 20 == 0)
                split_logits(&kept, 1000 * i + n, 20, 0);
            for (int k = 0; k < 60; k++) /* some twice, and the most likely ones among them */
                history[k] = (int32_t)((n * 31 + (uint64_t)(k / 2) * 37) % SPLIT_VOCABULARY);
            memcpy(c.logits, kept.logits, sizeof c.logits);
            const int32_t got = split_draw_after(&c, &params, n, 60, history);
            ck_assert_ok(tsr_sampling_draw(&params, n, 3, SPLIT_VOCABULARY, kept.logits, 60,
                                           history, &want));
            ck_assert_msg(got == want || got == -1, "case %d, draw %d: token %d, not %d", (int)i,
                          (int)n, got, want);
            without += got >= 0;
        }
    }
    ck_assert_msg(without > 1800, "%d draws without all logits", without);
}
END_TEST

START_TEST(ranks_gather_what_they_cannot_draw)
{
    static split_case c;
    int64_t most;
    c.ranks = 3;
    split_logits(&c, 1, 9, 0);
    const tsr_sampling_params *plain = tsr_sampling_params(.temperature = 1);
    ck_assert_int_ge(split_draw(&c, plain, 0), 0);
    ck_assert_int_eq(tsr__split_kind_of(tsr_sampling_params(.temperature = 1, .top_k = 65), &most),
                     TSR__SPLIT_GATHER);
    ck_assert_int_eq(
        tsr__split_kind_of(tsr_sampling_params(.temperature = 1, .top_k = INT64_MAX), &most),
        TSR__SPLIT_GATHER);
    c.logits[SPLIT_VOCABULARY - 1] = INFINITY;
    ck_assert_int_eq(split_draw(&c, plain, 0), -1);
    for (int i = 0; i < SPLIT_VOCABULARY; i++)
        c.logits[i] = -INFINITY;
    ck_assert_int_eq(split_draw(&c, plain, 0), -1);
    ck_assert_int_eq(split_draw(&c, tsr_sampling_params(.temperature = 0), 0), -1);
}
END_TEST

/* Drafts are drawn from other logits, and accepted or replaced. */
START_TEST(accepted_drafts_have_the_probabilities)
{
    static const float other[3][COUNT] = {
        {0, 0, 0, 0, 0, 0}, {3, -1, 0.5F, -INFINITY, 1, 2}, {-2, 4, -INFINITY, 0, -1, 3}};
    const tsr_sampling_params all[2] = {
        {.struct_size = sizeof *all, .temperature = 1, .seed = 4},
        {.struct_size = sizeof *all, .temperature = 0.7, .top_p = 0.9, .seed = 8}};
    const tsr_sampling_params *params = &all[_i / 3];
    const int draws = 20000;
    double probabilities[COUNT], drafts[COUNT], accepted = 0, same = 0;
    int counts[COUNT] = {0}, drafted[COUNT] = {0};
    ck_assert_ok(tsr__sampling_probabilities(params, COUNT, some, 0, NULL, probabilities));
    for (int i = 0; i < draws; i++) {
        int32_t draft = -1, token = -1;
        ck_assert_ok(tsr__sampling_draft(params, (uint64_t)i, 3, COUNT, other[_i % 3], 0, NULL,
                                         drafts, &draft));
        ck_assert_ok(tsr__sampling_accept(params, (uint64_t)i, 3, COUNT, some, 0, NULL, draft,
                                          drafts, &token));
        drafted[draft]++;
        counts[token]++;
        accepted += token == draft;
    }
    for (int i = 0; i < COUNT; i++)
        same += probabilities[i] < drafts[i] ? probabilities[i] : drafts[i];
    const double chi = chi_of(counts, probabilities, draws),
                 of_drafts = chi_of(drafted, drafts, draws);
    ck_assert_msg(chi < 25.7 && of_drafts < 25.7, /* p = 1e-4 */
                  "chi² of 5 degrees of freedom is %g, and that of drafts %g", chi, of_drafts);
    /* as many as any method can accept; within 4 standard deviations */
    ck_assert_double_eq_tol(accepted / draws, same, 4 * sqrt(0.25 / draws));
}
END_TEST

START_TEST(same_drafts_are_accepted)
{
    const tsr_sampling_params *params = tsr_sampling_params(.temperature = 1.3, .seed = 2);
    double drafts[COUNT];
    for (uint64_t i = 0; i < 200; i++) {
        int32_t draft = -1, token = -2;
        ck_assert_ok(tsr__sampling_draft(params, i, 5, COUNT, some, 0, NULL, drafts, &draft));
        ck_assert_ok(
            tsr__sampling_accept(params, i, 5, COUNT, some, 0, NULL, draft, drafts, &token));
        ck_assert_int_eq(token, draft);
    }
}
END_TEST

/* Errors --------------------------------------------------------------------------------------- */

START_TEST(wrong_params_are_named)
{
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.temperature = -1)), TSR_ERR_INVALID,
                    "sampling: temperature is -1; it must not be negative");
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.temperature = INFINITY)),
                    TSR_ERR_INVALID, "sampling: temperature is inf; it must not be negative");
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.top_k = -2)), TSR_ERR_INVALID,
                    "sampling: top_k is -2; it must not be negative");
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.top_p = 1.5)), TSR_ERR_INVALID,
                    "sampling: top_p is 1.5; 0 to 1 is possible");
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.min_p = -0.5)), TSR_ERR_INVALID,
                    "sampling: min_p is -0.5; 0 to 1 is possible");
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.repetition_penalty = -3)),
                    TSR_ERR_INVALID,
                    "sampling: repetition_penalty is -3; a positive number is needed");
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.presence_penalty = NAN)),
                    TSR_ERR_INVALID,
                    "sampling: presence_penalty is nan, frequency_penalty 0; both must be finite");
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.prompt_count = -1)), TSR_ERR_INVALID,
                    "sampling: prompt_count is -1");
    ck_assert_error(tsr__sampling_check(tsr_sampling_params(.bias_count = 1)), TSR_ERR_INVALID,
                    "sampling: bias_count is 1, and biases is NULL");
    ck_assert_error(
        tsr__sampling_check(tsr_sampling_params(.bias_count = 1,
                                                .biases = (const tsr_logit_bias[]){{3, INFINITY}})),
        TSR_ERR_INVALID,
        "sampling: bias 0 is inf for token 3; a finite number and a token are needed");
    int32_t token;
    ck_assert_error(
        tsr_sampling_draw(
            tsr_sampling_params(.bias_count = 1, .biases = (const tsr_logit_bias[]){{6, 1}}), 0, 0,
            COUNT, some, 0, NULL, &token),
        TSR_ERR_INVALID, "sampling: bias 0 is for token 6; there are 0 to 5");
}
END_TEST

START_TEST(wrong_logits_are_named)
{
    int32_t token = 17;
    const float nan[3] = {1, NAN, 2}, infinite[3] = {1, 2, INFINITY},
                none[2] = {-INFINITY, -INFINITY};
    ck_assert_error(tsr_sampling_draw(NULL, 0, 0, 3, nan, 0, NULL, &token), TSR_ERR_INVALID,
                    "sampling: the logit of token 1 is NaN");
    ck_assert_error(tsr_sampling_draw(NULL, 0, 0, 3, infinite, 0, NULL, &token), TSR_ERR_INVALID,
                    "sampling: the logit of token 2 is infinite");
    ck_assert_error(tsr_sampling_draw(NULL, 0, 0, 2, none, 0, NULL, &token), TSR_ERR_INVALID,
                    "sampling: all of 2 logits are -inf");
    ck_assert_error(tsr_sampling_draw(NULL, 0, -1, 2, some, 0, NULL, &token), TSR_ERR_INVALID,
                    "sampling: position is -1");
    ck_assert_error(tsr_sampling_draw(NULL, 0, 0, 0, some, 0, NULL, &token), TSR_ERR_INVALID,
                    "sampling: count is 0, history_count 0");
    ck_assert_error(tsr_sampling_draw(NULL, 0, 0, 2, some, 3, NULL, &token), TSR_ERR_INVALID,
                    "sampling: history is NULL");
    ck_assert_error(tsr_sampling_draw(NULL, 0, 0, 2, NULL, 0, NULL, &token), TSR_ERR_INVALID,
                    "sampling: logits is NULL");
    ck_assert_int_eq(token, 17);
    ck_assert_str_eq(tsr_finish_name(TSR_FINISH_MAX_TOKENS), "max_tokens");
    ck_assert_str_eq(tsr_finish_name((tsr_finish)9), "?");
}
END_TEST

TESTS(sampling)
{
    tcase_add_test(tests, filters_are_those_of_transformers);
    tcase_add_loop_test(tests, filters_keep_the_same_tokens_as_a_sorted_list, 0, 4);
    tcase_add_test(tests, no_temperature_takes_the_first_of_the_most_likely);
    tcase_add_test(tests, logits_are_adjusted);
    tcase_add_test(tests, draws_are_numbers_of_philox);
    tcase_add_test(tests, draws_have_the_probabilities);
    tcase_add_test(tests, ranks_draw_the_tokens_of_one);
    tcase_add_test(tests, ranks_change_their_logits);
    tcase_add_test(tests, ranks_gather_what_they_cannot_draw);
    tcase_add_loop_test(tests, accepted_drafts_have_the_probabilities, 0, 6);
    tcase_add_test(tests, same_drafts_are_accepted);
    tcase_add_test(tests, wrong_params_are_named);
    tcase_add_test(tests, wrong_logits_are_named);
}
