/* Tests the length-sorted sampler: compares its batches with those of a sort by the test. */
#include <stdlib.h>

#include "items.h"
#include "sampler/info.h"
#include "support/random.h"

static const int64_t *sorting;

static int by_length(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    int64_t difference = sorting[left] - sorting[right];
    if (difference == 0)
        difference = left - right;
    return (difference > 0) - (difference < 0);
}

static void sort_items(const int64_t *lengths, uint64_t count, int64_t *out)
{
    sorting = lengths;
    for (uint64_t i = 0; i < count; i++)
        out[i] = (int64_t)i;
    qsort(out, count, sizeof *out, by_length);
}

static tsr_sampler *sampler;
static items all, others;

static void create(const tsr_sampler_length_sorted_params *params)
{
    tsr_sampler_destroy(&sampler);
    ck_assert_ok(tsr_sampler_create_length_sorted(params, &sampler));
}

static void destroy(void)
{
    tsr_sampler_destroy(&sampler);
}

START_TEST(order_none_gives_sorted_batches)
{
    const int64_t lengths[] = {30, 10, 20, 10, 50, 40, 10};
    const int64_t expected[] = {1, 3, 6, 2, 0, 5, 4};
    create(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 7, .batch_size = 3,
                                            .order = TSR_ORDER_NONE));
    ck_assert_str_eq(info_of(sampler).name, "length-sorted");
    ck_assert_uint_eq(tsr_sampler_length(sampler), 3);
    ck_assert_uint_eq(info_of(sampler).batch_max, 3);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        items_epoch(sampler, epoch, &all);
        ck_assert_mem_eq(all.indices, expected, sizeof expected);
        ck_assert_uint_eq(all.start[1], 3);
        ck_assert_uint_eq(all.start[2], 6);
        ck_assert_uint_eq(all.start[3], 7);
    }
}
END_TEST

/* Checks that the epoch has every batch of the sorted items once, in any order. */
static void check_batches(const int64_t *sorted, uint64_t count, uint64_t size)
{
    static uint64_t place[MAX_ITEMS];
    bool seen[MAX_ITEMS] = {false};
    for (uint64_t i = 0; i < count; i++)
        place[sorted[i]] = i;
    ck_assert_uint_eq(all.count, (count + size - 1) / size);
    for (uint64_t b = 0; b < all.count; b++) {
        uint64_t first = place[all.indices[all.start[b]]];
        ck_assert(first % size == 0 && !seen[first / size]);
        seen[first / size] = true;
        ck_assert(items_size(&all, b) == (count - first < size ? count - first : size));
        for (uint64_t i = 0; i < items_size(&all, b); i++)
            ck_assert(all.indices[all.start[b] + i] == sorted[first + i]);
    }
}

START_TEST(shuffling_only_moves_batches)
{
    static int64_t lengths[2000], sorted[2000];
    uint64_t state = 3;
    for (int round = 0; round < 300; round++) {
        uint64_t count = (uint64_t)random_between(&state, 0, round < 280 ? 60 : 2000);
        int64_t size = random_between(&state, 1, 40);
        /* With lengths of at most 3 there are many ties. With lengths up to INT64_MAX − 1, all
         * eight bytes by which the sampler sorts differ. */
        int64_t most = round % 3 == 0 ? 3 : round % 3 == 1 ? 100000 : INT64_MAX - 1;
        for (uint64_t i = 0; i < count; i++)
            lengths[i] = random_between(&state, 0, most);
        sort_items(lengths, count, sorted);
        create(tsr_sampler_length_sorted_params(.lengths = lengths, .count = count,
                                                .batch_size = size, .seed = round));
        items_epoch(sampler, round % 5, &all);
        check_batches(sorted, count, (uint64_t)size);
    }
}
END_TEST

START_TEST(orders_of_batches_are_equally_frequent)
{
    const int64_t lengths[] = {4, 4, 3, 3, 2, 2, 1};
    int seen[4 * 4 * 4 * 4] = {0}, orders = 0;
    create(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 7, .batch_size = 2));
    const int epochs = 24000;
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        items_epoch(sampler, epoch, &all);
        int code = 0;
        for (uint64_t b = 0; b < 4; b++) /* the shortest length in a batch identifies it */
            code = code * 4 + (int)lengths[all.indices[all.start[b]]] - 1;
        seen[code]++;
    }
    double chi = 0;
    for (int code = 0; code < 256; code++) {
        if (seen[code] == 0)
            continue;
        orders++;
        double off = seen[code] - epochs / 24.0;
        chi += off * off / (epochs / 24.0);
    }
    ck_assert_int_eq(orders, 24);
    ck_assert_double_lt(chi, 49.7); /* 23 degrees of freedom, p = 0.001 */
}
END_TEST

START_TEST(order_depends_on_seed_and_epoch)
{
    int64_t lengths[64];
    for (int i = 0; i < 64; i++)
        lengths[i] = i;
    create(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 64, .batch_size = 2,
                                            .seed = 1));
    items_epoch(sampler, 0, &all);
    items_epoch(sampler, 1, &others);
    ck_assert(!items_equal_from(&all, 0, &others));
    create(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 64, .batch_size = 2,
                                            .seed = 1));
    items_epoch(sampler, 1, &all);
    ck_assert(items_equal_from(&all, 0, &others));
    create(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 64, .batch_size = 2,
                                            .seed = 2));
    items_epoch(sampler, 1, &all);
    ck_assert(!items_equal_from(&all, 0, &others));
}
END_TEST

START_TEST(at_the_edges)
{
    const int64_t one[] = {INT64_MAX};
    create(tsr_sampler_length_sorted_params(.batch_size = 4));
    items_epoch(sampler, 0, &all);
    ck_assert_uint_eq(all.count, 0);
    create(tsr_sampler_length_sorted_params(.lengths = one, .count = 1, .batch_size = INT64_MAX));
    ck_assert_uint_eq(info_of(sampler).batch_max, 1);
    items_epoch(sampler, INT64_MAX, &all);
    ck_assert_uint_eq(all.count, 1);
    ck_assert_int_eq(all.indices[0], 0);
}
END_TEST

static void check_refused(const tsr_sampler_length_sorted_params *params, const char *text)
{
    tsr_sampler *made = NULL;
    ck_assert_error(tsr_sampler_create_length_sorted(params, &made), TSR_ERR_INVALID, text);
    ck_assert_ptr_null(made);
}

START_TEST(errors)
{
    const int64_t lengths[] = {1, 2, -3};
    check_refused(NULL, "length-sorted: params is NULL");
    check_refused(tsr_sampler_length_sorted_params(.count = 3, .batch_size = 1),
                  "length-sorted: lengths is NULL for 3 items");
    check_refused(tsr_sampler_length_sorted_params(.lengths = lengths,
                                                   .count = TSR_MAX_SAMPLER_SORTED + 1,
                                                   .batch_size = 1),
                  "length-sorted: 2147483649 items are more than 2^31");
    check_refused(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 3, .batch_size = 1),
                  "length-sorted: item 2 has the negative length -3");
    check_refused(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 2),
                  "length-sorted: batch size 0 is not positive");
    check_refused(
        tsr_sampler_length_sorted_params(.lengths = lengths, .count = 2, .batch_size = -8),
        "length-sorted: batch size -8 is not positive");
    check_refused(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 2, .batch_size = 1,
                                                   .order = TSR_ORDER_TORCH),
                  "length-sorted: order 'torch' is not supported: use feistel or none");
    check_refused(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 2, .batch_size = 1,
                                                   .order = (tsr_order)9),
                  "length-sorted: 9 is no order");
    create(tsr_sampler_length_sorted_params(.lengths = lengths, .count = 2, .batch_size = 1));
    ck_assert_error(tsr_sampler_set_epoch(sampler, -1), TSR_ERR_INVALID,
                    "length-sorted: epoch -1 is negative");
    ck_assert_int_eq(tsr_sampler_epoch(sampler), 0);
}
END_TEST

TESTS(length_sorted)
{
    tcase_add_checked_fixture(tests, NULL, destroy);
    tcase_add_test(tests, order_none_gives_sorted_batches);
    tcase_add_test(tests, shuffling_only_moves_batches);
    tcase_add_test(tests, orders_of_batches_are_equally_frequent);
    tcase_add_test(tests, order_depends_on_seed_and_epoch);
    tcase_add_test(tests, at_the_edges);
    tcase_add_test(tests, errors);
}
