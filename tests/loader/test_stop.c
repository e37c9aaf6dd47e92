/* Leaving an epoch before its end. */
#include "one_loader.h"
#include "support/random.h"

/* Parameters that count how many workers begin and end. */
#define COUNTED(...)                                                                               \
    PARAMS(.worker_init = fixture_init, .worker_finish = fixture_finish, __VA_ARGS__)

START_TEST(destroyed_after_any_number_of_batches)
{
    data.jitter_us = 200;
    for (int workers = 0; workers <= 8; workers += 1 + workers / 2)
        for (uint64_t read = 0; read <= 13; read++) {
            create(COUNTED(.n = 25, .batch_size = 2, .workers = workers));
            for (uint64_t b = 0; b < read; b++)
                check_next(b);
            if (read % 3 == 0) /* lets the workers get to any point */
                sleep_us((int)(read * 97 % 400));
        }
}
END_TEST

/* Batch 0 loads at once; all other batches take forever unless the loader is stopped. */
START_TEST(batches_not_begun_are_not_waited_for)
{
    data.hold = true;
    data.held = 1;
    create(COUNTED(.n = 1000, .workers = 2, .prefetch = 50));
    check_next(0);
    tsr_loader_destroy(&loader);
    ck_assert_int_le(atomic_load(&data.begun), 1 + 2);
}
END_TEST

static atomic_int items;

static tsr_status wait_at_first(void *user, tsr_loader_work *work, int64_t index, void *item)
{
    (void)user;
    (void)index;
    (void)item;
    atomic_fetch_add(&items, 1);
    while (work->place == 0 && !tsr_loader_stopping(work))
        sleep_us(500);
    return TSR_OK;
}

/* If a worker is loading the items of a batch one by one, stopping waits only for its present
 * item. */
START_TEST(between_two_items_a_worker_may_stop)
{
    atomic_store(&items, 0);
    create(tsr_loader_params(.load_item = wait_at_first, .n = 1000, .batch_size = 1000,
                             .workers = 1, .timeout_ns = 1000000));
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    ck_assert_int_eq(tsr_loader_next(loader, &batch, &got), TSR_ERR_TIMEOUT);
    while (atomic_load(&items) == 0)
        sleep_us(500);
    tsr_loader_destroy(&loader);
    ck_assert_int_eq(atomic_load(&items), 1);
}
END_TEST

START_TEST(another_epoch_does_not_wait)
{
    data.hold = data.stubborn = true;
    data.held = 1;
    create(COUNTED(.n = 10, .workers = 2, .timeout_ns = 10000000));
    check_next(0);
    /* Waits until both workers load batches of epoch 0. They do not give up these batches when the
     * reader moves. */
    while (atomic_load(&data.running) < 2)
        sleep_us(200);
    ck_assert_ok(tsr_loader_set_epoch(loader, 1));
    ck_assert_ok(tsr_loader_seek(loader, 4));
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    ck_assert_error(tsr_loader_next(loader, &batch, &got), TSR_ERR_TIMEOUT,
                    "loader: batch 4 of epoch 1 was not loaded within 10000000 ns");
    atomic_store(&data.let_go, true);
    tsr_status status;
    do
        status = tsr_loader_next(loader, &batch, &got);
    while (status == TSR_ERR_TIMEOUT);
    ck_assert_int_eq(status, TSR_OK);
    ck_assert(got && batch.batch == 4 && batch.epoch == 1 && *batch.indices == 4);
    record one;
    memcpy(&one, batch.data, sizeof one);
    ck_assert(one.batch == 4 && one.epoch == 1 && one.index == 4);
}
END_TEST

/* Makes all operations of a reader in random order, and compares the batches with those of a
 * loader without workers. */
typedef struct model {
    tsr_loader *plain;
    source plain_data;
    uint64_t length;
} model;

static void compare_next(model *against)
{
    tsr_loader_batch one = TSR_INIT(tsr_loader_batch), other = TSR_INIT(tsr_loader_batch);
    bool got_one = false, got_other = false;
    ck_assert_ok(tsr_loader_next(loader, &one, &got_one));
    ck_assert_ok(tsr_loader_next(against->plain, &other, &got_other));
    ck_assert(got_one == got_other);
    if (got_one)
        ck_assert(fixture_hash(FIXTURE_HASH, &one) == fixture_hash(FIXTURE_HASH, &other));
    ck_assert(loader_info(loader).position == loader_info(against->plain).position);
}

static void resume_elsewhere(model *against, int workers, uint64_t n, int64_t batch_size,
                             int64_t seed)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES], other[TSR_SAMPLER_STATE_BYTES];
    size_t size, other_size;
    ck_assert_ok(tsr_loader_save(loader, sizeof state, state, &size));
    ck_assert_ok(tsr_loader_save(against->plain, sizeof other, other, &other_size));
    ck_assert(size == other_size && memcmp(state, other, size) == 0);
    create(COUNTED(.n = n, .batch_size = batch_size, .shuffle = true, .seed = seed,
                   .workers = workers));
    ck_assert_ok(tsr_loader_resume(loader, state, size));
}

START_TEST(random_operations)
{
    uint64_t random = 17;
    data.jitter_us = 100;
    for (int round = 0; round < 60; round++) {
        model against = {0};
        uint64_t n = (uint64_t)random_between(&random, 1, 200);
        int64_t batch_size = random_between(&random, 1, 9);
        create(COUNTED(.n = n, .batch_size = batch_size, .shuffle = true, .seed = round,
                       .workers = (int)random_between(&random, 0, 5)));
        ck_assert_ok(tsr_loader_create(
            tsr_loader_params(.user = &against.plain_data, .load_item = fixture_item,
                              .item_bytes = sizeof(record), .n = n, .batch_size = batch_size,
                              .shuffle = true, .seed = round),
            &against.plain));
        against.length = loader_info(loader).length;
        for (int step = 0; step < 40; step++) {
            int64_t what = random_between(&random, 0, 19);
            if (what == 0) {
                int64_t epoch = random_between(&random, 0, 5);
                ck_assert_ok(tsr_loader_set_epoch(loader, epoch));
                ck_assert_ok(tsr_loader_set_epoch(against.plain, epoch));
            } else if (what == 1) {
                uint64_t to = (uint64_t)random_between(&random, 0, (int64_t)against.length);
                ck_assert_ok(tsr_loader_seek(loader, to));
                ck_assert_ok(tsr_loader_seek(against.plain, to));
            } else if (what == 2) {
                resume_elsewhere(&against, (int)random_between(&random, 0, 5), n, batch_size,
                                 round);
            } else if (what == 3) {
                ck_assert(tsr_loader_seek(loader, against.length + 1) == TSR_ERR_INVALID);
                ck_assert(tsr_loader_set_epoch(loader, -1) == TSR_ERR_INVALID);
                ck_assert(tsr_loader_resume(loader, "no state", 8) == TSR_ERR_INVALID);
            } else {
                compare_next(&against);
            }
        }
        tsr_loader_destroy(&against.plain);
    }
}
END_TEST

TESTS(loader_stop)
{
    tcase_add_checked_fixture(tests, reset_data, destroy);
    tcase_add_test(tests, destroyed_after_any_number_of_batches);
    tcase_add_test(tests, batches_not_begun_are_not_waited_for);
    tcase_add_test(tests, between_two_items_a_worker_may_stop);
    tcase_add_test(tests, another_epoch_does_not_wait);
    tcase_add_test(tests, random_operations);
}
