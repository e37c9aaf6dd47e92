/* Tests that the order feistel is a bijection for every size that could be special, and that it
 * looks random. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampler/chi.h"
#include "sampler/order/order.h"
#include "support/golden.h"
#include "tessera/sampler.h"

#define PIECE 4096

static tsr_feistel order_of(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t pass)
{
    tsr_feistel order;
    ck_assert_ok(tsr_feistel_init(n, seed, epoch, pass, &order));
    return order;
}

/* Checks that every element occurs once. `seen` must have n / 8 + 1 bytes, all 0, and is all 0
 * again afterwards. */
static void check_bijection(uint64_t n, uint64_t seed, uint8_t *seen)
{
    static int64_t elements[PIECE];
    tsr_feistel order = order_of(n, seed, 0, 0);
    for (uint64_t first = 0; first < n; first += PIECE) {
        uint64_t count = n - first < PIECE ? n - first : PIECE;
        tsr_feistel_fill(&order, first, 1, count, elements);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t element = (uint64_t)elements[i];
            if (element >= n || (seen[element / 8] >> element % 8 & 1) != 0)
                ck_abort_msg("n %" PRIu64 ": %" PRIu64 " at %" PRIu64, n, element, first + i);
            seen[element / 8] = (uint8_t)(seen[element / 8] | 1u << element % 8);
        }
        /* The elements that one call fills must equal those of single calls, and
         * tsr_feistel_find must invert them. */
        for (uint64_t i = 0; i<count; i += n> 4096 ? 997 : 1) {
            ck_assert(tsr__feistel_at(&order, first + i) == (uint64_t)elements[i]);
            ck_assert(tsr_feistel_find(&order, (uint64_t)elements[i]) == first + i);
        }
    }
    memset(seen, 0, n / 8 + 1);
}

START_TEST(bijection_for_every_small_n)
{
    uint8_t seen[513] = {0};
    for (uint64_t n = 0; n <= 2048; n++)
        check_bijection(n, n % 3, seen);
}
END_TEST

START_TEST(bijection_around_powers)
{
    uint8_t *seen = calloc((1u << 20) / 8 + 2, 1);
    for (unsigned k = 11; k <= 20; k++) {
        /* If k is even, 2^k is also a power of 4, so the grid of its elements is a square. */
        check_bijection((UINT64_C(1) << k) - 1, k, seen);
        check_bijection(UINT64_C(1) << k, k, seen);
        check_bijection((UINT64_C(1) << k) + 1, k, seen);
    }
    /* Tests sizes near side · side and side · (side + 1), for which the grid has no unused
     * cells. */
    for (uint64_t side = 100; side < 1000; side += 199)
        for (uint64_t n = side * side - 1; n <= side * side + 1; n++) {
            check_bijection(n, 5, seen);
            check_bijection(n + side, 5, seen);
        }
    free(seen);
}
END_TEST

/* Tests orders that are too large for a bitmap: tsr_feistel_find must invert tsr__feistel_at. */
START_TEST(large_orders_can_be_inverted)
{
    const uint64_t sizes[] = {
        UINT64_C(1000000000000), (UINT64_C(1) << 32) - 1,        UINT64_C(1) << 32,
        (UINT64_C(1) << 32) + 1, UINT64_C(3037000499) * 1000003, TSR_MAX_FEISTEL - 1,
        TSR_MAX_FEISTEL};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t n = sizes[s], step = n / 10007;
        tsr_feistel order = order_of(n, s, 7, 0);
        for (uint64_t i = 0; i < 10007; i++) {
            uint64_t position = i < 100 ? i : i < 200 ? n - 1 - (i - 100) : i * step;
            uint64_t element = tsr__feistel_at(&order, position);
            ck_assert(element < n && tsr_feistel_find(&order, element) == position);
        }
    }
}
END_TEST

START_TEST(fill_equals_at_for_any_step)
{
    const uint64_t sizes[] = {5, 16, 17, 1000, 100003, UINT64_C(1000000000000)};
    const uint64_t steps[] = {1, 2, 7, 316, 317, 1001, 99991};
    int64_t elements[300];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t t = 0; t < sizeof steps / sizeof *steps; t++)
            for (uint64_t first = 0; first < 3; first++) {
                tsr_feistel order = order_of(sizes[s], 1, 2, 3);
                uint64_t count = (sizes[s] - first - 1) / steps[t] + 1;
                count = count < 300 ? count : 300;
                tsr_feistel_fill(&order, first, steps[t], count, elements);
                for (uint64_t i = 0; i < count; i++)
                    ck_assert((uint64_t)elements[i] ==
                              tsr__feistel_at(&order, first + i * steps[t]));
            }
}
END_TEST

START_TEST(size_is_64_bytes)
{
    ck_assert_uint_le(sizeof(tsr_feistel), 64);
}
END_TEST

/* Over many keys of a small order, checks that each element is equally often at each place, and
 * that each pair of elements is equally often at neighbouring places and at the first and last
 * place. */
static void check_keys(int n, int keys)
{
    enum { MAX = 64 };
    static uint32_t places[MAX * MAX], neighbours[MAX * MAX], ends[MAX * MAX];
    memset(places, 0, sizeof places);
    memset(neighbours, 0, sizeof neighbours);
    memset(ends, 0, sizeof ends);
    for (int key = 0; key < keys; key++) {
        tsr_feistel order = order_of((uint64_t)n, (uint64_t)key % 10, (uint64_t)key / 10, 0);
        int64_t elements[MAX];
        tsr_feistel_fill(&order, 0, 1, (uint64_t)n, elements);
        for (int i = 0; i < n; i++)
            places[i * n + elements[i]]++;
        for (int i = 0; i + 1 < n; i++)
            neighbours[elements[i] * n + elements[i + 1]]++;
        ends[elements[0] * n + elements[n - 1]]++;
    }
    double all = keys, cells = (double)n * n, pairs = (double)n * (n - 1);
    double by_place = chi_square(places, (uint64_t)cells, all / n);
    ck_assert_chance(by_place, (n - 1.0) * (n - 1));
    /* The n counts of an element beside itself are 0, but chi_square expects them, too. What they
     * add to the statistic is subtracted. */
    for (int i = 0; i < n; i++)
        ck_assert(neighbours[i * n + i] == 0 && ends[i * n + i] == 0);
    if (n > 2) {
        double by_neighbours = chi_square(neighbours, (uint64_t)cells, all * (n - 1) / pairs) -
                               all * (n - 1) / pairs * n;
        /* In one order, an element has only one successor, so the counts vary slightly less than
         * independent counts. Therefore only the upper limit is checked. */
        ck_assert_msg(chi_deviation(by_neighbours, pairs - 1) < 3.29, "neighbours of n %d", n);
        double by_ends = chi_square(ends, (uint64_t)cells, all / pairs) - all / pairs * n;
        ck_assert_chance(by_ends, pairs - 1);
    }
}

START_TEST(small_orders_are_random)
{
    const int sizes[] = {2, 3, 4, 5, 8, 13, 16, 18, 20, 31, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_keys(sizes[i], 60000);
}
END_TEST

/* All 120 orders of five elements are equally frequent. */
START_TEST(all_orders_of_five)
{
    uint32_t counts[3125] = {0};
    double statistic = 0, expected = 60000 / 120.0;
    for (int key = 0; key < 60000; key++) {
        tsr_feistel order = order_of(5, (uint64_t)key, 0, 0);
        uint64_t number = 0;
        for (uint64_t i = 0; i < 5; i++)
            number = number * 5 + tsr__feistel_at(&order, i);
        counts[number]++;
    }
    int kinds = 0;
    for (int i = 0; i < 3125; i++)
        if (counts[i] > 0) {
            kinds++;
            statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
    ck_assert_int_eq(kinds, 120);
    ck_assert_chance(statistic, 119);
}
END_TEST

enum { SIDE = 32, BINS = SIDE * SIDE };

/* Divides 0 … n − 1 into 32 equal ranges, and returns the number of the range in which an
 * element is. */
static uint64_t part(uint64_t element, uint64_t n)
{
    return (uint64_t)((double)element / (double)n * SIDE) % SIDE;
}

/* Checks the pairs of elements that are `distance` places apart, for the first 2^18 places. The
 * ranges (see part()) of the two elements must be independent, and their differences must be evenly
 * distributed. */
static void check_distance(const tsr_feistel *order, uint64_t distance)
{
    enum { PLACES = 1 << 18 };
    static int64_t near[PLACES], far[PLACES];
    static uint32_t both[BINS], apart[BINS];
    memset(both, 0, sizeof both);
    memset(apart, 0, sizeof apart);
    tsr_feistel_fill(order, 0, 1, PLACES, near);
    tsr_feistel_fill(order, distance, 1, PLACES, far);
    for (int i = 0; i < PLACES; i++) {
        uint64_t a = (uint64_t)near[i], b = (uint64_t)far[i], n = order->n;
        both[part(a, n) * SIDE + part(b, n)]++;
        uint64_t difference = b >= a ? b - a : b + (n - a);
        apart[(uint64_t)((double)difference / (double)n * BINS) % BINS]++;
    }
    double by_part = chi_square(both, BINS, (double)PLACES / BINS);
    double by_difference = chi_square(apart, BINS, (double)PLACES / BINS);
    ck_assert_msg(fabs(chi_deviation(by_part, BINS - 1)) < 4.1 &&
                      fabs(chi_deviation(by_difference, BINS - 1)) < 4.1,
                  "n %" PRIu64 ", distance %" PRIu64 ": %.1f, %.1f", order->n, distance,
                  chi_deviation(by_part, BINS - 1), chi_deviation(by_difference, BINS - 1));
}

/* The limit in check_distance is 4.1 standard deviations, because two statistics are compared for
 * each of 64 combinations. */
START_TEST(large_orders_are_random)
{
    const uint64_t sizes[] = {1 << 20,           (1 << 20) + 1,     10000019,
                              1000000007,        UINT64_C(1) << 32, UINT64_C(1000000000000),
                              UINT64_C(1) << 48, TSR_MAX_FEISTEL};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        tsr_feistel order = order_of(sizes[s], s, 0, 0);
        /* Tests neighbours in a row and in a column of the grid, ranks' strides, and distant
         * elements. */
        const uint64_t distances[] = {
            1, 2, 8, 1000, order.columns - 1, order.columns, order.columns + 1, order.n / 2};
        for (size_t d = 0; d < sizeof distances / sizeof *distances; d++)
            check_distance(&order, distances[d]);
    }
}
END_TEST

/* If seed, epoch or pass changes by one, elements keep their places only by chance. */
START_TEST(order_depends_on_seed_epoch_and_pass)
{
    enum { N = 1 << 16 };
    static int64_t first[N], other[N];
    tsr_feistel order = order_of(N, 3, 5, 7);
    tsr_feistel_fill(&order, 0, 1, N, first);
    const uint64_t keys[][3] = {{4, 5, 7},
                                {3, 6, 7},
                                {3, 5, 8},
                                {5, 3, 7},
                                {7, 5, 3},
                                {3 + (UINT64_C(1) << 32), 5, 7},
                                {3, 5 + (UINT64_C(1) << 32), 7},
                                {3, 5, 7 + (UINT64_C(1) << 32)},
                                {2, 6, 7}};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        int same = 0;
        order = order_of(N, keys[k][0], keys[k][1], keys[k][2]);
        tsr_feistel_fill(&order, 0, 1, N, other);
        for (int i = 0; i < N; i++)
            same += first[i] == other[i];
        ck_assert_int_lt(same, 12);
    }
}
END_TEST

/* The permutation must never change, because saved runs continue with it. */
START_TEST(permutations_never_change)
{
    const struct {
        uint64_t n, seed, epoch, pass, position, element;
    } cases[] = {
#include "feistel_cases.inc"
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_feistel order = order_of(cases[i].n, cases[i].seed, cases[i].epoch, cases[i].pass);
        ck_assert_uint_eq(tsr__feistel_at(&order, cases[i].position), cases[i].element);
    }
}
END_TEST

START_TEST(errors)
{
    tsr_feistel order = {.n = 77};
    ck_assert_error(tsr_feistel_init(TSR_MAX_FEISTEL + 1, 0, 0, 0, &order), TSR_ERR_INVALID,
                    "feistel: 4611686018427387905 elements are more than 2^62");
    ck_assert_uint_eq(order.n, 77);
}
END_TEST

TESTS(feistel)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, bijection_for_every_small_n);
    tcase_add_test(tests, bijection_around_powers);
    tcase_add_test(tests, large_orders_can_be_inverted);
    tcase_add_test(tests, fill_equals_at_for_any_step);
    tcase_add_test(tests, size_is_64_bytes);
    tcase_add_test(tests, small_orders_are_random);
    tcase_add_test(tests, all_orders_of_five);
    tcase_add_test(tests, large_orders_are_random);
    tcase_add_test(tests, order_depends_on_seed_epoch_and_pass);
    tcase_add_test(tests, permutations_never_change);
    tcase_add_test(tests, errors);
}
