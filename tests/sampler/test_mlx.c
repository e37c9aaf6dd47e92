/* Tests the order mlx. Compares permutations with those of a reimplementation of MLX's
 * argsort(uniform) in the golden file (which was made without MLX itself). Compares everything else
 * with functions of rng.h, or with sums that this file computes. */
#include <math.h>

#include "sampler/chi.h"
#include "sampler/read.h"
#include "support/golden.h"

/* The share of a single rank must be the permutation in the golden file. */
START_TEST(shares_equal_mlx)
{
    json_t *document = golden_load("threefry2x32_kat"), *one;
    size_t i;
    int seen = 0;
    json_array_foreach(golden_list(document, "mlx_cases"), i, one)
    {
        uint64_t seed = golden_u64(one, "seed"), count;
        if (strcmp(golden_text(one, "op"), "argsort_uniform") != 0 || seed > INT64_MAX)
            continue;
        tsr_sampler *sampler = NULL;
        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.n = (uint64_t)golden_integer(one, "n"), .ranks = 1,
                                           .order = TSR_ORDER_MLX, .seed = (int64_t)seed),
            &sampler));
        int64_t *indices = read_all(sampler, &count);
        golden_compare("argsort_uniform", golden_member(one, "out"), indices, count);
        free(indices);
        tsr_sampler_destroy(&sampler);
        seen++;
    }
    ck_assert_int_eq(seen, 27);
    json_decref(document);
}
END_TEST

/* The expected order is that of the key of seed + epoch, repeated as often as is needed. Each of
 * three ranks gets every third item of it. */
START_TEST(distributed_indices_of_the_specification)
{
    enum { N = 100, RANKS = 3, EACH = 34 };
    for (int64_t epoch = -7; epoch < 3; epoch++) {
        int64_t order[N];
        ck_assert_ok(tsr_threefry_argsort_uniform(tsr_threefry_key_from_seed((uint64_t)(7 + epoch)),
                                                  N, order));
        for (int64_t rank = 0; rank < RANKS; rank++) {
            int64_t indices[EACH + 1];
            uint64_t count;
            tsr_sampler *sampler = NULL;
            ck_assert_ok(tsr_sampler_create_distributed(
                tsr_sampler_distributed_params(.n = N, .ranks = RANKS, .rank = rank,
                                               .order = TSR_ORDER_MLX, .seed = 7),
                &sampler));
            ck_assert_ok(tsr_sampler_set_epoch(sampler, epoch));
            ck_assert_ok(tsr_sampler_fill(sampler, EACH + 1, indices, NULL, &count));
            ck_assert_uint_eq(count, EACH);
            for (int i = 0; i < EACH; i++)
                ck_assert_int_eq(indices[i], order[(rank + (int64_t)i * RANKS) % N]);
            tsr_sampler_destroy(&sampler);
        }
    }
}
END_TEST

/* Returns key number `number` of those that mx.random uses after mx.random.seed(seed). */
static tsr_threefry_key key_number(uint64_t seed, int number)
{
    tsr_threefry_key state = tsr_threefry_key_from_seed(seed), key = state;
    for (int i = 0; i <= number; i++)
        key = tsr_threefry_next_key(&state);
    return key;
}

static tsr_sampler *create_random(const tsr_sampler_random_params *params)
{
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_random(params, &sampler));
    return sampler;
}

/* An epoch has two and a half permutations, each with a key of its own. Epochs are read forwards
 * and backwards. */
START_TEST(permutations)
{
    enum { N = 41, SAMPLES = 100, ROUNDS = 3 };
    tsr_sampler *sampler =
        create_random(tsr_sampler_random_params(.n = N, .order = TSR_ORDER_MLX,
                                                .num_samples = SAMPLES, .seed = 42));
    const int epochs[] = {0, 1, 5, 2, 0};
    for (int e = 0; e < 5; e++) {
        int64_t order[N * ROUNDS], indices[SAMPLES];
        uint64_t count;
        for (int round = 0; round < ROUNDS; round++)
            ck_assert_ok(tsr_threefry_argsort_uniform(key_number(42, epochs[e] * ROUNDS + round), N,
                                                      order + round * N));
        ck_assert_ok(tsr_sampler_set_epoch(sampler, epochs[e]));
        ck_assert_ok(tsr_sampler_fill(sampler, SAMPLES, indices, NULL, &count));
        ck_assert_uint_eq(count, SAMPLES);
        ck_assert_mem_eq(indices, order, sizeof indices);
        /* Goes back to a permutation before the one that was computed last. */
        ck_assert_ok(tsr_sampler_seek(sampler, 3));
        ck_assert_ok(tsr_sampler_fill(sampler, 50, indices, NULL, &count));
        ck_assert_mem_eq(indices, order + 3, 50 * sizeof *indices);
    }
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(subsets)
{
    const int64_t of[] = {50, 40, 30, 20, 10};
    int64_t order[5], indices[5];
    uint64_t count;
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_subset(
        tsr_sampler_subset_params(.indices = of, .count = 5, .order = TSR_ORDER_MLX, .seed = 3),
        &sampler));
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 4));
    ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
    ck_assert_ok(tsr_threefry_argsort_uniform(key_number(3, 4), 5, order));
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(indices[i], of[order[i]]);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* MLX draws all samples with one call of randint; so must the sampler. */
START_TEST(replacement)
{
    enum { SAMPLES = 1001, EPOCH = 2 };
    static int64_t indices[SAMPLES];
    static int32_t drawn[SAMPLES];
    const int32_t sizes[] = {1, 7, 1 << 20, INT32_MAX};
    for (int s = 0; s < 4; s++) {
        uint64_t count;
        tsr_sampler *sampler = create_random(
            tsr_sampler_random_params(.n = (uint64_t)sizes[s], .order = TSR_ORDER_MLX,
                                      .replacement = true, .num_samples = SAMPLES, .seed = 5));
        ck_assert_ok(tsr_sampler_set_epoch(sampler, EPOCH));
        ck_assert_ok(tsr_threefry_randint(key_number(5, EPOCH), 0, sizes[s], SAMPLES, drawn));
        ck_assert_ok(tsr_sampler_seek(sampler, 400));
        ck_assert_ok(tsr_sampler_fill(sampler, SAMPLES, indices + 400, NULL, &count));
        ck_assert_uint_eq(count, SAMPLES - 400);
        ck_assert_ok(tsr_sampler_seek(sampler, 0));
        ck_assert_ok(tsr_sampler_fill(sampler, 400, indices, NULL, &count));
        for (int i = 0; i < SAMPLES; i++)
            ck_assert_int_eq(indices[i], drawn[i]);
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

enum { WEIGHTS = 9 };
static const double weights[WEIGHTS] = {0.1, 0.9, 0, 0.4, 7, 1e-9, 3, 0.6, 2};

static tsr_sampler *create_weighted(int64_t samples, bool once)
{
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_weighted(
        tsr_sampler_weighted_params(.weights = weights, .count = WEIGHTS, .num_samples = samples,
                                    .replacement = !once, .order = TSR_ORDER_MLX, .seed = 11),
        &sampler));
    return sampler;
}

/* Fills sums [WEIGHTS, samples] with log(probs) + gumbel(key), computed in doubles with the C
 * library's log, and `noise`, of the same shape, with the uniform numbers from which gumbel(key) is
 * computed. */
static void make_sums(tsr_threefry_key key, uint64_t samples, float *noise, double *sums)
{
    double all = 0;
    for (int w = 0; w < WEIGHTS; w++)
        all += weights[w];
    ck_assert_ok(tsr_threefry_uniform(key, WEIGHTS * samples, noise));
    for (uint64_t i = 0; i < WEIGHTS * samples; i++)
        sums[i] = log(weights[i / samples] / all) - log(-log((double)noise[i]));
}

/* mx.random.categorical takes the largest sum of each column. If rounding could decide between the
 * two largest, either is accepted; this must be rare. */
START_TEST(categorical)
{
    enum { SAMPLES = 20000, EPOCH = 1 };
    static float noise[WEIGHTS * SAMPLES];
    static double sums[WEIGHTS * SAMPLES];
    static int64_t indices[SAMPLES];
    uint64_t count;
    int close = 0;
    tsr_sampler *sampler = create_weighted(SAMPLES, false);
    ck_assert_ok(tsr_sampler_set_epoch(sampler, EPOCH));
    ck_assert_ok(tsr_sampler_fill(sampler, SAMPLES, indices, NULL, &count));
    ck_assert_uint_eq(count, SAMPLES);
    make_sums(key_number(11, EPOCH), SAMPLES, noise, sums);
    for (int s = 0; s < SAMPLES; s++) {
        double best = -INFINITY, next = -INFINITY;
        int64_t of_best = -1;
        for (int w = 0; w < WEIGHTS; w++) {
            double sum = sums[w * SAMPLES + s];
            if (sum > best) {
                next = best;
                best = sum;
                of_best = w;
            } else if (sum > next) {
                next = sum;
            }
        }
        if (best - next < 1e-5)
            close++;
        else
            ck_assert(indices[s] == of_best);
    }
    ck_assert(close < 5);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* Without replacement, the sampler must give the indices of the largest sums of one draw, the
 * largest sum first. */
START_TEST(categorical_without_replacement)
{
    enum { SAMPLES = WEIGHTS - 1, EPOCHS = 300 };
    tsr_sampler *sampler = create_weighted(SAMPLES, true);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        float noise[WEIGHTS];
        double sums[WEIGHTS];
        int64_t indices[WEIGHTS];
        uint64_t count;
        ck_assert_ok(tsr_sampler_set_epoch(sampler, epoch));
        ck_assert_ok(tsr_sampler_fill(sampler, WEIGHTS, indices, NULL, &count));
        ck_assert_uint_eq(count, SAMPLES);
        make_sums(key_number(11, epoch), 1, noise, sums);
        for (int i = 0; i < SAMPLES; i++) {
            ck_assert_int_ne(indices[i], 2);
            if (i > 0)
                ck_assert(sums[indices[i - 1]] > sums[indices[i]] - 1e-5);
        }
    }
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* This check does not depend on the reference values. */
START_TEST(draws_follow_the_weights)
{
    enum { SAMPLES = 200000 };
    static int64_t indices[SAMPLES];
    uint32_t counts[WEIGHTS] = {0};
    uint64_t count;
    double all = 0, statistic = 0;
    for (int w = 0; w < WEIGHTS; w++)
        all += weights[w];
    tsr_sampler *sampler = create_weighted(SAMPLES, false);
    ck_assert_ok(tsr_sampler_fill(sampler, SAMPLES, indices, NULL, &count));
    for (int i = 0; i < SAMPLES; i++)
        counts[indices[i]]++;
    int cells = 0;
    for (int w = 0; w < WEIGHTS; w++) {
        double expected = weights[w] / all * SAMPLES;
        if (expected > 1) {
            statistic += (counts[w] - expected) * (counts[w] - expected) / expected;
            cells++;
        } else {
            ck_assert_uint_eq(counts[w], 0);
        }
    }
    ck_assert_int_eq(cells, 7);
    ck_assert_chance(statistic, cells - 1);
    tsr_sampler_destroy(&sampler);
}
END_TEST

#define ERROR(create, params, status, text)                                                        \
    do {                                                                                           \
        tsr_sampler *sampler_ = NULL;                                                              \
        ck_assert_error(create(params, &sampler_), status, text);                                  \
        ck_assert_ptr_null(sampler_);                                                              \
    } while (0)
#define RANDOM(...) tsr_sampler_random_params(.order = TSR_ORDER_MLX, __VA_ARGS__)
#define DISTRIBUTED(...)                                                                           \
    tsr_sampler_distributed_params(.order = TSR_ORDER_MLX, .ranks = 1, __VA_ARGS__)
#define WEIGHTED(...) tsr_sampler_weighted_params(.order = TSR_ORDER_MLX, __VA_ARGS__)

START_TEST(errors)
{
    const double tiny[] = {1, 1e-60, 1e-70}, huge[] = {3e38, 3e38}, nothing[] = {1e-60, 1e-70};
    ERROR(tsr_sampler_create_random, RANDOM(.n = 3, .seed = -1), TSR_ERR_INVALID,
          "random: seed -1 is negative: MLX needs seeds from 0 on");
    ERROR(tsr_sampler_create_random, RANDOM(.n = UINT64_C(1) << 32), TSR_ERR_INVALID,
          "random: 4294967296 items are more than MLX can shuffle, 4294967295");
    ERROR(tsr_sampler_create_random, RANDOM(.n = UINT64_C(1) << 31, .replacement = true),
          TSR_ERR_INVALID, "random: MLX draws from at most 2147483647 items, not 2147483648");
    ERROR(tsr_sampler_create_random,
          RANDOM(.n = 3, .replacement = true, .num_samples = INT64_C(1) << 32), TSR_ERR_INVALID,
          "random: 4294967296 samples are more than MLX can draw, 4294967295");
    ERROR(tsr_sampler_create_distributed, DISTRIBUTED(.n = 3, .seed = -2), TSR_ERR_INVALID,
          "distributed: seed -2 is negative: MLX needs seeds from 0 on");
    ERROR(tsr_sampler_create_distributed, DISTRIBUTED(.n = UINT64_C(1) << 32), TSR_ERR_INVALID,
          "distributed: 4294967296 items are more than MLX can shuffle, 4294967295");
    ERROR(tsr_sampler_create_weighted, WEIGHTED(.weights = tiny, .count = 3, .num_samples = 2),
          TSR_ERR_INVALID,
          "weighted: 1 shares are above 0 in 32 bits, and 2 samples without replacement are more");
    ERROR(tsr_sampler_create_weighted, WEIGHTED(.weights = huge, .count = 2, .num_samples = 1),
          TSR_ERR_INVALID, "weighted: the sum of the weights, 6e+38, is 0 or infinite in 32 bits");
    ERROR(tsr_sampler_create_weighted, WEIGHTED(.weights = nothing, .count = 2, .num_samples = 1),
          TSR_ERR_INVALID, "weighted: the sum of the weights, 0, is 0 or infinite in 32 bits");
    ERROR(
        tsr_sampler_create_weighted,
        WEIGHTED(.weights = tiny, .count = 3, .num_samples = INT64_C(1) << 31, .replacement = true),
        TSR_ERR_INVALID,
        "weighted: MLX draws a number for each of 3 weights and 2147483648 samples, and at most "
        "4294967295");
    ERROR(
        tsr_sampler_create_weighted,
        WEIGHTED(.weights = tiny, .count = 3, .num_samples = INT64_C(1) << 62, .replacement = true),
        TSR_ERR_INVALID,
        "weighted: MLX draws a number for each of 3 weights and 4611686018427387904 samples, and "
        "at most 4294967295");

    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(DISTRIBUTED(.n = 3, .seed = 5), &sampler));
    ck_assert_error(tsr_sampler_set_epoch(sampler, -6), TSR_ERR_OVERFLOW,
                    "distributed: seed 5 + epoch -6 is negative: MLX needs seeds from 0 on");
    ck_assert_int_eq(tsr_sampler_epoch(sampler), 0);
    ck_assert_ok(tsr_sampler_set_epoch(sampler, INT64_MAX));
    ck_assert_error(tsr_sampler_set_epoch(sampler, INT64_MIN), TSR_ERR_OVERFLOW,
                    "distributed: seed 5 + epoch -9223372036854775808 is negative: MLX needs "
                    "seeds from 0 on");
    tsr_sampler_destroy(&sampler);
}
END_TEST

TESTS(mlx)
{
    tcase_add_test(tests, shares_equal_mlx);
    tcase_add_test(tests, distributed_indices_of_the_specification);
    tcase_add_test(tests, permutations);
    tcase_add_test(tests, subsets);
    tcase_add_test(tests, replacement);
    tcase_add_test(tests, categorical);
    tcase_add_test(tests, categorical_without_replacement);
    tcase_add_test(tests, draws_follow_the_weights);
    tcase_add_test(tests, errors);
}
