/* Saving a loader in the middle of an epoch, and resuming in another loader. */
#include "fixture.h"

static source data;
RESET_DATA

static void read_some(tsr_loader *loader, uint64_t batches)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    for (uint64_t b = 0; b < batches; b++) {
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        ck_assert(got);
    }
}

static tsr_loader *make_torch(int workers)
{
    tsr_loader *out = NULL;
    ck_assert_ok(tsr_loader_create(PARAMS(.n = 40, .batch_size = 3, .shuffle = true,
                                          .order = TSR_ORDER_TORCH, .seed = 7, .workers = workers),
                                   &out));
    return out;
}

START_TEST(batches_loaded_ahead_are_not_used)
{
    for (uint64_t used = 0; used <= 14; used++)
        for (int workers = 0; workers <= 3; workers += 3) {
            uint8_t state[TSR_SAMPLER_STATE_BYTES];
            size_t size;
            tsr_loader *from = make_torch(workers), *to = make_torch(3 - workers);
            ck_assert_ok(tsr_loader_set_epoch(from, 2));
            read_some(from, used);
            ck_assert_ok(tsr_loader_save(from, sizeof state, state, &size));
            ck_assert_ok(tsr_loader_resume(to, state, size));
            ck_assert_uint_eq(loader_info(to).position, used);
            ck_assert_int_eq(loader_info(to).epoch, 2);
            ck_assert_uint_eq(fixture_read(to, 1), fixture_read(from, 1));
            tsr_loader_destroy(&from);
            tsr_loader_destroy(&to);
        }
}
END_TEST

/* The state of this sampler does not follow from its position. The loader must save the
 * sampler's state before the next batch, although the sampler has already gone further. */
START_TEST(a_sampler_with_a_state_of_its_own)
{
    for (uint64_t used = 0; used <= 5; used++)
        for (int workers = 0; workers <= 2; workers++) {
            uint8_t state[TSR_SAMPLER_STATE_BYTES];
            size_t size;
            squares numbers = {.count = 25}, others = {.count = 25};
            tsr_sampler *sampler = squares_create(&numbers, true);
            tsr_sampler *other = squares_create(&others, true);
            tsr_loader *from = NULL, *to = NULL;
            ck_assert_ok(tsr_loader_create(
                PARAMS(.sampler = sampler, .batch_size = 5, .workers = workers), &from));
            tsr_sampler_destroy(&sampler);
            ck_assert_ok(
                tsr_loader_create(PARAMS(.sampler = other, .batch_size = 5, .workers = 1), &to));
            tsr_sampler_destroy(&other);
            read_some(from, used);
            ck_assert_ok(tsr_loader_save(from, sizeof state, state, &size));
            ck_assert_ok(tsr_loader_resume(to, state, size));
            ck_assert_uint_eq(fixture_read(to, 1), fixture_read(from, 1));
            tsr_loader_destroy(&from);
            tsr_loader_destroy(&to);
        }
}
END_TEST

/* A sampler that cannot be saved can still be read. */
START_TEST(a_sampler_that_cannot_be_saved)
{
    for (int workers = 0; workers <= 2; workers++) {
        squares numbers = {.count = 60, .secret = 40};
        tsr_sampler *sampler = squares_create(&numbers, true);
        tsr_loader *loader = NULL;
        ck_assert_ok(tsr_loader_create(
            PARAMS(.sampler = sampler, .batch_size = 2, .workers = workers), &loader));
        tsr_sampler_destroy(&sampler);
        for (uint64_t b = 0; b < 30; b++) {
            uint8_t state[TSR_SAMPLER_STATE_BYTES];
            size_t size;
            tsr_status status = tsr_loader_save(loader, sizeof state, state, &size);
            ck_assert((status != TSR_OK) == (b == 20));
            read_some(loader, 1);
        }
        tsr_loader_destroy(&loader);
    }
}
END_TEST

START_TEST(a_failed_batch_is_not_used)
{
    data = (source){.fail = true, .failing = 6, .failures = -1};
    for (int workers = 0; workers <= 2; workers++) {
        uint8_t state[TSR_SAMPLER_STATE_BYTES];
        size_t size;
        tsr_loader *loader = NULL, *to = NULL;
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got;
        ck_assert_ok(
            tsr_loader_create(PARAMS(.n = 9, .batch_size = 3, .workers = workers), &loader));
        ck_assert_ok(tsr_loader_create(PARAMS(.n = 9, .batch_size = 3), &to));
        ck_assert_int_eq(tsr_loader_next(loader, &batch, &got), TSR_ERR_IO);
        ck_assert_ok(tsr_loader_save(loader, sizeof state, state, &size));
        ck_assert_ok(tsr_loader_resume(to, state, size));
        ck_assert_uint_eq(loader_info(to).position, 0);
        ck_assert_ok(tsr_loader_skip(loader));
        ck_assert_ok(tsr_loader_save(loader, sizeof state, state, &size));
        ck_assert_ok(tsr_loader_resume(to, state, size));
        ck_assert_uint_eq(loader_info(to).position, 1);
        tsr_loader_destroy(&loader);
        tsr_loader_destroy(&to);
    }
}
END_TEST

static tsr_loader *make_rank(int64_t rank, int64_t ranks, int workers)
{
    tsr_sampler *sampler = NULL;
    tsr_loader *out = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 101, .ranks = ranks, .rank = rank,
                                       .tail = TSR_TAIL_UNEVEN, .seed = 5),
        &sampler));
    ck_assert_ok(
        tsr_loader_create(PARAMS(.sampler = sampler, .batch_size = 4, .n = 101, .workers = workers,
                                 .node = (int)rank, .seed_strategy = TSR_SEED_STRATEGY_HASHED),
                          &out));
    tsr_sampler_destroy(&sampler);
    return out;
}

static void count_indices(tsr_loader *loader, uint64_t most, int *seen)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got = true;
    for (uint64_t b = 0; b < most; b++) {
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        if (!got)
            break;
        for (uint64_t i = 0; i < batch.count; i++)
            seen[batch.indices[i]]++;
    }
}

START_TEST(another_number_of_ranks)
{
    for (int64_t ranks = 1; ranks <= 4; ranks++)
        for (int64_t then = 1; then <= 4; then++)
            for (uint64_t used = 0; used < 6; used += 2) {
                uint8_t state[TSR_SAMPLER_STATE_BYTES];
                size_t size = 0;
                int seen[101] = {0};
                for (int64_t rank = ranks - 1; rank >= 0; rank--) {
                    tsr_loader *loader = make_rank(rank, ranks, (int)(rank % 3));
                    ck_assert_ok(tsr_loader_set_epoch(loader, 3));
                    count_indices(loader, used, seen);
                    ck_assert_ok(tsr_loader_save(loader, sizeof state, state, &size));
                    tsr_loader_destroy(&loader);
                }
                for (int64_t rank = 0; rank < then; rank++) {
                    tsr_loader *loader = make_rank(rank, then, 2 - (int)(rank % 3));
                    ck_assert_ok(tsr_loader_resume(loader, state, size));
                    ck_assert_int_eq(loader_info(loader).epoch, 3);
                    count_indices(loader, UINT64_MAX, seen);
                    tsr_loader_destroy(&loader);
                }
                for (int i = 0; i < 101; i++)
                    ck_assert_int_eq(seen[i], 1);
            }
}
END_TEST

START_TEST(states_of_other_samplers_change_nothing)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    tsr_loader *loader = make_torch(2), *same = make_torch(0), *other = NULL;
    ck_assert_ok(tsr_loader_create(PARAMS(.n = 41, .batch_size = 3), &other));
    ck_assert_ok(tsr_loader_save(other, sizeof state, state, &size));
    read_some(loader, 4);
    read_some(same, 4);
    ck_assert_error(
        tsr_loader_resume(loader, state, size), TSR_ERR_INVALID,
        "sampler resume: offset 18: the state's batch sampler wraps a sequential sampler, "
        "this one a random sampler");
    ck_assert_int_eq(tsr_loader_resume(loader, NULL, 0), TSR_ERR_INVALID);
    ck_assert_error(tsr_loader_save(loader, 10, state, &size), TSR_ERR_INVALID,
                    "loader save: the state takes 35 bytes, there is room for 10");
    ck_assert_uint_eq(fixture_read(loader, 1), fixture_read(same, 1));
    tsr_loader_destroy(&loader);
    tsr_loader_destroy(&same);
    tsr_loader_destroy(&other);
}
END_TEST

TESTS(loader_state)
{
    tcase_add_checked_fixture(tests, reset_data, NULL);
    tcase_add_test(tests, batches_loaded_ahead_are_not_used);
    tcase_add_test(tests, a_sampler_with_a_state_of_its_own);
    tcase_add_test(tests, a_sampler_that_cannot_be_saved);
    tcase_add_test(tests, a_failed_batch_is_not_used);
    tcase_add_test(tests, another_number_of_ranks);
    tcase_add_test(tests, states_of_other_samplers_change_nothing);
}
