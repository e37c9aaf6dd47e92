/* Batches that may be larger than the dataset need room only for the existing items. */
#include "sampler/info.h"
#include "sampler/read.h"

enum { N = 10, KINDS = 8 };

static tsr_sampler *share_of(tsr_sampler *base, int64_t ranks)
{
    tsr_sampler *out = NULL;
    tsr_sampler_distributed_params params = {
        .struct_size = sizeof params, .ranks = ranks, .tail = TSR_TAIL_PAD_MASK};
    if (base != NULL)
        params.base = base;
    else
        params.n = N;
    ck_assert_ok(tsr_sampler_create_distributed(&params, &out));
    tsr_sampler_destroy(&base);
    return out;
}

/* Makes a sampler with ten indices in an epoch. The last two kinds divide these indices among
 * `ranks` ranks; the sampler is that of rank 0. */
static tsr_sampler *ten(int kind, int64_t ranks)
{
    static const int64_t indices[N] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
    static const double numbers[N] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1};
    tsr_sampler *out = NULL;
    switch (kind) {
    case 0:
        ck_assert_ok(tsr_sampler_create_sequential(N, &out));
        return out;
    case 1:
        ck_assert_ok(tsr_sampler_create_random(tsr_sampler_random_params(.n = N), &out));
        return out;
    case 2:
        ck_assert_ok(tsr_sampler_create_random(
            tsr_sampler_random_params(.n = 1000, .num_samples = N, .replacement = true), &out));
        return out;
    case 3:
        ck_assert_ok(tsr_sampler_create_subset(
            tsr_sampler_subset_params(.indices = indices, .count = N), &out));
        return out;
    case 4:
        ck_assert_ok(tsr_sampler_create_weighted(
            tsr_sampler_weighted_params(.weights = numbers, .count = N, .num_samples = N,
                                        .replacement = true),
            &out));
        return out;
    case 5:
        ck_assert_ok(tsr_sampler_create_curriculum(
            tsr_sampler_curriculum_params(.difficulties = numbers, .count = N, .max_epochs = 3),
            &out));
        return out;
    case 6:
        return share_of(NULL, ranks);
    default:
        return share_of(ten(0, 1), ranks);
    }
}

static tsr_sampler *batches_of(tsr_sampler *base, int64_t batch_size, bool drop_last)
{
    tsr_sampler *out = NULL;
    ck_assert_ok(tsr_sampler_create_batch(
        tsr_sampler_batch_params(.base = base, .batch_size = batch_size, .drop_last = drop_last),
        &out));
    tsr_sampler_destroy(&base);
    return out;
}

/* Reads a batch into memory of exactly `capacity` indices, so that sanitizers detect writes past
 * the end. */
static void check_next(tsr_sampler *sampler, uint64_t capacity, uint64_t expected)
{
    int64_t *indices = calloc(capacity, sizeof *indices);
    uint8_t *mask = calloc(capacity, 1);
    uint64_t count = 77;
    ck_assert(indices != NULL && mask != NULL);
    ck_assert_ok(tsr_sampler_next(sampler, capacity, indices, mask, &count));
    ck_assert_uint_eq(count, expected);
    for (uint64_t i = 0; i < count; i++)
        ck_assert_uint_eq(mask[i], 1);
    free(indices);
    free(mask);
}

START_TEST(one_batch_of_all_items)
{
    static const int64_t sizes[] = {N, N + 1, INT64_C(1) << 40, INT64_MAX};
    for (int kind = 0; kind < KINDS; kind++)
        for (int s = 0; s < 4; s++)
            for (int drop = 0; drop < 2; drop++) {
                tsr_sampler *sampler = batches_of(ten(kind, 1), sizes[s], drop != 0);
                const bool is_one = drop == 0 || sizes[s] == N;
                ck_assert_uint_eq(info_of(sampler).batch_max, N);
                ck_assert_uint_eq(tsr_sampler_length(sampler), is_one);
                check_next(sampler, N, is_one ? N : 0);
                check_next(sampler, N, 0);
                tsr_sampler_destroy(&sampler);
            }
}
END_TEST

/* If fewer ranks continue, one rank may get in one batch what four ranks had left. There must be
 * room for such a batch. */
START_TEST(with_fewer_ranks_batches_grow)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    tsr_sampler *four = batches_of(ten(6, 4), INT64_MAX, false);
    tsr_sampler *one = batches_of(ten(6, 1), INT64_MAX, false);
    ck_assert_ok(save_here(four, sizeof state, state, &size));
    ck_assert_ok(tsr_sampler_resume(one, state, size));
    check_next(one, N, N);
    ck_assert_ok(tsr_sampler_set_epoch(one, tsr_sampler_epoch(one)));
    ck_assert_ok(save_here(one, sizeof state, state, &size));
    ck_assert_uint_eq(info_of(four).batch_max, N);
    ck_assert_ok(tsr_sampler_resume(four, state, size));
    check_next(four, N, 3);
    tsr_sampler_destroy(&four);
    tsr_sampler_destroy(&one);
}
END_TEST

START_TEST(empty_datasets)
{
    tsr_sampler *none = NULL;
    ck_assert_ok(tsr_sampler_create_sequential(0, &none));
    tsr_sampler *sampler = batches_of(none, INT64_MAX, false);
    ck_assert_uint_eq(info_of(sampler).batch_max, 1);
    ck_assert_uint_eq(tsr_sampler_length(sampler), 0);
    check_next(sampler, 1, 0);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* The functions of a custom sampler. Its number of items is known only for the current epoch, so it
 * must not limit the size of a batch. */
static tsr_status none_left(void *self, uint64_t capacity, int64_t *indices, uint8_t *mask,
                            uint64_t *count)
{
    (void)self, (void)capacity, (void)indices, (void)mask;
    *count = 0;
    return TSR_OK;
}

static tsr_status any_epoch(void *self, int64_t epoch)
{
    (void)self, (void)epoch;
    return TSR_OK;
}

static uint64_t so_many_now(void *self)
{
    (void)self;
    return N;
}

START_TEST(unknown_lengths)
{
    const tsr_sampler_ops ops = {.struct_size = sizeof ops,
                                 .fill = none_left,
                                 .set_epoch = any_epoch,
                                 .length = so_many_now};
    tsr_sampler *own = NULL;
    ck_assert_ok(tsr_sampler_create(&ops, NULL, &own));
    tsr_sampler *sampler = batches_of(share_of(own, 1), 1000, false);
    ck_assert_uint_eq(info_of(sampler).batch_max, 1000);
    tsr_sampler_destroy(&sampler);
}
END_TEST

TESTS(batch_room)
{
    tcase_add_test(tests, one_batch_of_all_items);
    tcase_add_test(tests, with_fewer_ranks_batches_grow);
    tcase_add_test(tests, empty_datasets);
    tcase_add_test(tests, unknown_lengths);
}
