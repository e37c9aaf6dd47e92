/* Tests children of fork(), which have none of their parent's threads. */
#include <sys/wait.h>
#include <unistd.h>

#include "one_loader.h"

#define WHOSE "the loader's workers belong to the process that forked this one"

/* Uses the loader in the child. Returns the number of the check that failed, because only the
 * parent can report with Check. */
static int be_child(const void *state, size_t state_bytes)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got = false;
    if (tsr_loader_next(loader, &batch, &got) != TSR_ERR_INVALID || got ||
        strcmp(tsr_last_error(), "loader next: " WHOSE) != 0)
        return 1;
    if (tsr_loader_skip(loader) != TSR_ERR_INVALID ||
        tsr_loader_set_epoch(loader, 1) != TSR_ERR_INVALID ||
        tsr_loader_seek(loader, 0) != TSR_ERR_INVALID ||
        tsr_loader_resume(loader, state, state_bytes) != TSR_ERR_INVALID)
        return 2;
    if (loader_info(loader).position != 1 || loader_info(loader).epoch != 0)
        return 3;
    tsr_loader_destroy(&loader);
    return loader ? 4 : 0;
}

static void expect_success(pid_t child)
{
    int status = -1;
    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(status == 0, "the child ended with status %#x", (unsigned)status);
}

/* A child must not use its parent's workers, whatever they do at the time of the fork, even if
 * one of them holds the lock. */
START_TEST(a_child_cannot_use_its_parents_workers)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t state_bytes;
    data.jitter_us = 100;
    for (int i = 0; i < 20; i++) {
        create(PARAMS(.n = 40, .batch_size = 2, .workers = 1 + i % 3));
        check_next(0);
        ck_assert_ok(tsr_loader_save(loader, sizeof state, state, &state_bytes));
        pid_t child = fork();
        if (child == 0)
            _exit(be_child(state, state_bytes));
        for (uint64_t b = 1; b < 20; b++)
            check_next(b);
        expect_success(child);
    }
}
END_TEST

static int read_on(void)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got = false;
    for (uint64_t b = 1; b < 20; b++)
        if (tsr_loader_next(loader, &batch, &got) != TSR_OK || !got || batch.batch != b)
            return 1;
    tsr_loader_destroy(&loader);
    return 0;
}

START_TEST(without_workers_both_can_continue)
{
    create(PARAMS(.n = 40, .batch_size = 2));
    check_next(0);
    pid_t child = fork();
    if (child == 0)
        _exit(read_on());
    for (uint64_t b = 1; b < 20; b++)
        check_next(b);
    expect_success(child);
}
END_TEST

TESTS(loader_fork)
{
    tcase_add_checked_fixture(tests, reset_data, destroy);
    tcase_add_test(tests, a_child_cannot_use_its_parents_workers);
    tcase_add_test(tests, without_workers_both_can_continue);
}
