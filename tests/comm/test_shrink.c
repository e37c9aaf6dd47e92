/* Communicators of the ranks that are left after ranks were killed or stopped, in an operation or
 * while shrinking, repeatedly, until one rank is left. */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "comm/comm_state.h"
#include "comm/recovery/recovery_link.h"
#include "comm/values.h"

#define MS UINT64_C(1000000)
#define COUNT 5000

typedef struct progress {
    _Atomic int ready, shrunk, stopped, gone_on;
    _Atomic int met[MAX_RANKS]; /* how many ranks have met, for each size of the communicator */
} progress;

/* Checks that `comm` consists of the ranks whose bits are set in `expected`, by an all-reduce to
 * which each rank adds 1 << me. `me` is the rank in the first communicator. */
static void check_sum(tsr_comm *comm, int me, unsigned expected)
{
    int32_t *data = rank_memory(COUNT * sizeof *data), sum = 0;
    for (int i = 0; i < MAX_RANKS; i++)
        sum += (expected >> i & 1) ? 1 << i : 0;
    for (int i = 0; i < COUNT; i++)
        data[i] = 1 << me;
    need_ok(tsr_comm_all_reduce(comm, data, data, COUNT, TSR_I32, TSR_OP_SUM, NULL));
    if (data[0] != sum || data[COUNT - 1] != sum)
        rank_fail("rank %d: the sum is 0x%x, not 0x%x", me, (unsigned)data[0], (unsigned)sum);
    int32_t one = me, all[MAX_RANKS];
    need_ok(tsr_comm_all_gather(comm, &one, all, 1, TSR_I32, NULL));
    for (int i = 1; i < tsr_comm_size(comm); i++)
        need(all[i] > all[i - 1]); /* the ranks keep their order */
}

/* Works until an operation fails because of a lost rank. */
static void work_until_lost(tsr_comm *comm)
{
    float *data = rank_memory(COUNT * sizeof *data);
    tsr_status status = TSR_OK;
    for (int i = 0; status == TSR_OK; i++)
        status =
            tsr_comm_all_reduce(comm, data, data, i % 3 ? COUNT : 10, TSR_F32, TSR_OP_SUM, NULL);
    if (status != TSR_ERR_PEER_LOST && status != TSR_ERR_TIMEOUT)
        rank_fail("%s: %s", tsr_status_name(status), tsr_last_error());
}

static void wait_for(const _Atomic int *value, int at_least)
{
    const double end = seconds_now() + 60;
    while (atomic_load(value) < at_least && seconds_now() < end)
        usleep(200);
    for (int i = 0; i < MAX_RANKS && atomic_load(value) < at_least; i++)
        ck_assert_msg(!ranks_record(i)->failure[0], "rank %d: %s", i, ranks_record(i)->failure);
    ck_assert_int_ge(atomic_load(value), at_least);
}

/* A rank is killed in an operation ----------------------------------------------------------- */

static void lose_one(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    const int victim = *(const int *)user, me = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    tsr_comm *smaller = NULL;
    atomic_fetch_add(&shown->ready, 1);
    work_until_lost(comm);
    need_ok(tsr_comm_shrink(comm, tsr_comm_shrink_params(.timeout_ns = 10000 * MS), &smaller));
    need(tsr_comm_size(smaller) == size - 1);
    need(tsr_comm_rank(smaller) == me - (me > victim));
    need_error(tsr_comm_shrink(comm, NULL, &smaller), TSR_ERR_INVALID, "has been shrunk already");
    rank_destroy();
    check_sum(smaller, me, ((1U << size) - 1) & ~(1U << victim));
    tsr_comm_destroy(&smaller);
}

/* The last rank receives no messages, as if a rank had been killed while it wrote one to its
 * queue. */
static void lose_one_while_deaf(tsr_comm *comm, void *user)
{
    if (tsr_comm_rank(comm) == tsr_comm_size(comm) - 1)
        tsr__transport_deafen(comm->job->transport);
    lose_one(comm, user);
}

/* Runs a job of which this rank is killed in an operation. */
static void kill_one(int size, ranks_path path, const char *hosts, int victim,
                     void (*run)(tsr_comm *comm, void *user))
{
    ranks_start(
        &(ranks_job){.size = size, .path = path, .hosts = hosts, .run = run, .user = &victim});
    const progress *shown = ranks_shared();
    wait_for(&shown->ready, size);
    usleep(5000);
    ranks_signal(victim, SIGKILL);
    ranks_wait();
    for (int i = 0; i < size; i++) {
        if (i != victim)
            ranks_check(i);
    }
}

START_TEST(without_a_killed_rank)
{
    const int size = 2 + _i / PATHS;
    for (int victim = 0; victim < size; victim++)
        kill_one(size, (ranks_path)(_i % PATHS), NULL, victim, lose_one);
}
END_TEST

START_TEST(without_a_killed_rank_of_two_hosts)
{
    static const char *const hosts[] = {"aabb", "abab", "abbb"};
    kill_one(4, PATH_SHM, hosts[_i], _i % 2, lose_one);
}
END_TEST

START_TEST(of_a_rank_that_cannot_receive)
{
    kill_one(3, (ranks_path)_i, NULL, _i % 2, lose_one_while_deaf);
}
END_TEST

/* Again and again ---------------------------------------------------------------------------- */

/* One rank after another kills itself: first rank 0, then the highest one, and so on in turn. */
static void shrink_to_one(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    const int me = tsr_comm_rank(comm);
    unsigned left = (1U << tsr_comm_size(comm)) - 1;
    tsr_comm *now = comm;
    (void)user;
    for (bool lowest = true; tsr_comm_size(now) > 1; lowest = !lowest) {
        const int leaver = lowest ? 0 : tsr_comm_size(now) - 1;
        int32_t old_rank = me;
        tsr_comm *smaller;
        need_ok(tsr_comm_broadcast(now, &old_rank, 1, TSR_I32, leaver, NULL));
        ranks_meet(&shown->met[tsr_comm_size(now)], tsr_comm_size(now));
        if (tsr_comm_rank(now) == leaver)
            kill(getpid(), SIGKILL);
        left &= ~(1U << old_rank);
        work_until_lost(now);
        need_ok(tsr_comm_shrink(now, NULL, &smaller));
        if (now == comm)
            rank_destroy();
        else
            tsr_comm_destroy(&now);
        now = smaller;
        check_sum(now, me, left);
    }
    tsr_comm_destroy(&now);
}

START_TEST(down_to_one)
{
    ranks_start(&(ranks_job){.size = 4, .path = (ranks_path)_i, .run = shrink_to_one});
    ranks_wait();
    int survivors = 0;
    for (int i = 0; i < 4; i++)
        survivors += ranks_record(i)->has_returned;
    for (int i = 0; i < 4; i++)
        ck_assert_msg(!ranks_record(i)->failure[0], "rank %d: %s", i, ranks_record(i)->failure);
    ck_assert_int_eq(survivors, 1);
}
END_TEST

/* Further ranks are killed while shrinking --------------------------------------------------- */

static void lose_more(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    const int me = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    unsigned *victims = user;
    tsr_comm *now = comm, *smaller;
    atomic_fetch_add(&shown->ready, 1);
    work_until_lost(comm);
    atomic_fetch_add(&shown->shrunk, 1);
    /* The second victim may be killed before, during or after the first shrink, so the smaller
     * communicator may still contain it. */
    for (;;) {
        need_ok(tsr_comm_shrink(now, tsr_comm_shrink_params(.timeout_ns = 10000 * MS), &smaller));
        if (now == comm)
            rank_destroy();
        else
            tsr_comm_destroy(&now);
        now = smaller;
        tsr_status status = TSR_OK;
        int32_t one = 1 << me;
        /* If only one of the two victims is gone, the test has yet to kill the other one. So the
         * loop continues until the communicator has lost both. */
        for (int i = 0; status == TSR_OK && (i < 300 || tsr_comm_size(now) > size - 2); i++) {
            int32_t sum = 0;
            status = tsr_comm_all_reduce(now, &one, &sum, 1, TSR_I32, TSR_OP_SUM, NULL);
            usleep(1000);
        }
        if (status == TSR_OK)
            break;
        need(status == TSR_ERR_PEER_LOST || status == TSR_ERR_TIMEOUT);
    }
    check_sum(now, me, ((1U << size) - 1) & ~*victims);
    tsr_comm_destroy(&now);
}

START_TEST(without_one_that_is_killed_meanwhile)
{
    const ranks_path path = (ranks_path)(_i % PATHS);
    const int size = 4;
    uint64_t random = (uint64_t)_i + 1;
    const int first = (int)random_between(&random, 0, size - 1);
    const int second = (first + 1 + (int)random_between(&random, 0, size - 2)) % size;
    unsigned victims = 1U << first | 1U << second;
    ranks_start(&(ranks_job){.size = size, .path = path, .run = lose_more, .user = &victims});
    const progress *shown = ranks_shared();
    wait_for(&shown->ready, size);
    ranks_signal(first, SIGKILL);
    wait_for(&shown->shrunk, 1);
    usleep((useconds_t)random_between(&random, 0, 40000));
    ranks_signal(second, SIGKILL);
    ranks_wait();
    for (int i = 0; i < size; i++) {
        if (i != first && i != second)
            ranks_check(i);
    }
}
END_TEST

/* A stopped rank ----------------------------------------------------------------------------- */

/* Works until an operation fails because the victim is stopped. The other ranks start to work only
 * when the victim is stopped. Otherwise their short timeout could expire before that on a busy
 * machine. */
static void work_until_one_is_stopped(tsr_comm *comm, int victim)
{
    progress *shown = ranks_shared();
    const double end = seconds_now() + 60;
    need_ok(tsr_comm_barrier(comm, NULL));
    atomic_fetch_add(&shown->ready, 1);
    if (tsr_comm_rank(comm) != victim) {
        while (!atomic_load(&shown->stopped)) {
            need(seconds_now() < end);
            usleep(200);
        }
        tsr_comm_set_timeout(comm, 300 * MS);
    }
    work_until_lost(comm);
}

static void stop_rank(int victim, int size)
{
    progress *shown = ranks_shared();
    wait_for(&shown->ready, size);
    usleep(5000);
    ranks_signal(victim, SIGSTOP);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)ranks_pid(victim), &info, WSTOPPED | WNOWAIT), 0);
    atomic_store(&shown->stopped, 1);
}

static void lose_a_stopped_one(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    const int victim = *(const int *)user, me = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    tsr_comm *smaller = NULL;
    work_until_one_is_stopped(comm, victim);
    const tsr_comm_shrink_params *params = tsr_comm_shrink_params(.timeout_ns = 5000 * MS);
    if (me == victim) { /* this rank was stopped until the others had continued */
        need(atomic_load(&shown->gone_on) == size - 1);
        need_error(tsr_comm_shrink(comm, params, &smaller), TSR_ERR_PEER_LOST,
                   "shrink: the other ranks have gone on without this rank");
        need_error(tsr_comm_shrink(comm, params, &smaller), TSR_ERR_PEER_LOST, "gone on without");
        return;
    }
    need_ok(tsr_comm_shrink(comm, params, &smaller));
    rank_destroy();
    tsr_comm_set_timeout(smaller, 20000 * MS);
    check_sum(smaller, me, ((1U << size) - 1) & ~(1U << victim));
    tsr_comm_destroy(&smaller);
    atomic_fetch_add(&shown->gone_on, 1);
}

/* The stopped rank is resumed only after the others have continued without it and ended. */
START_TEST(a_stopped_rank_is_left_out)
{
    static const struct {
        ranks_path path;
        int victim;
    } cases[] = {{PATH_SHM, 0}, {PATH_TCP, 1}};
    const ranks_path path = cases[_i].path;
    const int size = 3;
    int victim = cases[_i].victim;
    ranks_start(
        &(ranks_job){.size = size, .path = path, .run = lose_a_stopped_one, .user = &victim});
    const progress *shown = ranks_shared();
    stop_rank(victim, size);
    wait_for(&shown->gone_on, size - 1);
    usleep(50000);
    ranks_signal(victim, SIGCONT);
    ranks_wait();
    for (int i = 0; i < size; i++)
        ranks_check(i);
}
END_TEST

/* Without a majority ------------------------------------------------------------------------- */

static void be_a_minority(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    const int me = tsr_comm_rank(comm);
    tsr_comm *smaller = NULL;
    (void)user;
    work_until_one_is_stopped(comm, 0);
    if (me == 0) /* the stopped rank, which is resumed when the test ends */
        return;
    need_error(tsr_comm_shrink(comm, tsr_comm_shrink_params(.timeout_ns = 1000 * MS), &smaller),
               TSR_ERR_TIMEOUT,
               "shrink: 1 of the 2 ranks that are not known to have ended took part within 1.0 s");
    /* The caller knows that the other rank is gone, so no majority is needed. */
    need_ok(tsr_comm_shrink(comm, tsr_comm_shrink_params(.timeout_ns = 1000 * MS, .force = true),
                            &smaller));
    need(tsr_comm_size(smaller) == 1);
    tsr_comm_destroy(&smaller);
    atomic_fetch_add(&shown->gone_on, 1);
}

START_TEST(half_of_the_ranks_need_the_lowest)
{
    ranks_start(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = be_a_minority});
    const progress *shown = ranks_shared();
    stop_rank(0, 2);
    wait_for(&shown->gone_on, 1);
    ranks_signal(0, SIGCONT);
    ranks_wait();
    ranks_check(0);
    ranks_check(1);
}
END_TEST

/* At any time, of any communicator ----------------------------------------------------------- */

static void shrink_parts(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    const int me = tsr_comm_rank(comm);
    tsr_comm *half, *twin, *smaller = NULL;
    int32_t one = 1, sum;
    (void)user;
    need_error(tsr_comm_shrink(NULL, NULL, &smaller), TSR_ERR_INVALID, "shrink: comm is NULL");
    need_error(tsr_comm_shrink(comm, NULL, NULL), TSR_ERR_INVALID, "shrink: out is NULL");
    need_ok(tsr_comm_split(comm, me / 2, 0, &half));
    need_ok(tsr_comm_duplicate(comm, &twin));
    ranks_meet(&shown->ready, 4);
    /* Rank 0 waits in an operation. The others end it by shrinking. */
    if (me == 0)
        need_error(tsr_comm_barrier(comm, NULL), TSR_ERR_PEER_LOST, " shrinks the communicator");
    need_ok(tsr_comm_shrink(comm, NULL, &smaller));
    need(tsr_comm_size(smaller) == 4 && tsr_comm_rank(smaller) == me);
    need_error(tsr_comm_barrier(comm, NULL), TSR_ERR_PEER_LOST, " shrinks the communicator");
    need_ok(tsr_comm_barrier(half, NULL)); /* this communicator is not affected */
    ranks_meet(&shown->ready, 4);
    rank_destroy();
    check_sum(smaller, me, 15);
    tsr_comm_destroy(&smaller);
    need_ok(tsr_comm_shrink(half, NULL, &smaller));
    need(tsr_comm_size(smaller) == 2 && tsr_comm_rank(smaller) == me % 2);
    need_ok(tsr_comm_all_reduce(smaller, &one, &sum, 1, TSR_I32, TSR_OP_SUM, NULL));
    need(sum == 2);
    tsr_comm_destroy(&smaller);
    need_ok(tsr_comm_shrink(twin, NULL, &smaller));
    check_sum(smaller, me, 15);
    tsr_comm_destroy(&smaller);
    tsr_comm_destroy(&half);
    tsr_comm_destroy(&twin);
}

START_TEST(of_communicators_that_are_whole)
{
    ranks_run(&(ranks_job){.size = 4, .path = (ranks_path)_i, .run = shrink_parts});
}
END_TEST

/* Failing allocations ------------------------------------------------------------------------ */

typedef struct allocations {
    _Atomic int met;
    uint64_t armed;
    int failures;
    bool last;
} allocations;

/* Each allocation of the last rank's first attempt fails in turn; its second attempt succeeds. */
static void fail_each(tsr_comm *comm, void *user)
{
    allocations *shared = ranks_shared();
    const int me = tsr_comm_rank(comm);
    tsr_comm *now = comm;
    (void)user;
    do {
        tsr_comm *smaller = NULL;
        if (me == 1)
            tsr__fault_arm(TSR__FAULT_ALLOC, shared->armed, 0);
        const tsr_comm_shrink_params *params = tsr_comm_shrink_params(.timeout_ns = 8000 * MS);
        tsr_status status = tsr_comm_shrink(now, params, &smaller);
        if (me == 1) {
            shared->last = !tsr__fault_site();
            tsr__fault_disarm();
            shared->armed++;
            shared->failures += status != TSR_OK;
        }
        for (int i = 0; i < 3 && status == TSR_ERR_NO_MEMORY; i++)
            status = tsr_comm_shrink(now, params, &smaller);
        need_ok(status);
        if (now == comm)
            rank_destroy();
        else
            tsr_comm_destroy(&now);
        now = smaller;
        check_sum(now, me, 3);
        ranks_meet(&shared->met, 2);
    } while (!shared->last && shared->armed < 200);
    tsr_comm_destroy(&now);
}

/* With shared memory, a rank makes all the allocations that it makes for messages, and more. */
START_TEST(allocations_fail)
{
    ranks_run(&(ranks_job){.size = 2, .path = PATH_SHM, .run = fail_each});
    const allocations *shared = ranks_shared();
    ck_assert(shared->last);
    ck_assert_int_gt(shared->failures, 10);
}
END_TEST

/* A member that is left out learns it in whatever state the connection is: before the handshake,
 * when only this side has completed it, and afterwards. */
START_TEST(left_out_in_each_state)
{
    static const uint8_t key[TSR__WIRE_MAC] = {1, 2, 3};
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    const tsr__card card = {.uid = 7,
                            .port = ntohs(address.sin_port),
                            .address_count = 1,
                            .addresses = {{.family = 4, .bytes = {127, 0, 0, 1}}}};
    tsr__left_out told = {.lineage = 9, .generation = 3, .uid = 7}, got = {0};
    tsr__link_event event = TSR__LINK_NOTHING;
    const uint64_t until_ns = tsr__deadline_ns(60 * TSR__SECOND);
    for (int i = 0; i < 3; i++) {
        tsr__link from = {0}, to = {0};
        tsr__link_connect(&from, &card, 0, i > 0, 5, key);
        const int fd = accept(listener, NULL, NULL);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
        tsr__link_accept(&to, fd, key);
        const tsr__link_state wanted[] = {TSR__LINK_WATCHING, TSR__LINK_GREETING, TSR__LINK_OPEN};
        while (from.state != wanted[i] || (i > 0 && to.state != TSR__LINK_OPEN)) {
            ck_assert(tsr__now_ns() < until_ns);
            if (i != 1 || to.state != TSR__LINK_OPEN)
                (void)tsr__link_advance(&from, &got);
            (void)tsr__link_advance(&to, &got);
        }
        tsr__link_leave_out(&from, &told);
        do {
            ck_assert(tsr__now_ns() < until_ns);
            event = tsr__link_advance(&to, &got);
        } while (event == TSR__LINK_NOTHING);
        ck_assert_int_eq(event, TSR__LINK_LEFT_OUT);
        ck_assert_uint_eq(got.lineage, 9);
        ck_assert_uint_eq(got.generation, 3);
        ck_assert_uint_eq(got.uid, 7);
        tsr__link_close(&to);
    }
    close(listener);
}
END_TEST

TESTS(shrink)
{
    tcase_add_test(tests, left_out_in_each_state);
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, without_a_killed_rank, 0, 2 * PATHS);
    tcase_add_loop_test(tests, without_a_killed_rank_of_two_hosts, 0, 3);
    tcase_add_loop_test(tests, of_a_rank_that_cannot_receive, 0, PATHS);
    tcase_add_loop_test(tests, down_to_one, 0, PATHS);
    tcase_add_loop_test(tests, without_one_that_is_killed_meanwhile, 0, PATHS);
    tcase_add_loop_test(tests, a_stopped_rank_is_left_out, 0, 2);
    tcase_add_test(tests, half_of_the_ranks_need_the_lowest);
    tcase_add_loop_test(tests, of_communicators_that_are_whole, 0, PATHS);
    tcase_add_test(tests, allocations_fail);
}
