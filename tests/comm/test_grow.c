/* Processes that join a job: after ranks were lost; several at once; with wrong tokens; killed
 * while they join; with failing allocations. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "comm/values.h"

#define MS UINT64_C(1000000)
#define COUNT 3000

typedef struct progress {
    _Atomic int want; /* how many newcomers the test should have started */
    _Atomic int stop, failures;
    _Atomic uint64_t armed;
    _Atomic int met[MAX_RANKS]; /* how many ranks have met, for each size of the communicator */
} progress;

/* Checks that a sum contains each rank's contribution once, and that all its bits are right. */
static void check_sum(tsr_comm *comm)
{
    int32_t *data = rank_memory(COUNT * sizeof *data);
    const int size = tsr_comm_size(comm);
    for (int i = 0; i < COUNT; i++)
        data[i] = 1 << tsr_comm_rank(comm);
    need_ok(tsr_comm_all_reduce(comm, data, data, COUNT, TSR_I32, TSR_OP_SUM, NULL));
    if (data[0] != (1 << size) - 1 || data[COUNT - 1] != (1 << size) - 1)
        rank_fail("the sum is 0x%x with %d ranks", (unsigned)data[0], size);
}

/* From four ranks to one, and to four again -------------------------------------------------- */

static bool has_replaced;

static void replace(tsr_comm **comm, tsr_comm *by)
{
    if (has_replaced)
        tsr_comm_destroy(comm);
    else
        rank_destroy(); /* destroys the first communicator, which belongs to ranks.c */
    has_replaced = true;
    *comm = by;
}

/* Grows a communicator from 1 rank to 2, and then to 4. The ranks that are left after the losses
 * call this; processes that join call newcomer(). */
static void go_up(tsr_comm *now)
{
    progress *shown = ranks_shared();
    tsr_comm *next;
    while (tsr_comm_size(now) < 4) {
        const int old = tsr_comm_size(now), count = old == 1 ? 1 : 2, rank = tsr_comm_rank(now);
        if (rank == 0)
            atomic_fetch_add(&shown->want, count);
        need_ok(tsr_comm_grow(now, tsr_comm_grow_params(.count = count, .timeout_ns = 20000 * MS),
                              &next));
        need(tsr_comm_size(next) == old + count && tsr_comm_rank(next) == rank);
        check_sum(now); /* the previous communicator still works */
        replace(&now, next);
        check_sum(now);
    }
    tsr_comm_destroy(&now);
}

static void newcomer(tsr_comm *comm, void *user)
{
    (void)user;
    need(tsr_comm_size(comm) == 2 || tsr_comm_size(comm) == 4);
    need(tsr_comm_rank(comm) >= (tsr_comm_size(comm) == 2 ? 1 : 2));
    check_sum(comm);
    tsr_comm *mine;
    if (tsr_comm_size(comm) == 4)
        return;
    need_ok(tsr_comm_grow(comm, tsr_comm_grow_params(.count = 2, .timeout_ns = 20000 * MS), &mine));
    check_sum(comm);
    replace(&comm, mine);
    check_sum(comm);
    tsr_comm_destroy(&comm);
}

static void down_and_up(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    tsr_comm *now = comm, *next;
    (void)user;
    while (tsr_comm_size(now) > 1) {
        check_sum(now);
        ranks_meet(&shown->met[tsr_comm_size(now)], tsr_comm_size(now));
        if (tsr_comm_rank(now) == tsr_comm_size(now) / 2)
            kill(getpid(), SIGKILL);
        tsr_status status = TSR_OK;
        while (status == TSR_OK)
            status = tsr_comm_barrier(now, NULL);
        need_ok(tsr_comm_shrink(now, NULL, &next));
        replace(&now, next);
    }
    check_sum(now);
    go_up(now);
}

/* Starts `newcomers` processes, each of them when the ranks want one more. Returns when all have
 * been started, after 60 s at the latest. */
static void serve(int newcomers)
{
    const progress *shown = ranks_shared();
    const double end = seconds_now() + 60;
    for (int started = 0; started < newcomers && seconds_now() < end;) {
        if (started < atomic_load(&shown->want)) {
            ranks_join(newcomer, NULL, 20000 * MS);
            started++;
        }
        usleep(200);
    }
}

START_TEST(from_one_to_four)
{
    ranks_choose_port();
    ranks_start(&(ranks_job){.size = 4, .path = (ranks_path)_i, .run = down_and_up});
    serve(3);
    ranks_wait();
    int returned = 0;
    for (int i = 0; i < 7; i++) {
        ck_assert_msg(!ranks_record(i)->failure[0], "process %d: %s", i, ranks_record(i)->failure);
        returned += ranks_record(i)->has_returned;
    }
    ck_assert_int_eq(returned, 4);
}
END_TEST

/* No newcomer, or one with a wrong token ----------------------------------------------------- */

static void wait_in_vain(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    tsr_comm *next = NULL;
    (void)user;
    need_error(tsr_comm_grow(NULL, NULL, &next), TSR_ERR_INVALID, "grow: comm is NULL");
    need_error(tsr_comm_grow(comm, NULL, NULL), TSR_ERR_INVALID, "grow: out is NULL");
    need_error(tsr_comm_grow(comm, tsr_comm_grow_params(.count = -1), &next), TSR_ERR_INVALID,
               "grow: count is -1; this communicator of 2 ranks can get from 1 to 4094 more");
    need_error(tsr_comm_grow(comm, tsr_comm_grow_params(.timeout_ns = 50 * MS), &next),
               TSR_ERR_TIMEOUT, "grow: no process has joined at 127.0.0.1:");
    check_sum(comm);
    atomic_store(&shown->want, 1);
    for (bool has_knocked = false; !has_knocked;) { /* until the newcomer has asked to join */
        need_error(tsr_comm_grow(comm, tsr_comm_grow_params(.timeout_ns = 300 * MS), &next),
                   TSR_ERR_TIMEOUT, "grow: no process has joined at 127.0.0.1:");
        has_knocked = strstr(tsr_last_error(), "has another TESSERA_TOKEN") != NULL;
        check_sum(comm);
    }
    atomic_store(&shown->stop, 1);
    setenv("MASTER_ADDR", "192.0.2.1", 1);
    need_error(tsr_comm_grow(comm, NULL, &next), TSR_ERR_IO,
               "grow: no rank runs on the machine of MASTER_ADDR, '192.0.2.1'");
    if (tsr_comm_rank(comm) == 1)
        setenv("TESSERA_MASTER_PORT", "99999", 1);
    need_error(tsr_comm_grow(comm, NULL, &next), TSR_ERR_INVALID, "grow: ");
    need(strstr(tsr_last_error(), "TESSERA_MASTER_PORT"));
    check_sum(comm);
    need(!next);
}

static void never(tsr_comm *comm, void *user)
{
    (void)comm, (void)user;
    rank_fail("it has joined");
}

START_TEST(nobody_comes_or_a_stranger)
{
    ranks_choose_port();
    ranks_start(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = wait_in_vain});
    const progress *shown = ranks_shared();
    const double end = seconds_now() + 30;
    while (!atomic_load(&shown->want) && seconds_now() < end)
        usleep(200);
    setenv("TESSERA_TOKEN", "fedcba9876543210", 1);
    int strangers = 0;
    do { /* each newcomer asks for half a second */
        ranks_join(never, NULL, 500 * MS);
        strangers++;
        for (int i = 0; i < 2500 && !atomic_load(&shown->stop); i++)
            usleep(200);
    } while (!atomic_load(&shown->stop) && strangers < MAX_RANKS - 2);
    ranks_wait();
    for (int i = 0; i < 2; i++)
        ranks_check(i);
    for (int i = 2; i < 2 + strangers; i++)
        ck_assert_msg(strstr(ranks_record(i)->failure, "TSR_ERR_TIMEOUT: comm_create: rendezvous: "
                                                       "this process could not join the running "
                                                       "job at 127.0.0.1, port "),
                      "%s", ranks_record(i)->failure);
}
END_TEST

/* A newcomer is killed while it joins -------------------------------------------------------- */

static void grow_until_one_stays(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    tsr_comm *next = NULL;
    (void)user;
    for (;;) {
        /* The last newcomers are not killed, and have more time. */
        const uint64_t timeout_ns = atomic_load(&shown->stop) ? 1000 * MS : 60 * MS;
        const tsr_status status =
            tsr_comm_grow(comm, tsr_comm_grow_params(.timeout_ns = timeout_ns), &next);
        int32_t go_on = status == TSR_OK;
        need(status == TSR_OK || !next);
        need_ok(tsr_comm_all_reduce(comm, &go_on, &go_on, 1, TSR_I32, TSR_OP_SUM, NULL));
        need(go_on == 0 || go_on == 2); /* both newcomers have joined, or none */
        if (!go_on)
            continue;
        int32_t one = 1, sum;
        const tsr_status worked =
            tsr_comm_all_reduce(next, &one, &sum, 1, TSR_I32, TSR_OP_SUM, NULL);
        need(worked != TSR_OK || sum == 3);
        int32_t is_stable = worked == TSR_OK && atomic_load(&shown->stop);
        need_ok(tsr_comm_all_reduce(comm, &is_stable, &is_stable, 1, TSR_I32, TSR_OP_MIN, NULL));
        tsr_comm_destroy(&next);
        if (is_stable)
            return;
    }
}

static void be_there(tsr_comm *comm, void *user)
{
    int32_t one = 1, sum;
    (void)user;
    (void)!tsr_comm_all_reduce(comm, &one, &sum, 1, TSR_I32, TSR_OP_SUM, NULL);
}

START_TEST(one_is_killed_while_it_joins)
{
    ranks_choose_port();
    uint64_t random = (uint64_t)_i + 1;
    ranks_start(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = grow_until_one_stays});
    progress *shown = ranks_shared();
    for (int i = 0; i < 5; i++) {
        const int number = ranks_join(be_there, NULL, 20000 * MS);
        usleep((useconds_t)random_between(&random, 0, 80000));
        ranks_signal(number, SIGKILL);
    }
    atomic_store(&shown->stop, 1);
    for (int i = 0; i < 4; i++) /* the last two may reach the ranks while they cannot answer */
        ranks_join(be_there, NULL, 3000 * MS);
    ranks_wait();
    ranks_check(0);
    ranks_check(1);
}
END_TEST

/* A rank is killed while one joins ----------------------------------------------------------- */

/* Goes on until all ranks of the communicator have met, without those that are lost. */
static void meet(tsr_comm **comm)
{
    tsr_comm *next = NULL;
    while (tsr_comm_barrier(*comm, NULL) != TSR_OK) {
        need_ok(tsr_comm_shrink(*comm, NULL, &next));
        replace(comm, next);
    }
}

/* The library logs this when the ranks and the process that joins have begun to connect. */
static void end_while_connecting(void *user, tsr_log_level level, const char *message)
{
    (void)user, (void)level;
    if (strncmp(message, "bootstrap: rank ", strlen("bootstrap: rank ")) == 0)
        kill(getpid(), SIGKILL);
}

static void grow_in_spite_of_losses(tsr_comm *comm, void *user)
{
    tsr_comm *now = comm, *next = NULL;
    (void)user;
    if (tsr_comm_rank(comm) == 2)
        tsr_log_set(end_while_connecting, NULL, TSR_LOG_INFO);
    const double end = seconds_now() + 30;
    for (bool has_grown = false; !has_grown;) {
        need(seconds_now() < end);
        has_grown =
            tsr_comm_grow(now, tsr_comm_grow_params(.timeout_ns = 100 * MS), &next) == TSR_OK;
        if (has_grown)
            replace(&now, next);
        if (tsr_comm_status(now) != TSR_OK) {
            need_ok(tsr_comm_shrink(now, NULL, &next));
            replace(&now, next);
        }
    }
    meet(&now);
    if (has_replaced)
        tsr_comm_destroy(&now);
}

static void join_and_meet(tsr_comm *comm, void *user)
{
    (void)user;
    tsr_comm *now = comm;
    meet(&now);
    if (has_replaced)
        tsr_comm_destroy(&now);
}

/* A process that joins waits for the ranks that are left, and joins these. */
START_TEST(a_rank_is_killed_while_one_joins)
{
    ranks_choose_port();
    ranks_start(&(ranks_job){.size = 3, .path = (ranks_path)_i, .run = grow_in_spite_of_losses});
    const int number = ranks_join(join_and_meet, NULL, 20000 * MS);
    ranks_wait();
    ranks_check(0);
    ranks_check(1);
    ranks_check(number);
    ck_assert_int_eq(ranks_record(2)->wait_status, SIGKILL);
}
END_TEST

/* Failing allocations ------------------------------------------------------------------------ */

/* Makes a sum if the newcomer is not alone, which it may be if the ranks failed at the very end
 * of growing. */
static void sum_if_possible(tsr_comm *comm)
{
    int32_t one = 1, sum = 0;
    need(tsr_comm_all_reduce(comm, &one, &sum, 1, TSR_I32, TSR_OP_SUM, NULL) != TSR_OK || sum == 3);
}

static void join_again_and_again(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    (void)comm, (void)user;
    while (!atomic_load(&shown->stop)) {
        tsr_comm *again = NULL;
        if (tsr_comm_create(
                tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_JOIN, .timeout_ns = 1000 * MS),
                &again) == TSR_OK)
            sum_if_possible(again);
        tsr_comm_destroy(&again);
    }
}

static void fail_each(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    const int rank = tsr_comm_rank(comm);
    const int victim = *(const int *)user;
    int32_t last = 0;
    tsr_comm *next = NULL;
    for (int i = 0; !last && i < 400; i++) {
        if (rank == victim)
            tsr__fault_arm(TSR__FAULT_ALLOC, atomic_load(&shown->armed), 0);
        tsr_status status =
            tsr_comm_grow(comm, tsr_comm_grow_params(.timeout_ns = 5000 * MS), &next);
        if (rank == victim) {
            last = status == TSR_OK && !tsr__fault_site();
            tsr__fault_disarm();
            atomic_fetch_add(&shown->armed, 1);
            atomic_fetch_add(&shown->failures, status != TSR_OK);
        }
        if (status == TSR_OK) {
            int32_t one = 1, sum = 0;
            need_ok(tsr_comm_all_reduce(next, &one, &sum, 1, TSR_I32, TSR_OP_SUM, NULL));
            need(sum == 3);
        } else {
            need(tsr_comm_status(comm) == TSR_OK && !next);
        }
        tsr_comm_destroy(&next);
        need_ok(tsr_comm_all_reduce(comm, &last, &last, 1, TSR_I32, TSR_OP_MAX, NULL));
    }
    need(last);
    if (rank == 0)
        atomic_store(&shown->stop, 1);
}

START_TEST(allocations_fail)
{
    int victim = _i;
    ranks_choose_port();
    ranks_start(&(ranks_job){.size = 2, .path = PATH_SHM, .run = fail_each, .user = &victim});
    ranks_join(join_again_and_again, NULL, 0);
    ranks_wait();
    for (int i = 0; i < 3; i++)
        ranks_check(i);
    const progress *shown = ranks_shared();
    ck_assert_int_gt(atomic_load(&shown->failures), 10);
}
END_TEST

TESTS(grow)
{
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, from_one_to_four, 0, PATHS);
    tcase_add_test(tests, nobody_comes_or_a_stranger);
    tcase_add_loop_test(tests, one_is_killed_while_it_joins, 0, PATH_TCP);
    tcase_add_loop_test(tests, a_rank_is_killed_while_one_joins, 0, PATHS);
    tcase_add_loop_test(tests, allocations_fail, 0, 2);
}
