/* Partitions of a length: the documents' examples, properties checked by brute force, limits,
 * errors. */
#include <stdlib.h>
#include <string.h>

#include "shard/strategy/strategy.h"
#include "shard/strategy/wide_product.h"
#include "support/check_main.h"
#include "support/random.h"
#include "tessera/shard.h"

enum { MAX = 17 };

static const struct {
    uint64_t length;
    int ranks;
    tsr_partition_params params;
    uint64_t counts[5];
} examples[] = {
    {5, 4, {.kind = TSR_PARTITION_EVEN}, {2, 2, 1, 0}},
    {6, 4, {.kind = TSR_PARTITION_EVEN}, {2, 2, 2, 0}},
    {8, 4, {.kind = TSR_PARTITION_EVEN}, {2, 2, 2, 2}},
    {1, 4, {.kind = TSR_PARTITION_EVEN}, {1, 0, 0, 0}},
    {0, 3, {.kind = TSR_PARTITION_EVEN}, {0, 0, 0}},
    {7, 1, {.kind = TSR_PARTITION_EVEN}, {7}},
    {10, 3, {.align = 4}, {4, 4, 2}},
    {10, 2, {.align = 4}, {8, 2}},
    {10, 2, {.align = 100}, {10, 0}},
    {8, 4, {.kind = TSR_PARTITION_STRICT}, {2, 2, 2, 2}},
    {24, 3, {.kind = TSR_PARTITION_STRICT, .align = 4}, {8, 8, 8}},
    {7, 1, {.kind = TSR_PARTITION_STRICT, .align = 4}, {7}},
    {0, 3, {.kind = TSR_PARTITION_STRICT}, {0, 0, 0}},
    {5, 4, {.kind = TSR_PARTITION_UNEVEN}, {2, 1, 1, 1}},
    {11, 2, {.kind = TSR_PARTITION_UNEVEN, .align = 4}, {8, 3}},
    {2, 5, {.kind = TSR_PARTITION_UNEVEN}, {1, 1, 0, 0, 0}},
    {5, 2, {.kind = TSR_PARTITION_WEIGHTED, .rates = (double[]){3, 1}}, {4, 1}},
    {8, 2, {.kind = TSR_PARTITION_WEIGHTED, .rates = (double[]){3, 1}}, {6, 2}},
    {8, 2, {.kind = TSR_PARTITION_WEIGHTED, .rates = (double[]){0.3, 0.1}}, {6, 2}},
    {9, 3, {.kind = TSR_PARTITION_WEIGHTED, .rates = (double[]){1, 0, 2}}, {3, 0, 6}},
    {5, 2, {.kind = TSR_PARTITION_WEIGHTED}, {3, 2}},
    {3, 2, {.kind = TSR_PARTITION_WEIGHTED, .rates = (double[]){1e300, 1e-300}}, {3, 0}},
    /* what rank 0 cannot take is divided among the others by their rates */
    {16,
     3,
     {.kind = TSR_PARTITION_WEIGHTED,
      .rates = (double[]){8, 2, 1},
      .limits = (uint64_t[]){4, 100, 100}},
     {4, 8, 4}},
    {10, 3, {.kind = TSR_PARTITION_UNEVEN, .limits = (uint64_t[]){1, 100, 2}}, {1, 7, 2}},
    {6, 2, {.kind = TSR_PARTITION_EVEN, .limits = (uint64_t[]){3, 3}}, {3, 3}},
    /* the last unit is short, so it fits where a complete one does not */
    {6, 1, {.limits = (uint64_t[]){6}, .align = 4}, {6}},
    {6, 1, {.kind = TSR_PARTITION_UNEVEN, .limits = (uint64_t[]){6}, .align = 4}, {6}},
    {6, 2, {.kind = TSR_PARTITION_UNEVEN, .limits = (uint64_t[]){4, 2}, .align = 4}, {4, 2}},
    {9,
     4,
     {.kind = TSR_PARTITION_WEIGHTED,
      .rates = (double[]){1, 1, 0, 1},
      .limits = (uint64_t[]){4, 4, 9, 1},
      .align = 4},
     {4, 4, 0, 1}},
};

START_TEST(as_documented)
{
    tsr_shard_range ranges[5];
    uint64_t start = 0;
    tsr_partition_params params = examples[_i].params;
    params.struct_size = sizeof params;
    ck_assert_ok(tsr_partition(examples[_i].length, examples[_i].ranks, &params, ranges));
    for (int r = 0; r < examples[_i].ranks; r++) {
        ck_assert_uint_eq(ranges[r].start, start);
        ck_assert_uint_eq(ranges[r].count, examples[_i].counts[r]);
        start += ranges[r].count;
    }
    ck_assert_ok(tsr__partition_check(examples[_i].length, examples[_i].ranks, ranges));
}
END_TEST

/* Checks that ranges are in order, without gaps, and start at multiples of the alignment. */
static void check_ranges(uint64_t length, int ranks, uint64_t align, const tsr_shard_range *ranges)
{
    uint64_t at = 0;
    for (int r = 0; r < ranks; r++) {
        ck_assert(ranges[r].start == at);
        ck_assert(at % align == 0 || at == length);
        at += ranges[r].count;
    }
    ck_assert(at == length);
}

START_TEST(even_is_the_documented_formula)
{
    tsr_shard_range ranges[MAX];
    for (int64_t length = 0; length <= 100; length++)
        for (int ranks = 1; ranks < MAX; ranks++) {
            ck_assert_ok(tsr_partition((uint64_t)length, ranks, NULL, ranges));
            int64_t shard = (length + ranks - 1) / ranks;
            for (int rank = 0; rank < ranks; rank++) {
                int64_t offset = rank * shard;
                int64_t size = shard < length - offset ? shard : length - offset;
                ck_assert(ranges[rank].count == (uint64_t)(size > 0 ? size : 0));
                ck_assert(size <= 0 || ranges[rank].start == (uint64_t)offset);
            }
            check_ranges((uint64_t)length, ranks, 1, ranges);
        }
}
END_TEST

START_TEST(sizes_of_every_kind)
{
    tsr_shard_range ranges[MAX];
    for (uint64_t length = 0; length <= 80; length++)
        for (int ranks = 1; ranks < MAX; ranks++)
            for (uint64_t align = 1; align <= 5; align++) {
                uint64_t units = (length + align - 1) / align;
                ck_assert_ok(
                    tsr_partition(length, ranks, tsr_partition_params(.align = align), ranges));
                check_ranges(length, ranks, align, ranges);
                ck_assert_ok(tsr_partition(
                    length, ranks,
                    tsr_partition_params(.kind = TSR_PARTITION_UNEVEN, .align = align), ranges));
                check_ranges(length, ranks, align, ranges);
                for (int r = 0; r < ranks; r++) {
                    uint64_t each = (ranges[r].count + align - 1) / align;
                    ck_assert(each ==
                              units / (uint64_t)ranks + ((uint64_t)r < units % (uint64_t)ranks));
                }
                bool divides = length % ((uint64_t)ranks * align) == 0 || ranks == 1;
                tsr_status status = tsr_partition(
                    length, ranks,
                    tsr_partition_params(.kind = TSR_PARTITION_STRICT, .align = align), ranges);
                ck_assert(status == (divides ? TSR_OK : TSR_ERR_INVALID));
                for (int r = 0; r < ranks && divides; r++)
                    ck_assert(ranges[r].count == length / (uint64_t)ranks);
            }
}
END_TEST

/* Without limits, each rank must get its exact share, rounded down or up. */
START_TEST(weighted_is_proportional)
{
    uint64_t state = 1;
    tsr_shard_range ranges[MAX];
    double rates[MAX];
    for (int round = 0; round < 20000; round++) {
        int ranks = (int)random_between(&state, 1, MAX - 1);
        uint64_t length = (uint64_t)random_between(&state, 0, round % 2 == 0 ? 50 : 1000000);
        double sum = 0;
        for (int r = 0; r < ranks; r++) {
            rates[r] = (double)random_between(&state, r == 0, 9);
            sum += rates[r];
        }
        ck_assert_ok(tsr_partition(
            length, ranks, tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates),
            ranges));
        check_ranges(length, ranks, 1, ranges);
        for (int r = 0; r < ranks; r++) {
            /* The library rounds rates to 32 bits, so the difference is far below one element. */
            double exact = (double)length * rates[r] / sum;
            ck_assert((double)ranges[r].count < exact + 1.001);
            ck_assert((double)ranges[r].count > exact - 1.001);
        }
    }
}
END_TEST

/* Returns whether `length` can be divided within the limits. Tries each rank as the one that gets
 * the short last unit. */
static bool can_hold(uint64_t length, int ranks, const double *rates, const uint64_t *limits,
                     uint64_t align)
{
    uint64_t units = (length + align - 1) / align, before = 0;
    uint64_t last = units > 0 ? length - (units - 1) * align : 0;
    for (int r = 0; r < ranks; r++) {
        uint64_t room = rates[r] > 0 ? limits[r] : 0;
        if (room >= last && before + 1 + (room - last) / align >= units)
            return true;
        before += room / align;
    }
    return units == 0;
}

/* Everything that fits within the limits must be placed. A rank below its limit must get its
 * share of the rest. */
START_TEST(limits_are_kept)
{
    uint64_t state = 2;
    tsr_shard_range ranges[MAX];
    double rates[MAX];
    uint64_t limits[MAX];
    int placed = 0, refused = 0;
    for (int round = 0; round < 30000; round++) {
        int ranks = (int)random_between(&state, 1, 6);
        uint64_t align = (uint64_t)random_between(&state, 1, 3);
        uint64_t length = (uint64_t)random_between(&state, 0, 60);
        for (int r = 0; r < ranks; r++) {
            rates[r] = (double)random_between(&state, r == 0, 4);
            limits[r] = (uint64_t)random_between(&state, 0, 25);
        }
        tsr_status status =
            tsr_partition(length, ranks,
                          tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates,
                                               .limits = limits, .align = align),
                          ranges);
        bool fits = can_hold(length, ranks, rates, limits, align);
        ck_assert(status == (fits ? TSR_OK : TSR_ERR_INVALID));
        placed += fits;
        refused += !fits;
        if (!fits)
            continue;
        check_ranges(length, ranks, align, ranges);
        for (int i = 0; i < ranks; i++) {
            ck_assert(ranges[i].count <= limits[i]);
            for (int j = 0; j < ranks && align == 1; j++) {
                bool open = ranges[j].count < limits[j] && rates[j] > 0 && rates[i] > 0;
                double more = ((double)ranges[i].count - 1) * rates[j];
                ck_assert(!open || more < ((double)ranges[j].count + 1) * rates[i] + 1e-6);
            }
        }
    }
    ck_assert_int_gt(placed, 1000);
    ck_assert_int_gt(refused, 1000);
}
END_TEST

START_TEST(the_largest_lengths)
{
    tsr_shard_range ranges[3];
    const double rates[] = {1, 1e-9, 3};
    ck_assert_ok(tsr_partition(INT64_MAX, 3, NULL, ranges));
    check_ranges(INT64_MAX, 3, 1, ranges);
    ck_assert_ok(tsr_partition(INT64_MAX, 3, tsr_partition_params(.align = UINT64_MAX), ranges));
    ck_assert_uint_eq(ranges[0].count, INT64_MAX);
    check_ranges(INT64_MAX, 3, UINT64_MAX, ranges);
    ck_assert_ok(tsr_partition(INT64_MAX, 3,
                               tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates),
                               ranges));
    check_ranges(INT64_MAX, 3, 1, ranges);
    /* The expected value is floor((2^63 − 1) · w / Σ w) with w = 2^32/3, 1, 2^32; the share with
     * the largest remainder is one more. */
    ck_assert_uint_eq(ranges[1].count, 1610612736);

    tsr_shard_range *many = calloc(TSR_SHARD_MAX_RANKS, sizeof *many);
    ck_assert_ok(tsr_partition(1000000, TSR_SHARD_MAX_RANKS,
                               tsr_partition_params(.kind = TSR_PARTITION_UNEVEN), many));
    ck_assert_ok(tsr__partition_check(1000000, TSR_SHARD_MAX_RANKS, many));
    ck_assert_uint_eq(many[0].count, 16);
    ck_assert_uint_eq(many[TSR_SHARD_MAX_RANKS - 1].count, 15);
    free(many);
}
END_TEST

static const struct {
    uint64_t length;
    int ranks;
    tsr_partition_params params;
    const char *text;
} mistakes[] = {
    {5, 0, {.align = 0}, "partition: 0 ranks are outside 1 to 65536"},
    {5, 65537, {.align = 0}, "partition: 65537 ranks are outside 1 to 65536"},
    {UINT64_C(1) << 63,
     2,
     {.align = 0},
     "partition: 9223372036854775808 elements are more than 2^63 - 1"},
    {5, 2, {.kind = (tsr_partition_kind)4}, "partition: 4 is no kind of partition"},
    {5,
     4,
     {.kind = TSR_PARTITION_STRICT},
     "partition: 5 elements cannot be divided evenly among 4 ranks in units of 1"},
    {8,
     2,
     {.kind = TSR_PARTITION_STRICT, .align = 3},
     "partition: 8 elements cannot be divided evenly among 2 ranks in units of 3"},
    {5,
     2,
     {.limits = (uint64_t[]){3, 1}},
     "partition: rank 1's 2 of 5 elements are more than its limit of 1"},
    {5,
     2,
     {.kind = TSR_PARTITION_UNEVEN, .limits = (uint64_t[]){3, 1}},
     "partition: of 5 elements, 1 are left over when every rank has what it can take"},
    {10,
     2,
     {.kind = TSR_PARTITION_UNEVEN, .limits = (uint64_t[]){5, 3}, .align = 4},
     "partition: of 10 elements, 6 are left over when every rank has what it can take"},
    {5,
     2,
     {.kind = TSR_PARTITION_UNEVEN, .rates = (double[]){3, 1}},
     "partition: rates are for weighted partitions only"},
    {5,
     2,
     {.kind = TSR_PARTITION_WEIGHTED, .rates = (double[]){1, -1}},
     "partition: rank 1's rate is -1; rates must be finite and not negative"},
    {5,
     2,
     {.kind = TSR_PARTITION_WEIGHTED, .rates = (double[]){0, 0}},
     "partition: all 2 rates are 0"},
};

START_TEST(mistakes_name_the_values)
{
    tsr_shard_range ranges[4] = {{7, 7}, {7, 7}, {7, 7}, {7, 7}};
    tsr_partition_params params = mistakes[_i].params;
    params.struct_size = sizeof params;
    ck_assert_error(tsr_partition(mistakes[_i].length, mistakes[_i].ranks, &params, ranges),
                    TSR_ERR_INVALID, mistakes[_i].text);
    for (int r = 0; r < 4; r++)
        ck_assert(ranges[r].start == 7 && ranges[r].count == 7);
}
END_TEST

static const struct {
    uint64_t length;
    tsr_shard_range ranges[3];
    const char *text; /* the error text; NULL: valid */
} checks[] = {
    {5, {{0, 2}, {2, 2}, {4, 1}}, NULL},
    {5, {{3, 2}, {2, 1}, {0, 2}}, NULL},
    {5, {{0, 0}, {0, 5}, {5, 0}}, NULL},
    {5, {{3, 0}, {0, 5}, {0, 0}}, NULL},
    {0, {{0, 0}, {0, 0}, {0, 0}}, NULL},
    {5, {{0, 2}, {2, 2}, {4, 0}}, "partition: elements 4 to 4 belong to no rank"},
    {5, {{3, 2}, {0, 1}, {0, 0}}, "partition: elements 1 to 2 belong to no rank"},
    {5, {{0, 0}, {0, 0}, {0, 0}}, "partition: elements 0 to 4 belong to no rank"},
    {5, {{0, 3}, {2, 2}, {4, 1}}, "partition: element 2 belongs to rank 0 and to rank 1"},
    {5, {{0, 5}, {0, 5}, {0, 0}}, "partition: element 0 belongs to rank 0 and to rank 1"},
    {5,
     {{0, 5}, {5, 1}, {0, 0}},
     "partition: rank 1's 1 elements from 5 are outside the 5 there are"},
    {5,
     {{0, 5}, {6, 0}, {0, 0}},
     "partition: rank 1's 0 elements from 6 are outside the 5 there are"},
    {5,
     {{1, UINT64_MAX}, {0, 0}, {0, 0}},
     "partition: rank 0's 18446744073709551615 elements from 1 are outside the 5 there are"},
};

START_TEST(checking)
{
    if (checks[_i].text == NULL)
        ck_assert_ok(tsr__partition_check(checks[_i].length, 3, checks[_i].ranges));
    else
        ck_assert_error(tsr__partition_check(checks[_i].length, 3, checks[_i].ranges),
                        TSR_ERR_INVALID, checks[_i].text);
}
END_TEST

/* Compares tsr__partition_check with marking elements one by one. */
START_TEST(checking_is_exact)
{
    uint64_t state = 3;
    int right = 0;
    for (int round = 0; round < 200000; round++) {
        uint64_t length = (uint64_t)random_between(&state, 0, 5);
        tsr_shard_range ranges[3];
        int owners[6] = {0};
        bool good = true;
        for (int r = 0; r < 3; r++) {
            ranges[r].start = (uint64_t)random_between(&state, 0, (int64_t)length);
            ranges[r].count =
                (uint64_t)random_between(&state, 0, (int64_t)(length - ranges[r].start));
            for (uint64_t i = 0; i < ranges[r].count; i++)
                owners[ranges[r].start + i]++;
        }
        for (uint64_t i = 0; i < length; i++)
            good = good && owners[i] == 1;
        ck_assert((tsr__partition_check(length, 3, ranges) == TSR_OK) == good);
        right += good;
    }
    ck_assert_int_gt(right, 1000);
}
END_TEST

#ifdef __SIZEOF_INT128__
__extension__ typedef unsigned __int128 uint128;

START_TEST(wide_products)
{
    uint64_t state = 4;
    for (int round = 0; round < 200000; round++) {
        int shift = (int)random_between(&state, 1, 40);
        uint64_t a = random_next(&state) >> shift, c = (random_next(&state) >> shift) | 1;
        uint64_t b = random_next(&state) % (c + 1), d = random_next(&state), remainder;
        uint64_t quotient = tsr__mul_div(a, b, c, &remainder);
        ck_assert((uint128)quotient * c + remainder == (uint128)a * b && remainder < c);
        tsr__wide product = tsr__mul_wide(d, ~a);
        ck_assert(((uint128)product.high << 64 | product.low) == (uint128)d * ~a);
        uint128 x = (uint128)a * d, y = (uint128)b * c;
        ck_assert(tsr__compare_products(a, d, b, c) == (x > y) - (x < y));
        ck_assert(tsr__compare_products(a, d, d, a) == 0);
    }
}
END_TEST
#endif

TESTS(partition)
{
    tcase_add_loop_test(tests, as_documented, 0, (int)(sizeof examples / sizeof *examples));
    tcase_add_test(tests, even_is_the_documented_formula);
    tcase_add_test(tests, sizes_of_every_kind);
    tcase_add_test(tests, weighted_is_proportional);
    tcase_add_test(tests, limits_are_kept);
    tcase_add_test(tests, the_largest_lengths);
    tcase_add_loop_test(tests, mistakes_name_the_values, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_loop_test(tests, checking, 0, (int)(sizeof checks / sizeof *checks));
    tcase_add_test(tests, checking_is_exact);
#ifdef __SIZEOF_INT128__
    tcase_add_test(tests, wide_products);
#endif
}
