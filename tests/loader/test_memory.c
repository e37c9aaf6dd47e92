/* Every allocation fails once, and so does every function that starts a thread. */
#include "base/fault.h"
#include "fixture.h"
#include "sampler/info.h"

static source data;
RESET_DATA

/* Creates a loader, reads two epochs and saves. Retries a failed step once. With the order torch,
 * setting an epoch and reading also allocate memory. */
static tsr_status use(int workers, tsr_sampler *sampler, uint64_t *hash)
{
    tsr_loader *loader = NULL;
    tsr_status status = tsr_loader_create(
        tsr_loader_params(.user = &data, .load_item = fixture_item, .item_bytes = sizeof(record),
                          .worker_init = fixture_init, .worker_finish = fixture_finish,
                          .sampler = sampler, .n = sampler != NULL ? 0 : 30, .batch_size = 4,
                          .shuffle = sampler == NULL,
                          .order = sampler == NULL ? TSR_ORDER_TORCH : TSR_ORDER_FEISTEL,
                          .workers = workers),
        &loader);
    if (status != TSR_OK) {
        ck_assert(loader == NULL);
        return status;
    }
    *hash = FIXTURE_HASH;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        if (tsr_loader_set_epoch(loader, epoch) != TSR_OK) {
            status = TSR_ERR_NO_MEMORY;
            ck_assert_ok(tsr_loader_set_epoch(loader, epoch));
        }
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got = true;
        while (got) {
            if (tsr_loader_next(loader, &batch, &got) != TSR_OK) {
                ck_assert(strstr(tsr_last_error(), "out of host memory") != NULL);
                ck_assert(strncmp(tsr_last_error(), "loader: batch ", 14) == 0);
                status = TSR_ERR_NO_MEMORY;
            } else if (got) {
                *hash = fixture_hash(*hash, &batch);
            }
        }
    }
    tsr_loader_destroy(&loader);
    return status;
}

static void fail_each(int workers, bool with_sampler, int expected)
{
    uint64_t whole = 0, hash = 0;
    int threads = 0, events = 0;
    tsr_sampler *sampler = NULL;
    if (with_sampler)
        ck_assert_ok(tsr_sampler_create_sequential(30, &sampler));
    ck_assert_ok(use(workers, sampler, &whole));
    for (bool failed = true; failed; events++) {
        hash = whole;
        tsr__fault_arm(TSR__FAULT_ALLOC, (uint64_t)events, 0);
        tsr_status status = use(workers, sampler, &hash);
        const char *site = tsr__fault_site();
        tsr__fault_disarm();
        failed = site != NULL;
        ck_assert_int_eq(status, failed ? TSR_ERR_NO_MEMORY : TSR_OK);
        ck_assert_uint_eq(hash, whole);
        if (failed && strcmp(site, "pthread_create") == 0) {
            char text[128];
            snprintf(text, sizeof text,
                     "loader: worker %d of %d could not be started: Resource temporarily "
                     "unavailable",
                     threads++, workers);
            ck_assert_str_eq(tsr_last_error(), text);
        }
        ck_assert_int_eq(atomic_load(&data.inits), atomic_load(&data.finishes));
    }
    tsr_sampler_destroy(&sampler);
    ck_assert_int_eq(threads, workers);
    ck_assert_int_ge(events, expected);
}

START_TEST(without_workers)
{
    fail_each(0, false, 9);
    fail_each(0, true, 8);
}
END_TEST

START_TEST(with_workers)
{
    fail_each(1, false, 20);
    fail_each(3, false, 30);
    fail_each(3, true, 30);
}
END_TEST

/* A sampler of the caller must not be destroyed by a loader whose creation failed, nor when the
 * loader is destroyed. */
START_TEST(the_sampler_remains_the_callers)
{
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_sequential(30, &sampler));
    int events = 0;
    for (bool failed = true; failed; events++) {
        tsr_loader *loader = NULL;
        tsr__fault_arm(TSR__FAULT_ALLOC, (uint64_t)events, 0);
        tsr_status status = tsr_loader_create(tsr_loader_params(.load_item = fixture_item,
                                                                .item_bytes = sizeof(record),
                                                                .sampler = sampler, .workers = 2),
                                              &loader);
        failed = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, failed ? TSR_ERR_NO_MEMORY : TSR_OK);
        tsr_loader_destroy(&loader);
        int64_t index = -1;
        bool got = false;
        ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
        ck_assert_ok(next_index(sampler, &index, &got));
        ck_assert(got && index == 0);
        ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
    }
    tsr_sampler_destroy(&sampler);
    ck_assert_int_gt(events, 20);
}
END_TEST

TESTS(loader_memory)
{
    tcase_add_checked_fixture(tests, reset_data, NULL);
    tcase_add_test(tests, without_workers);
    tcase_add_test(tests, with_workers);
    tcase_add_test(tests, the_sampler_remains_the_callers);
}
