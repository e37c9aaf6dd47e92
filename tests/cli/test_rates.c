/* What bench rates concludes from measured times. */
#include <stdio.h>
#include <string.h>

#include "bench/model/rates.h"
#include "support/check_main.h"

#define PASSES 3

static const bench_rates_sizes sizes = {
    .layer = 1e6, .part_layer = 5e5, .head = 8e6, .part_head = 4e6};
/* The same layers with experts, whose elements take twice as long. */
static const bench_rates_sizes with_experts = {.layer = 1e6,
                                               .part_layer = 5e5,
                                               .head = 8e6,
                                               .part_head = 4e6,
                                               .experts = 6e5,
                                               .part_experts = 3e5};
/* As on some drivers, more rows are not always slower. */
static const bench_rates_pass known[PASSES] = {
    {.rows = 1, .pass = 1e-3, .layer = 2e-4, .element = 1e-9, .head = 2e-4, .head_element = 5e-10},
    {.rows = 2,
     .pass = 1e-3,
     .layer = 3e-4,
     .element = 1.5e-9,
     .head = 2e-4,
     .head_element = 5e-10},
    {.rows = 4,
     .pass = 1e-3,
     .layer = 4e-4,
     .element = 1.1e-9,
     .head = 1e-4,
     .head_element = 4e-10},
};

/* Returns the times that a rank with these numbers measures, multiplied by `slower`. */
static bench_rates_times times_of(const char *device, double slower)
{
    bench_rates_times times = {0};
    snprintf(times.device, sizeof times.device, "%s", device);
    for (int m = 0; m < BENCH_RATES_MODELS; m++) {
        const bool deep = m == BENCH_RATES_DEEP_WHOLE || m == BENCH_RATES_DEEP_PART ||
                          m == BENCH_RATES_DEEP_EMPTY,
                   part = m == BENCH_RATES_PART || m == BENCH_RATES_DEEP_PART,
                   empty = m == BENCH_RATES_EMPTY || m == BENCH_RATES_DEEP_EMPTY;
        const double layer = empty  ? 1e3
                             : part ? sizes.part_layer
                                    : sizes.layer,
                     head = empty                        ? 0
                            : m == BENCH_RATES_PART_HEAD ? sizes.part_head
                                                         : sizes.head;
        const int layers = deep ? BENCH_RATES_MANY_LAYERS : BENCH_RATES_FEW_LAYERS;
        for (int i = 0; i < PASSES; i++)
            times.seconds[m][i] =
                slower * (known[i].pass + layers * (known[i].layer + layer * known[i].element) +
                          (head > 0 ? known[i].head + head * known[i].head_element : 0));
    }
    return times;
}

START_TEST(finds_the_numbers)
{
    const bench_rates_times times = times_of("x", 1);
    bench_rates_pass pass[PASSES] = {{0}};
    int noisy = -1;
    ck_assert(bench_rates_fit(&times, &sizes, PASSES, pass, &noisy));
    ck_assert_int_eq(noisy, -1);
    for (int i = 0; i < PASSES; i++) {
        ck_assert_double_eq_tol(pass[i].pass, known[i].pass, 1e-9);
        ck_assert_double_eq_tol(pass[i].layer, known[i].layer, 1e-9);
        ck_assert_double_eq_tol(pass[i].element, known[i].element, 1e-15);
        ck_assert_double_eq_tol(pass[i].head, known[i].head, 1e-9);
        ck_assert_double_eq_tol(pass[i].head_element, known[i].head_element, 1e-15);
    }
}
END_TEST

/* Times in which more layers take no longer are noise. */
START_TEST(tells_noise)
{
    bench_rates_times times = times_of("x", 1);
    bench_rates_pass pass[PASSES] = {{0}};
    int noisy = -1;
    times.seconds[BENCH_RATES_DEEP_PART][1] = 0.9 * times.seconds[BENCH_RATES_PART][1];
    ck_assert(!bench_rates_fit(&times, &sizes, PASSES, pass, &noisy));
    ck_assert_int_eq(noisy, 1);
    for (int i = 0; i < PASSES; i++)
        ck_assert(pass[i].pass >= 0 && pass[i].layer >= 0 && pass[i].element > 0 &&
                  pass[i].head >= 0 && pass[i].head_element >= 0);
}
END_TEST

/* Rank 0 differs from ranks 1 and 3 by less than an eighth, these differ from each other by more,
 * rank 2 is slower, and rank 4 has another device. */
START_TEST(averages_equal_ranks)
{
    const bench_rates_times times[] = {times_of("x", 1.0), times_of("x", 1.1), times_of("x", 2.0),
                                       times_of("x", 0.9), times_of("y", 1.03)};
    static const double expected[] = {1, 1.05, 2, 0.95, 1.03};
    const bench_rates_times one = times_of("x", 1);
    for (int rank = 0; rank < 5; rank++) {
        bench_rates_times mean;
        bench_rates_average(5, times, rank, PASSES, &mean);
        ck_assert_str_eq(mean.device, times[rank].device);
        for (int m = 0; m < BENCH_RATES_MODELS; m++)
            for (int i = 0; i < PASSES; i++)
                ck_assert_double_eq_tol(mean.seconds[m][i] / one.seconds[m][i], expected[rank],
                                        1e-9);
    }
}
END_TEST

START_TEST(times_of_parts)
{
    /* all of two layers and the head; half of them; their fixed times stay */
    ck_assert_double_eq_tol(bench_rates_part_seconds(&known[0], &sizes, 2, 1),
                            1e-3 + 2 * (2e-4 + 1e-3) + 2e-4 + 4e-3, 1e-12);
    ck_assert_double_eq_tol(bench_rates_part_seconds(&known[0], &sizes, 2, 2),
                            1e-3 + 2 * (2e-4 + 0.5e-3) + 2e-4 + 2e-3, 1e-12);
}
END_TEST

/* Experts are measured by themselves: with half of them, and with half of everything. */
START_TEST(finds_the_rates_of_experts)
{
    const bench_rates_sizes *s = &with_experts;
    bench_rates_times times = times_of("x", 1);
    bench_rates_pass pass[PASSES] = {{0}};
    int noisy = -1;
    for (int m = 0; m < BENCH_RATES_MODELS; m++)
        for (int i = 0; i < PASSES; i++) {
            const bool deep = m == BENCH_RATES_DEEP_WHOLE || m == BENCH_RATES_DEEP_PART ||
                              m == BENCH_RATES_DEEP_EXPERTS,
                       whole = m == BENCH_RATES_WHOLE || m == BENCH_RATES_DEEP_WHOLE ||
                               m == BENCH_RATES_PART_HEAD,
                       less = m == BENCH_RATES_EXPERTS || m == BENCH_RATES_DEEP_EXPERTS;
            const int layers = deep ? BENCH_RATES_MANY_LAYERS : BENCH_RATES_FEW_LAYERS;
            const double element = known[i].element;
            if (m == BENCH_RATES_EMPTY || m == BENCH_RATES_DEEP_EMPTY)
                continue;
            /* an element of the experts takes as long again as the others */
            if (less)
                times.seconds[m][i] += layers * (s->part_experts - s->experts) * element;
            times.seconds[m][i] += layers * (whole ? s->experts : s->part_experts) * element;
            if (m == BENCH_RATES_DEEP_EXPERTS)
                times.seconds[m][i] +=
                    (layers - BENCH_RATES_FEW_LAYERS) * (known[i].layer + s->layer * element);
        }
    ck_assert(bench_rates_fit(&times, s, PASSES, pass, &noisy));
    for (int i = 0; i < PASSES; i++) {
        ck_assert_double_eq_tol(pass[i].layer, known[i].layer, 1e-9);
        ck_assert_double_eq_tol(pass[i].element, known[i].element, 1e-15);
        ck_assert_double_eq_tol(pass[i].expert_element, 2 * known[i].element, 1e-15);
    }
    ck_assert_double_eq_tol(bench_rates_part_seconds(&pass[0], s, 2, 2),
                            1e-3 + 2 * (2e-4 + 0.8e-3) + 2e-4 + 2e-3, 1e-9);
    times.seconds[BENCH_RATES_DEEP_EXPERTS][2] = times.seconds[BENCH_RATES_EXPERTS][2];
    ck_assert(!bench_rates_fit(&times, s, PASSES, pass, &noisy));
    ck_assert_int_eq(noisy, 2);
    ck_assert_double_gt(pass[2].element, 0); /* plans refuse 0 */
}
END_TEST

TESTS(rates)
{
    tcase_add_test(tests, finds_the_rates_of_experts);
    tcase_add_test(tests, finds_the_numbers);
    tcase_add_test(tests, tells_noise);
    tcase_add_test(tests, averages_equal_ranks);
    tcase_add_test(tests, times_of_parts);
}
