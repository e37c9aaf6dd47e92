/* Tests that weighted samplers, and random samplers with replacement, give each index with the
 * right frequency. test_golden.c compares them with PyTorch. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sampler/chi.h"
#include "sampler/read.h"
#include "sampler/weights/weighted_draws.h"
#include "support/golden.h"
#include "support/random.h"

static double total(const double *weights, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += weights[i];
    return sum;
}

/* Adds up the parts of the alias table that lead to each index, and compares the sums with the
 * weights. This checks the method without drawing. */
static void check_table(const double *weights, uint64_t count)
{
    tsr__alias alias;
    double largest = 0, *gets = calloc(count, sizeof *gets);
    for (uint64_t i = 0; i < count; i++)
        largest = weights[i] > largest ? weights[i] : largest;
    ck_assert_ok(
        tsr__alias_init(&(tsr__weights){.wide = weights, .count = count}, largest, &alias));
    for (uint64_t i = 0; i < count; i++) {
        double own = (double)alias.own[i].below / 18446744073709551616.0;
        gets[i] += own;
        gets[alias.other[i]] += 1 - own;
        /* An index of weight 0 is not drawn, even by a draw at the edge of a column. */
        ck_assert(weights[alias.other[i]] > 0);
        ck_assert(weights[i] > 0 || alias.own[i].below == 0);
    }
    double scale = total(weights, count) / (double)count;
    for (uint64_t i = 0; i < count; i++)
        if (fabs(gets[i] - weights[i] / scale) > 1e-9 * (1 + weights[i] / scale))
            ck_abort_msg("%" PRIu64 " weights: index %" PRIu64 " gets %.17g, not %.17g", count, i,
                         gets[i], weights[i] / scale);
    tsr__alias_finish(&alias);
    free(gets);
}

START_TEST(tables_hold_the_weights)
{
    static double weights[5000];
    uint64_t random = 1;
    for (int round = 0; round < 400; round++) {
        uint64_t count = 1 + random_next(&random) % (round < 200 ? 20 : 5000);
        for (uint64_t i = 0; i < count; i++) {
            double u = (double)(random_next(&random) >> 11) / 9007199254740992.0;
            switch (round % 8) {
            case 0: /* all equal */
                weights[i] = 1;
                break;
            case 1: /* uniform */
                weights[i] = u;
                break;
            case 2: /* few weights above 0 */
                weights[i] = u < 0.9 ? 0 : u;
                break;
            case 3: /* one weight is nearly the total */
                weights[i] = i == count / 2 ? 1e6 : u;
                break;
            case 4: /* a distribution with a long tail */
                weights[i] = exp(20 * u);
                break;
            case 5: /* large weights come last */
                weights[i] = i < count - count / 3 ? 0.01 : 5;
                break;
            case 6: /* large weights come first */
                weights[i] = i < count / 3 ? 5 : 0;
                break;
            default: /* small integers, so that some weights equal the mean */
                weights[i] = (double)(random_next(&random) % 3);
                break;
            }
        }
        if (total(weights, count) == 0)
            weights[count - 1] = 3;
        check_table(weights, count);
    }
}
END_TEST

static tsr_sampler *create(const tsr_sampler_weighted_params *params)
{
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_weighted(params, &sampler));
    return sampler;
}

/* Checks that each index is drawn in proportion to its weight, over two epochs. */
static void check_draws(const double *weights, uint64_t count, tsr_order order)
{
    enum { DRAWS = 400000 };
    static int64_t indices[DRAWS];
    static uint32_t counts[1000];
    double statistic = 0, sum = 0, largest = 0;
    uint64_t got, above = 0;
    for (uint64_t i = 0; i < count; i++)
        largest = weights[i] > largest ? weights[i] : largest;
    for (uint64_t i = 0; i < count; i++)
        sum += weights[i] / largest;
    memset(counts, 0, sizeof counts);
    tsr_sampler *sampler =
        create(tsr_sampler_weighted_params(.weights = weights, .count = count, .num_samples = DRAWS,
                                           .order = order, .seed = 5, .replacement = true));
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        ck_assert_ok(tsr_sampler_set_epoch(sampler, epoch));
        ck_assert_ok(tsr_sampler_fill(sampler, DRAWS, indices, NULL, &got));
        ck_assert_uint_eq(got, DRAWS);
        for (int i = 0; i < DRAWS; i++)
            counts[indices[i]]++;
    }
    for (uint64_t i = 0; i < count; i++) {
        double expected = 2 * DRAWS * (weights[i] / largest) / sum;
        if (weights[i] > 0) {
            statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
            above++;
        } else {
            ck_assert_uint_eq(counts[i], 0);
        }
    }
    ck_assert_chance(statistic, (double)above - 1);
    tsr_sampler_destroy(&sampler);
}

START_TEST(draws_follow_the_weights)
{
    static double weights[1000];
    const double few[] = {0.1, 0.9, 0.4, 0.7, 3.0, 0.6}, sparse[] = {0, 0, 5, 0, 1, 0, 2};
    const tsr_order orders[] = {TSR_ORDER_FEISTEL, TSR_ORDER_TORCH};
    for (int i = 0; i < 1000; i++)
        weights[i] = i % 7 == 0 ? 0 : 1 + i % 50;
    for (int o = 0; o < 2; o++) {
        check_draws(few, 6, orders[o]);
        check_draws(sparse, 7, orders[o]);
        check_draws(weights, 1000, orders[o]);
    }
}
END_TEST

/* With five items of class 0, two of class 1 and one of class 2, each class is a third of the
 * draws. */
START_TEST(class_imbalance_of_the_specification)
{
    enum { DRAWS = 90000 };
    static int64_t indices[DRAWS];
    const double weights[] = {0.2, 0.2, 0.2, 0.2, 0.2, 0.5, 0.5, 1.0};
    uint32_t classes[3] = {0};
    uint64_t got;
    tsr_sampler *sampler =
        create(tsr_sampler_weighted_params(.weights = weights, .count = 8, .num_samples = DRAWS,
                                           .replacement = true));
    ck_assert_ok(tsr_sampler_fill(sampler, DRAWS, indices, NULL, &got));
    for (int i = 0; i < DRAWS; i++)
        classes[indices[i] < 5 ? 0 : indices[i] < 7 ? 1 : 2]++;
    double statistic = chi_square(classes, 3, DRAWS / 3);
    ck_assert_chance(statistic, 2);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* Weights given as floats have the same draws as doubles of the same values. */
START_TEST(weights_may_be_floats)
{
    const float narrow[] = {1, 0, 2.5f, 3};
    const double wide[] = {1, 0, 2.5, 3};
    uint64_t a_count, b_count;
    tsr_sampler *a = create(tsr_sampler_weighted_params(.weights_f32 = narrow, .count = 4,
                                                        .num_samples = 500, .replacement = true)),
                *b = create(tsr_sampler_weighted_params(.weights = wide, .count = 4,
                                                        .num_samples = 500, .replacement = true));
    int64_t *from_a = read_all(a, &a_count), *from_b = read_all(b, &b_count);
    ck_assert(a_count == 500 && b_count == 500);
    ck_assert_mem_eq(from_a, from_b, 500 * sizeof *from_a);
    free(from_a);
    free(from_b);
    tsr_sampler_destroy(&a);
    tsr_sampler_destroy(&b);
}
END_TEST

enum { PAIR_ITEMS = 5 };

/* Checks the first two draws without replacement: they must be i and then j with probability w_i /
 * W · w_j / (W − w_i), where W is the sum of the weights. */
static void check_pairs(const double weights[PAIR_ITEMS], tsr_order order)
{
    enum { N = PAIR_ITEMS, EPOCHS = 60000 };
    static uint32_t pairs[N][N];
    double statistic = 0, sum = total(weights, N);
    memset(pairs, 0, sizeof pairs);
    tsr_sampler *sampler =
        create(tsr_sampler_weighted_params(.weights = weights, .count = N, .num_samples = 4,
                                           .order = order, .seed = 3));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        int64_t drawn[5];
        uint64_t got;
        ck_assert_ok(tsr_sampler_set_epoch(sampler, epoch));
        ck_assert_ok(tsr_sampler_fill(sampler, 5, drawn, NULL, &got));
        ck_assert(got == 4);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++)
                ck_assert(drawn[i] != drawn[j]);
        pairs[drawn[0]][drawn[1]]++;
    }
    int cells = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double others[N] = {0}; /* W − w_i, computed without cancellation for a large w_i */
            for (int k = 0; k < N; k++)
                others[k] = k == i ? 0 : weights[k];
            double left = total(others, N);
            double expected = EPOCHS * (weights[i] / sum) * (others[j] / left);
            if (expected > 1e-9) {
                statistic += (pairs[i][j] - expected) * (pairs[i][j] - expected) / expected;
                cells++;
            } else {
                ck_assert_uint_eq(pairs[i][j], 0);
            }
        }
    ck_assert(cells == 12 || cells == 4);
    ck_assert_chance(statistic, cells - 1);
    tsr_sampler_destroy(&sampler);
}

START_TEST(draws_without_replacement)
{
    static const double near[] = {1, 0, 2, 4, 0.5}, far[] = {1e-10, 1e300, 2e-10, 4e-10, 3e-10};
    check_pairs(near, TSR_ORDER_FEISTEL);
    check_pairs(near, TSR_ORDER_TORCH);
    /* Divided by the largest weight of `far`, the other weights would underflow. */
    check_pairs(far, TSR_ORDER_FEISTEL);
}
END_TEST

/* All items are drawn once, even if their shares underflow. */
START_TEST(all_without_replacement)
{
    const double weights[] = {1e-310, 1, 1e300, 1e-300, 5};
    int64_t drawn[5];
    uint64_t got;
    tsr_sampler *sampler =
        create(tsr_sampler_weighted_params(.weights = weights, .count = 5, .num_samples = 5));
    ck_assert_ok(tsr_sampler_fill(sampler, 5, drawn, NULL, &got));
    ck_assert_uint_eq(got, 5);
    uint32_t seen = 0;
    for (int i = 0; i < 5; i++)
        seen |= 1u << drawn[i];
    ck_assert_uint_eq(seen, 31);
    ck_assert_int_eq(drawn[0], 2);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* Tests extreme weights, whose sum overflows a double or whose shares underflow. */
START_TEST(extreme_weights)
{
    const double huge[] = {1.7e308, 1.7e308, 0, 1.7e308}, tiny[] = {5e-324, 0, 5e-324};
    const double mixed[] = {1e-300, 1, 1e300};
    check_draws(huge, 4, TSR_ORDER_FEISTEL);
    check_draws(tiny, 3, TSR_ORDER_FEISTEL);
    int64_t indices[100];
    uint64_t got;
    tsr_sampler *sampler =
        create(tsr_sampler_weighted_params(.weights = mixed, .count = 3, .num_samples = 100,
                                           .replacement = true));
    ck_assert_ok(tsr_sampler_fill(sampler, 100, indices, NULL, &got));
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(indices[i], 2);
    tsr_sampler_destroy(&sampler);
}
END_TEST

#define ERROR(text, ...)                                                                           \
    do {                                                                                           \
        tsr_sampler *sampler_ = NULL;                                                              \
        ck_assert_error(                                                                           \
            tsr_sampler_create_weighted(tsr_sampler_weighted_params(__VA_ARGS__), &sampler_),      \
            TSR_ERR_INVALID, text);                                                                \
        ck_assert_ptr_null(sampler_);                                                              \
    } while (0)

START_TEST(errors)
{
    const double good[] = {1, 2}, zeros[] = {0, 0, 0}, one[] = {0, 3, 0};
    const double negative[] = {1, -1}, nan[] = {NAN, 1}, infinite[] = {1, 1, INFINITY};
    const double huge[] = {1.7e308, 1.7e308};
    const float narrow[] = {3e38f, 3e38f};
    tsr_sampler *sampler = NULL;
    ck_assert_error(tsr_sampler_create_weighted(NULL, &sampler), TSR_ERR_INVALID,
                    "weighted: params is NULL");
    ERROR("weighted: num_samples is 0", .weights = good, .count = 2);
    ERROR("weighted: num_samples -3 is negative", .weights = good, .count = 2, .num_samples = -3);
    ERROR("weighted: there is nothing to draw from", .weights = good, .num_samples = 1);
    ERROR("weighted: there is nothing to draw from", .num_samples = 1);
    ERROR("weighted: count is 4, but weights and weights_f32 are NULL", .count = 4,
          .num_samples = 1);
    ERROR("weighted: there are weights of both kinds, float and double", .weights = good,
          .weights_f32 = narrow, .count = 2, .num_samples = 1);
    ERROR("weighted: all 3 weights are 0", .weights = zeros, .count = 3, .num_samples = 1);
    ERROR("weighted: weight 1 is -1, not a finite number from 0 on", .weights = negative,
          .count = 2, .num_samples = 1);
    ERROR("weighted: weight 0 is nan, not a finite number from 0 on", .weights = nan, .count = 2,
          .num_samples = 1);
    ERROR("weighted: weight 2 is inf, not a finite number from 0 on", .weights = infinite,
          .count = 3, .num_samples = 1);
    ERROR("weighted: 1 weights are above 0, and 2 samples without replacement are more",
          .weights = one, .count = 3, .num_samples = 2);
    ERROR("weighted: the order is feistel, torch or mlx, not dotnet", .weights = good, .count = 2,
          .num_samples = 1, .order = TSR_ORDER_DOTNET);
    ERROR("weighted: the order is feistel, torch or mlx, not ?", .weights = good, .count = 2,
          .num_samples = 1, .order = (tsr_order)17);
    ERROR("weighted: 16777217 weights are more than the order torch can draw from, 16777216",
          .weights = good, .count = (1 << 24) + 1, .num_samples = 1, .order = TSR_ORDER_TORCH);
    ERROR("weighted: 4294967296 weights are more than the order feistel can draw from, 4294967295",
          .weights = good, .count = UINT64_C(1) << 32, .num_samples = 1);
    ERROR("weighted: the sum of the weights overflows their type", .weights = huge, .count = 2,
          .num_samples = 4, .order = TSR_ORDER_TORCH, .replacement = true);
    ERROR("weighted: the sum of the weights overflows their type", .weights_f32 = narrow,
          .count = 2, .num_samples = 4, .order = TSR_ORDER_TORCH, .replacement = true);
    ERROR("weighted: unknown PyTorch version 9", .weights = good, .count = 2, .num_samples = 4,
          .order = TSR_ORDER_TORCH, .replacement = true,
          .torch = tsr_torch_options(.version = (tsr_torch_version)9));
}
END_TEST

/* Draws with replacement in the orders feistel, torch and dotnet. With n = 3 · 2^60, one of 16
 * attempts is rejected. */
START_TEST(random_with_replacement)
{
    enum { DRAWS = 300000 };
    static int64_t indices[DRAWS];
    static const struct {
        uint64_t n;
        tsr_order order;
    } cases[] = {{6, TSR_ORDER_FEISTEL},       {1000, TSR_ORDER_FEISTEL},
                 {1000003, TSR_ORDER_FEISTEL}, {UINT64_C(3) << 60, TSR_ORDER_FEISTEL},
                 {1000, TSR_ORDER_TORCH},      {1000, TSR_ORDER_DOTNET}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        uint32_t counts[96] = {0}, after[36] = {0};
        uint64_t got, n = cases[c].n, parts = n < 96 ? n : 96;
        tsr_sampler *sampler = NULL;
        ck_assert_ok(tsr_sampler_create_random(
            tsr_sampler_random_params(.n = n, .order = cases[c].order, .replacement = true,
                                      .num_samples = DRAWS, .seed = 12),
            &sampler));
        ck_assert_ok(tsr_sampler_fill(sampler, DRAWS, indices, NULL, &got));
        double statistic = 0;
        for (int i = 0; i < DRAWS; i++) {
            ck_assert(indices[i] >= 0 && (uint64_t)indices[i] < n);
            counts[(uint64_t)((double)indices[i] / (double)n * (double)parts)]++;
            if (i > 0)
                after[(int)((double)indices[i - 1] / (double)n * 6) * 6 +
                      (int)((double)indices[i] / (double)n * 6)]++;
        }
        for (uint64_t part = 0; part < parts; part++) {
            /* If n is not divisible by the number of parts, the parts differ in size by up to one
             * index. */
            double low = ceil((double)part / (double)parts * (double)n),
                   high = ceil((double)(part + 1) / (double)parts * (double)n),
                   expected = (high - low) / (double)n * DRAWS;
            statistic += (counts[part] - expected) * (counts[part] - expected) / expected;
        }
        ck_assert_chance(statistic, (double)parts - 1);
        if (n % 6 == 0) {
            double by_pair = chi_square(after, 36, (DRAWS - 1) / 36.0);
            ck_assert_chance(by_pair, 35);
        }
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

/* 2^27 weights take 1.6 GB for the table, 1 GB for the weights, and a minute. */
START_TEST(hundred_million_weights)
{
    enum { BINS = 1024 };
    SKIP_UNLESS_HUGE("2.6 GB and a minute");
    const uint64_t count = UINT64_C(1) << 27, draws = UINT64_C(1) << 26;
    double *weights = malloc(count * sizeof *weights), *expected = calloc(BINS, sizeof *expected);
    static int64_t indices[1 << 16];
    static uint32_t counts[BINS];
    uint64_t zeros = 0, got;
    ck_assert(weights != NULL && expected != NULL);
    /* Neighbouring indices are in different bins, and every fifth weight is 0. */
    for (uint64_t i = 0; i < count; i++) {
        weights[i] = i % 5 == 0 ? 0 : (double)(i % 1000 + 1) * (1 + (double)(i % BINS));
        expected[i % BINS] += weights[i];
    }
    double sum = total(expected, BINS), statistic = 0;
    tsr_sampler *sampler = create(tsr_sampler_weighted_params(.weights = weights, .count = count,
                                                              .num_samples = (int64_t)draws,
                                                              .seed = 1, .replacement = true));
    do {
        ck_assert_ok(tsr_sampler_fill(sampler, 1 << 16, indices, NULL, &got));
        for (uint64_t i = 0; i < got; i++) {
            zeros += weights[indices[i]] == 0;
            counts[indices[i] % BINS]++;
        }
    } while (got > 0);
    ck_assert_uint_eq(zeros, 0);
    for (int i = 0; i < BINS; i++) {
        double mean = expected[i] / sum * (double)draws;
        statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
    fprintf(stderr, "2^27 weights: %.2f standard deviations from chance\n",
            chi_deviation(statistic, BINS - 1));
    ck_assert_chance(statistic, BINS - 1);
    tsr_sampler_destroy(&sampler);
    free(weights);
    free(expected);
}
END_TEST

TESTS(weighted)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, tables_hold_the_weights);
    tcase_add_test(tests, draws_follow_the_weights);
    tcase_add_test(tests, class_imbalance_of_the_specification);
    tcase_add_test(tests, weights_may_be_floats);
    tcase_add_test(tests, draws_without_replacement);
    tcase_add_test(tests, all_without_replacement);
    tcase_add_test(tests, extreme_weights);
    tcase_add_test(tests, errors);
    tcase_add_test(tests, random_with_replacement);
}

TESTS(weighted_huge)
{
    tcase_set_timeout(tests, 3600);
    tcase_add_test(tests, hundred_million_weights);
}
