/* A failure to load must be reported in place of its batch, and the batch can be retried. */
#include "one_loader.h"

/* Checks that the next batch fails with these values, and that the position does not change. */
static void check_failure(tsr_status status, const char *text, uint64_t number, int64_t index,
                          uint64_t place, int worker)
{
    tsr_loader_batch batch = {.struct_size = sizeof batch, .batch = 12345};
    loader_failure failure;
    bool got = true;
    ck_assert_int_eq(tsr_loader_next(loader, &batch, &got), status);
    ck_assert_str_eq(tsr_last_error(), text);
    ck_assert(got && batch.batch == 12345);
    ck_assert_uint_eq(loader_info(loader).position, number);
    ck_assert_ok(find_failure(loader, &failure));
    ck_assert_uint_eq(failure.batch, number);
    ck_assert_int_eq(failure.epoch, loader_info(loader).epoch);
    ck_assert_int_eq(failure.index, index);
    ck_assert_uint_eq(failure.place, place);
    ck_assert_int_eq(failure.worker, worker);
    ck_assert_int_eq(failure.status, status);
}

static void check_end(void)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got = true;
    ck_assert_ok(tsr_loader_next(loader, &batch, &got));
    ck_assert(!got);
}

/* The indices are 0 … 29 in batches of 4. Every tenth index always fails, so batches 0, 2 and 5
 * fail. Batches 2 and 5 fail long before that is reported. */
START_TEST(each_failure_is_reported_in_place_of_its_batch)
{
    data = (source){.fail = true, .failing = 10, .failures = -1, .reason = "the disk is gone"};
    for (int workers = 0; workers <= 4; workers++) {
        for (int batchwise = 0; batchwise < 2; batchwise++) {
            tsr_loader_params params = *PARAMS(.n = 30, .batch_size = 4, .workers = workers,
                                               .prefetch = workers > 0 ? 8 : 0);
            if (batchwise) {
                params.load_item = NULL;
                params.load_batch = fixture_batch;
            }
            int alive = workers == 0 ? 1 : workers;
            create(&params);
            ck_assert_ok(tsr_loader_set_epoch(loader, 6));
            for (int again = 0; again < 3; again++)
                check_failure(TSR_ERR_IO, "loader: batch 0 of epoch 6: index 0: the disk is gone",
                              0, 0, 0, 0);
            ck_assert_ok(tsr_loader_skip(loader));
            check_next(1);
            check_failure(TSR_ERR_IO, "loader: batch 2 of epoch 6: index 10: the disk is gone", 2,
                          10, 2, 2 % alive);
            ck_assert_ok(tsr_loader_skip(loader));
            check_next(3);
            check_next(4);
            check_failure(TSR_ERR_IO, "loader: batch 5 of epoch 6: index 20: the disk is gone", 5,
                          20, 0, 5 % alive);
            ck_assert_ok(tsr_loader_skip(loader));
            check_next(6);
            check_next(7);
            check_end();
            atomic_store(&data.running, 0);
        }
    }
}
END_TEST

START_TEST(a_failed_batch_is_retried)
{
    for (int workers = 0; workers <= 3; workers++) {
        data = (source){.fail = true, .failing = 7, .failures = 3};
        create(PARAMS(.n = 20, .workers = workers));
        int failures = 0;
        for (uint64_t b = 0; b < 20;) {
            tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
            bool got;
            tsr_status status = tsr_loader_next(loader, &batch, &got);
            if (status != TSR_OK) {
                ck_assert_uint_eq(b % 7, 0);
                failures++;
            } else {
                ck_assert(got && batch.batch == b && *batch.indices == (int64_t)b);
                b++;
            }
        }
        check_end();
        ck_assert_int_eq(failures, 3);
    }
}
END_TEST

START_TEST(only_a_failed_batch_can_be_skipped)
{
    loader_failure failure;
    create(PARAMS(.n = 5, .workers = 1));
    ck_assert_error(tsr_loader_skip(loader), TSR_ERR_NOT_FOUND, "loader: batch 0 has not failed");
    check_next(0);
    ck_assert_int_eq(find_failure(loader, &failure), TSR_ERR_NOT_FOUND);
    ck_assert_uint_eq(loader_info(loader).position, 1);
}
END_TEST

/* While loading, the worker calls functions of the library that fail. They record an error text
 * in the worker's thread, which the caller cannot see. */
static tsr_status use_the_library(void *user, tsr_loader_work *work)
{
    tsr_sampler *sampler;
    (void)user;
    return work->batch == 1 ? tsr_sampler_create_length_sorted(
                                  tsr_sampler_length_sorted_params(.count = 0), &sampler)
                            : TSR_OK;
}

static tsr_status say_nothing(void *user, tsr_loader_work *work)
{
    (void)user;
    return work->batch == 1 ? TSR_ERR_UNSUPPORTED : TSR_OK;
}

START_TEST(the_reason_is_found)
{
    for (int workers = 0; workers <= 2; workers++) {
        create(tsr_loader_params(.load_batch = use_the_library, .n = 3, .workers = workers));
        check_next(0);
        check_failure(TSR_ERR_INVALID,
                      "loader: batch 1 of epoch 0: index 1: length-sorted: batch size 0 is not "
                      "positive",
                      1, 1, 0, workers == 2);
        /* If the caller's function gives no reason for its failure, the error must not contain
         * the text of an earlier error. */
        create(tsr_loader_params(.load_batch = say_nothing, .n = 3, .workers = workers));
        check_next(0);
        check_failure(TSR_ERR_UNSUPPORTED,
                      "loader: batch 1 of epoch 0: index 1: load_batch failed with "
                      "TSR_ERR_UNSUPPORTED",
                      1, 1, 0, workers == 2);
    }
}
END_TEST

/* The calls succeed although the sampler cannot be saved before batch 1, and fails when a worker
 * thread asks ahead for batch 2. */
START_TEST(success_does_not_change_the_last_error)
{
    for (int workers = 0; workers <= 2; workers++) {
        squares numbers = {.count = 20, .secret = 2, .failing = 5, .failures = 1};
        tsr_sampler *sampler = squares_create(&numbers, true);
        create(PARAMS(.sampler = sampler, .batch_size = 2, .workers = workers));
        tsr_sampler_destroy(&sampler);
        ck_assert_int_eq(tsr_loader_skip(loader), TSR_ERR_NOT_FOUND);
        check_next(0);
        check_next(1);
        ck_assert_str_eq(tsr_last_error(), "loader: batch 0 has not failed");
    }
}
END_TEST

static char long_reason[4000];

START_TEST(a_long_reason_is_cut)
{
    char expected[sizeof long_reason + 64];
    for (size_t i = 0; i + 1 < sizeof long_reason; i++)
        long_reason[i] = "ä"[i % 2];
    data = (source){.fail = true, .failing = 1, .failures = -1, .reason = long_reason};
    create(PARAMS(.n = 2, .workers = 1));
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    ck_assert_int_eq(tsr_loader_next(loader, &batch, &got), TSR_ERR_IO);
    snprintf(expected, sizeof expected, "loader: batch 0 of epoch 0: index 0: %s", long_reason);
    size_t size = strlen(tsr_last_error());
    ck_assert_uint_gt(size, 1000);
    ck_assert_uint_lt(size, 1030);
    ck_assert_mem_eq(tsr_last_error(), expected, size - 4); /* up to the "…" */
}
END_TEST

static tsr_status use_too_much(void *user, tsr_loader_work *work)
{
    (void)user;
    work->size_bytes = work->capacity_bytes + (work->batch == 1);
    return TSR_OK;
}

static tsr_status lose_its_place(void *user, tsr_loader_work *work)
{
    (void)user;
    work->place = UINT64_MAX;
    return TSR_ERR_IO;
}

/* Fails only by using too many bytes. */
static tsr_status ends_after_its_place(void *user, tsr_loader_work *work)
{
    (void)user;
    work->place = work->count;
    work->size_bytes++;
    return TSR_OK;
}

START_TEST(functions_that_set_invalid_values)
{
    for (int workers = 0; workers <= 2; workers++) {
        create(tsr_loader_params(.load_batch = use_too_much, .item_bytes = 3, .batch_bytes = 1,
                                 .n = 6, .batch_size = 2, .workers = workers));
        check_next(0);
        check_failure(TSR_ERR_INVALID,
                      "loader: batch 1 of epoch 0: load_batch used 8 bytes, there are 7", 1, 2, 0,
                      workers == 2);
        create(tsr_loader_params(.load_batch = lose_its_place, .n = 6, .batch_size = 2,
                                 .workers = workers));
        check_failure(TSR_ERR_IO,
                      "loader: batch 0 of epoch 0: load_batch set place 18446744073709551615 in a "
                      "batch of 2: load_batch failed with TSR_ERR_IO",
                      0, -1, UINT64_MAX, 0);
        create(tsr_loader_params(.load_batch = ends_after_its_place, .item_bytes = 1, .n = 6,
                                 .batch_size = 2, .workers = workers));
        check_failure(TSR_ERR_INVALID,
                      "loader: batch 0 of epoch 0: load_batch used 3 bytes, there are 2", 0, 0, 0,
                      0);
    }
}
END_TEST

START_TEST(an_index_out_of_range)
{
    for (int workers = 0; workers <= 2; workers++) {
        const int64_t indices[] = {0, 1, 2, 9, 10, 3, 4, -1};
        tsr_sampler *sampler = NULL;
        ck_assert_ok(tsr_sampler_create_subset(
            tsr_sampler_subset_params(.indices = indices, .count = 8, .order = TSR_ORDER_NONE),
            &sampler));
        create(PARAMS(.sampler = sampler, .n = 10, .batch_size = 2, .workers = workers));
        tsr_sampler_destroy(&sampler);
        check_next(0);
        check_next(1);
        for (int again = 0; again < 2; again++)
            check_failure(TSR_ERR_INVALID,
                          "loader: batch 2 of epoch 0: index 10 is outside of 0 to 9", 2, 10, 0,
                          -1);
        ck_assert_ok(tsr_loader_skip(loader));
        check_failure(TSR_ERR_INVALID, "loader: batch 3 of epoch 0: index -1 is outside of 0 to 9",
                      3, -1, 1, -1);
        ck_assert_ok(tsr_loader_skip(loader));
        check_end();
        ck_assert_int_eq(atomic_load(&data.begun), 2 * (workers + 1));
    }
}
END_TEST

/* The failure of a sampler must be reported after the batches before it, however early it
 * happened. */
START_TEST(a_sampler_that_fails)
{
    for (int workers = 0; workers <= 3; workers++) {
        squares numbers = {.count = 20, .failing = 9, .failures = 2};
        tsr_sampler *sampler = squares_create(&numbers, false);
        create(PARAMS(.sampler = sampler, .batch_size = 2, .workers = workers));
        tsr_sampler_destroy(&sampler);
        for (uint64_t b = 0; b < 4; b++)
            check_next(b);
        for (int again = 0; again < 2; again++) {
            tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
            loader_failure failure;
            bool got;
            ck_assert_int_eq(tsr_loader_next(loader, &batch, &got), TSR_ERR_IO);
            ck_assert_mem_eq(tsr_last_error(), "loader: batch 4 of epoch 0: ", 28);
            ck_assert_ptr_nonnull(strstr(tsr_last_error(), "squares"));
            ck_assert_int_eq(find_failure(loader, &failure), TSR_ERR_NOT_FOUND);
            ck_assert_uint_eq(loader_info(loader).position, 4);
        }
        for (uint64_t b = 4; b < 10; b++)
            check_next(b);
        check_end();
    }
}
END_TEST

/* If the loader moves to another batch or epoch, it must forget failures. */
START_TEST(moving_clears_failures)
{
    loader_failure failure;
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    for (int workers = 0; workers <= 2; workers++) {
        data = (source){.fail = true, .failing = 3, .failures = -1};
        create(PARAMS(.n = 10, .workers = workers));
        check_failure(TSR_ERR_IO,
                      "loader: batch 0 of epoch 0: index 0: load_item failed with TSR_ERR_IO", 0, 0,
                      0, 0);
        ck_assert_ok(tsr_loader_seek(loader, 4));
        ck_assert_int_eq(find_failure(loader, &failure), TSR_ERR_NOT_FOUND);
        check_next(4);
        check_next(5);

        squares numbers = {.count = 6, .failing = 3, .failures = 1};
        tsr_sampler *sampler = squares_create(&numbers, false);
        tsr_loader_destroy(&loader);
        data.fail = false;
        create(PARAMS(.sampler = sampler, .workers = workers));
        tsr_sampler_destroy(&sampler);
        check_next(0); /* two workers have read ahead, so the sampler's only failure is over */
        ck_assert_ok(tsr_loader_set_epoch(loader, 1));
        for (uint64_t b = 0; b < 6; b++) {
            if (workers < 2 && b == 3)
                ck_assert_int_eq(tsr_loader_next(loader, &batch, &got), TSR_ERR_IO);
            check_next(b);
        }
        check_end();
    }
}
END_TEST

static atomic_int refusals;

static tsr_status refuse_to_begin(void *user, tsr_loader_worker *worker)
{
    (void)user;
    if (worker->id != 1 || atomic_fetch_sub(&refusals, 1) <= 0)
        return TSR_OK;
    if (atomic_load(&refusals) > 0) /* the second refusal gives no reason */
        worker->reason = "no licence";
    return TSR_ERR_UNSUPPORTED;
}

START_TEST(a_worker_whose_init_fails)
{
    atomic_store(&refusals, 2);
    create(PARAMS(.n = 8, .batch_size = 2, .workers = 2, .worker_init = refuse_to_begin));
    check_next(0);
    check_failure(TSR_ERR_UNSUPPORTED, "loader: batch 1 of epoch 0: worker 1: no licence", 1, 2, 0,
                  1);
    /* Later batches of the worker retry worker_init, and one of them may have been refused in the
     * meantime. */
    uint64_t b = 1;
    for (int tries = 0; b < 4; tries++) {
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got;
        tsr_status status = tsr_loader_next(loader, &batch, &got);
        if (status == TSR_OK)
            b++;
        else
            ck_assert_str_eq(tsr_last_error() + strlen("loader: batch 1 of epoch 0: "),
                             "worker 1: worker_init failed with TSR_ERR_UNSUPPORTED");
        ck_assert_int_lt(tries, 6);
    }
    check_end();
}
END_TEST

START_TEST(a_batch_that_times_out)
{
    data = (source){.hold = true, .held = 2};
    create(PARAMS(.n = 6, .workers = 2, .timeout_ns = 20000000));
    check_next(0);
    check_next(1);
    for (int again = 0; again < 3; again++) {
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got;
        ck_assert_error(tsr_loader_next(loader, &batch, &got), TSR_ERR_TIMEOUT,
                        "loader: batch 2 of epoch 0 was not loaded within 20000000 ns");
        ck_assert_error(tsr_loader_skip(loader), TSR_ERR_NOT_FOUND,
                        "loader: batch 2 has not failed");
    }
    ck_assert_uint_eq(loader_info(loader).position, 2);
    atomic_store(&data.let_go, true);
    check_next(2);
}
END_TEST

START_TEST(the_longest_timeout)
{
    create(PARAMS(.n = 6, .workers = 2, .timeout_ns = UINT64_MAX));
    for (uint64_t b = 0; b < 6; b++)
        check_next(b);
}
END_TEST

static tsr_status reads_its_loader(void *user, tsr_loader_work *work, int64_t index, void *item)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    (void)user;
    (void)work;
    (void)index;
    if (item != NULL)
        atomic_fetch_add(&data.wrong, 1);
    (void)!tsr_loader_seek(loader, 2);
    return tsr_loader_next(loader, &batch, &got);
}

static tsr_status returns_no_status(void *user, tsr_loader_work *work, int64_t index, void *item)
{
    (void)user;
    (void)work;
    (void)index;
    (void)item;
    return (tsr_status)5;
}

START_TEST(functions_that_call_their_loader)
{
    for (int workers = 0; workers <= 1; workers++) {
        create(tsr_loader_params(.n = 4, .workers = workers, .load_item = reads_its_loader));
        check_failure(TSR_ERR_INVALID,
                      "loader: batch 0 of epoch 0: index 0: loader next: called by a function of "
                      "this loader's params, which must not use the loader",
                      0, 0, 0, 0);
        create(tsr_loader_params(.n = 4, .workers = workers, .load_item = returns_no_status));
        check_failure(
            (tsr_status)5,
            "loader: batch 0 of epoch 0: index 0: load_item returned 5, which is no tsr_status", 0,
            0, 0, 0);
    }
}
END_TEST

TESTS(loader_failures)
{
    tcase_add_checked_fixture(tests, reset_data, destroy);
    tcase_add_test(tests, each_failure_is_reported_in_place_of_its_batch);
    tcase_add_test(tests, a_failed_batch_is_retried);
    tcase_add_test(tests, only_a_failed_batch_can_be_skipped);
    tcase_add_test(tests, the_reason_is_found);
    tcase_add_test(tests, success_does_not_change_the_last_error);
    tcase_add_test(tests, a_long_reason_is_cut);
    tcase_add_test(tests, functions_that_set_invalid_values);
    tcase_add_test(tests, functions_that_call_their_loader);
    tcase_add_test(tests, an_index_out_of_range);
    tcase_add_test(tests, a_sampler_that_fails);
    tcase_add_test(tests, moving_clears_failures);
    tcase_add_test(tests, a_worker_whose_init_fails);
    tcase_add_test(tests, a_batch_that_times_out);
    tcase_add_test(tests, the_longest_timeout);
}
