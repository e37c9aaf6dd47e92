/* Ranks that are slow, stopped or killed, or that leave. The others must get an error in time that
 * names the operation and the rank, and they must be able to end normally. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/values.h"

#define DEADLINE_MS 200

/* What the ranks do: the operation that they repeat until it fails, the error that they expect,
 * and what they found. */
typedef struct scene {
    int operation;
    uint64_t count;
    bool is_slow; /* the ranks set a deadline of DEADLINE_MS */
    tsr_status status;
    const char *words;
    /* Written by the ranks, in memory that they share. */
    _Atomic int ready;
    double errors_at[MAX_RANKS];
    double destroying_s[MAX_RANKS];
    char errors[MAX_RANKS][256];
    bool lacks_words[MAX_RANKS]; /* the error does not contain the words */
} scene;

/* Prints every rank's results to stderr: the text of a failed assertion has no room for them. */
static void print_ranks(const char *what, int size, int victim, double since)
{
    const scene *seen = ranks_shared();
    fprintf(stderr, "%s: what the %d ranks have seen:\n", what, size);
    for (int i = 0; i < size; i++) {
        const rank_record *record = ranks_record(i);
        if (i == victim)
            fprintf(stderr, "    rank %d: the victim\n", i);
        else if (record->failure[0])
            fprintf(stderr, "    rank %d: ended %.3f s after the start: %s\n", i, record->seconds,
                    record->failure);
        else if (!seen->errors[i][0])
            fprintf(stderr, "    rank %d: no error; wait status 0x%x\n", i,
                    (unsigned)record->wait_status);
        else
            fprintf(stderr, "    rank %d: after %.3f s: %s; destroying took %.3f s\n", i,
                    seen->errors_at[i] - since, seen->errors[i], seen->destroying_s[i]);
    }
}

static tsr_status call(tsr_comm *comm, int operation, float *data, float *more, uint64_t count)
{
    switch (operation) {
    case 0:
        return tsr_comm_all_reduce(comm, data, more, count, TSR_F32, TSR_OP_SUM, NULL);
    case 1:
        return tsr_comm_all_gather(comm, data, more, count / (uint64_t)tsr_comm_size(comm), TSR_F32,
                                   NULL);
    case 2:
        return tsr_comm_reduce_scatter(comm, data, more, count / (uint64_t)tsr_comm_size(comm),
                                       TSR_F32, TSR_OP_SUM, NULL);
    case 3:
        return tsr_comm_all_to_all(comm, data, more, count / (uint64_t)tsr_comm_size(comm), TSR_F32,
                                   NULL);
    default:
        return tsr_comm_barrier(comm, NULL);
    }
}
static const char *const names[] = {"all_reduce #", "all_gather #", "reduce_scatter #",
                                    "all_to_all #", "barrier #"};
#define OPERATIONS 5

static double slack(void)
{
    const char *times = getenv("CK_TIMEOUT_MULTIPLIER");
    return times ? 0.1 * atof(times) : 0.1;
}

static bool all_are_ready(int size)
{
    const scene *seen = ranks_shared();
    const double end = seconds_now() + 60;
    while (atomic_load(&seen->ready) < size && seconds_now() < end)
        rest_ms(1);
    return atomic_load(&seen->ready) >= size;
}

/* Repeats an operation until it fails. After that, every other call must fail in the same way. */
static void until_it_fails(tsr_comm *comm, void *user)
{
    scene *seen = ranks_shared();
    const scene *what = user;
    const int rank = tsr_comm_rank(comm);
    float *data = rank_memory(what->count * 4 + 64), *more = rank_memory(what->count * 4 + 64);
    char first[512];
    tsr_status status = TSR_OK;
    atomic_fetch_add(&seen->ready, 1);
    if (what->is_slow) {
        /* Waits for all ranks before it sets the deadline, because a rank that is still creating
         * the communicator would miss it. */
        need(all_are_ready(tsr_comm_size(comm)));
        tsr_comm_set_timeout(comm, DEADLINE_MS * UINT64_C(1000000));
    }
    while (status == TSR_OK)
        status = call(comm, what->operation, data, more, what->count);
    seen->errors_at[rank] = seconds_now();
    if (status != what->status || !strstr(tsr_last_error(), names[what->operation]))
        rank_fail("%s: %s", tsr_status_name(status), tsr_last_error());
    snprintf(first, sizeof first, "%s", tsr_last_error());
    snprintf(seen->errors[rank], sizeof seen->errors[rank], "%.255s", first);
    seen->lacks_words[rank] = !strstr(first, what->words);
    /* Later calls must give the same error. */
    need_error(tsr_comm_status(comm), what->status, first);
    need_error(tsr_comm_barrier(comm, NULL), what->status, first);
    tsr_comm *other = NULL;
    need_error(tsr_comm_duplicate(comm, &other), what->status, first);
    const double start = seconds_now();
    rank_destroy();
    seen->destroying_s[rank] = seconds_now() - start;
}

/* Returns what is wrong with an attempt, or NULL if all is right. Every rank but `victim` must
 * get its error, which contains the words, within `late` seconds of `since`, and destroy the
 * communicator quickly. */
static const char *check_attempt(int size, int victim, double since, double late)
{
    static char text[512];
    const scene *seen = ranks_shared();
    for (int i = 0; i < size; i++) {
        if (i != victim && (ranks_record(i)->failure[0] || !ranks_record(i)->has_returned))
            print_ranks("an error that no load explains", size, victim, since);
        if (i != victim)
            ranks_check(i);
    }
    for (int i = 0; i < size; i++) {
        if (i == victim)
            continue;
        const double after = seen->errors_at[i] - since;
        if (seen->lacks_words[i])
            snprintf(text, sizeof text, "rank %d of %d: %s", i, size, seen->errors[i]);
        else if (after > late)
            snprintf(text, sizeof text, "rank %d of %d: after %.3f s instead of %.3f s", i, size,
                     after, late);
        else if (seen->destroying_s[i] > 0.5 + slack())
            snprintf(text, sizeof text, "rank %d of %d: destroying took %.3f s", i, size,
                     seen->destroying_s[i]);
        else
            continue;
        print_ranks(text, size, victim, since);
        return text;
    }
    return NULL;
}

static void wait_until_ready(int size)
{
    if (!all_are_ready(size)) {
        ranks_wait();
        for (int i = 0; i < size; i++)
            ranks_check(i);
        ck_abort_msg("%d ranks were not ready after a minute", size);
    }
    rest_ms(30);
}

static const int sizes[] = {2, 3, 8};
#define SIZES 3

/* On a busy machine, ranks other than the victim may miss a deadline, too, or answer late. So one
 * of several attempts, with growing pauses between them, must succeed completely. In every attempt,
 * each survivor's error must have the right status and operation. */
#define MAX_ATTEMPTS 8
static void signal_one(int index, int signal)
{
    const int size = sizes[index % SIZES], victim = index / SIZES % size;
    const ranks_path path = (ranks_path)(index / SIZES % PATHS);
    char words[32];
    const char *complaint = NULL;
    const bool stops = signal == SIGSTOP;
    scene what = {.operation = index % OPERATIONS,
                  .count = index % 2 ? 300000 : 10,
                  .is_slow = stops,
                  .status = stops ? TSR_ERR_TIMEOUT : TSR_ERR_PEER_LOST,
                  .words = words};
    snprintf(words, sizeof words, stops ? "rank %d is stopped" : "rank %d", victim);
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        rest_ms(attempt * 200);
        ranks_start(&(ranks_job){.size = size, .path = path, .run = until_it_fails, .user = &what});
        wait_until_ready(size);
        ranks_signal(victim, signal);
        const double since = seconds_now();
        if (stops) {
            rest_ms(DEADLINE_MS + 400);
            ranks_signal(victim, SIGKILL);
        }
        ranks_wait();
        complaint = check_attempt(size, victim, since, stops ? DEADLINE_MS * 1e-3 + slack() : 1.5);
        if (!complaint)
            return;
    }
    ck_abort_msg("%s, none of %d attempts: %s", path_names[path], MAX_ATTEMPTS, complaint);
}

START_TEST(killed)
{
    signal_one(_i, SIGKILL);
}
END_TEST

START_TEST(stopped)
{
    signal_one(_i, SIGSTOP);
}
END_TEST

/* A rank that only tests its request with tsr_request_test, and never blocks, must also detect a
 * killed rank. */
static void test_until_it_fails(tsr_comm *comm, void *user)
{
    tsr_request *request;
    tsr_status status = TSR_OK;
    bool done = false;
    scene *seen = ranks_shared();
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
    if (tsr_comm_rank(comm) == 1)
        raise(SIGKILL);
    need_ok(tsr_comm_barrier(comm, &request));
    while (!done) {
        status = tsr_request_test(&request, &done);
        rest_ms(1);
    }
    atomic_fetch_add(&seen->ready, 1);
    if (status != TSR_ERR_PEER_LOST || !strstr(tsr_last_error(), ": rank 1 is lost: "))
        rank_fail("%s: %s", tsr_status_name(status), tsr_last_error());
}

START_TEST(killed_while_others_only_test)
{
    ranks_start(&(ranks_job){.size = 2,
                             .path = (ranks_path)_i,
                             .timeout_ns = UINT64_C(5000000000),
                             .run = test_until_it_fails});
    /* Until ranks_wait the killed rank is a zombie, whose end UCX alone does not detect. */
    wait_until_ready(1);
    ranks_wait();
    ranks_check(0);
}
END_TEST

/* Rank 1 ends its process, or destroys the communicator, while others wait for it. */
static void leave_early(tsr_comm *comm, void *user)
{
    const scene *what = user;
    scene *seen = ranks_shared();
    float data[64] = {0}, more[64] = {0};
    if (tsr_comm_rank(comm) != 1) {
        until_it_fails(comm, user);
        return;
    }
    atomic_fetch_add(&seen->ready, 1);
    for (int i = 0; i < 20; i++)
        need_ok(call(comm, what->operation, data, more, what->count));
    if (what->is_slow) /* here this means that the rank destroys the communicator */
        rank_destroy();
    seen->errors_at[1] = seconds_now();
    _exit(0);
}

START_TEST(left_alone)
{
    const bool destroys = _i % 2;
    scene what = {.operation = _i % OPERATIONS,
                  .count = 10,
                  .is_slow = destroys,
                  .status = TSR_ERR_PEER_LOST,
                  .words = destroys ? ": rank 1 has destroyed the communicator" : "rank 1 is lost"};
    const char *complaint = NULL;
    const int size = 2 + _i % 2;
    const ranks_path path = (ranks_path)(_i / 2 % PATHS);
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        ranks_start(&(ranks_job){.size = size, .path = path, .run = leave_early, .user = &what});
        ranks_wait();
        const scene *seen = ranks_shared();
        complaint = check_attempt(size, 1, seen->errors_at[1], 1.5);
        if (!complaint)
            return;
    }
    ck_abort_msg("%s: %s", path_names[path], complaint);
}
END_TEST

/* Calls, as the late rank, an operation that the other ranks have given up. If their data arrive
 * before their error, as may happen on a busy machine, this call succeeds and the next one
 * fails. The others may have ended, and their last messages may be lost. */
static void be_late(tsr_comm *comm)
{
    float data = 0;
    tsr_status told = tsr_comm_all_reduce(comm, &data, &data, 1, TSR_F32, TSR_OP_SUM, NULL);
    if (told == TSR_OK)
        told = tsr_comm_barrier(comm, NULL);
    if (told != TSR_ERR_TIMEOUT && told != TSR_ERR_PEER_LOST)
        rank_fail("%s", tsr_status_name(told));
}

/* Times of the ranks that are not late: when they started the operation, and when it failed. */
typedef struct punctuality {
    double started[MAX_RANKS], failed[MAX_RANKS];
    bool others_late[MAX_RANKS]; /* the error names another rank than the late one */
} punctuality;

/* One rank is late. The others must fail at their deadline, and the late rank must then get the
 * same error. */
static void late(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm), late_rank = size - 1;
    punctuality *seen = ranks_shared();
    float data = 0;
    tsr_request *request;
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
    if (rank == late_rank) {
        rest_ms(450);
        be_late(comm);
        return;
    }
    seen->started[rank] = seconds_now();
    const uint64_t timeout_ns = tsr_comm_set_timeout(comm, UINT64_C(200000000));
    need_ok(tsr_comm_all_reduce(comm, &data, &data, 1, TSR_F32, TSR_OP_SUM, &request));
    if (tsr_comm_set_timeout(comm, timeout_ns) != UINT64_C(200000000) || timeout_ns <= 200000000)
        rank_fail("the timeout was %llu ns", (unsigned long long)timeout_ns);
    const tsr_status status = tsr_request_wait(&request);
    seen->failed[rank] = seconds_now();
    if (status != TSR_ERR_TIMEOUT || !strstr(tsr_last_error(), "all_reduce #2 (sum of 1 f32): ") ||
        !strstr(tsr_last_error(), "200 ms"))
        rank_fail("%s: %s", tsr_status_name(status), tsr_last_error());
    char name[32];
    snprintf(name, sizeof name, "rank %d", late_rank);
    /* On a busy machine another rank may be late, too. Such an attempt does not count. */
    seen->others_late[rank] = !strstr(tsr_last_error(), name);
}

/* Returns the longest time that a rank has waited. No rank may fail before the deadline of the rank
 * that has started first. The others may learn of that deadline soon after their own start. */
static double time_until_failure(const punctuality *seen, int size)
{
    double first = HUGE_VAL, worst = 0;
    for (int i = 0; i < size - 1; i++)
        first = seen->started[i] < first ? seen->started[i] : first;
    for (int i = 0; i < size - 1; i++) {
        const double took = seen->failed[i] - seen->started[i];
        ck_assert_double_ge(seen->failed[i] - first, 0.14);
        worst = seen->others_late[i] ? HUGE_VAL : took > worst ? took : worst;
    }
    return worst;
}

START_TEST(deadlines)
{
    const int size = sizes[_i % SIZES];
    double worst = 0;
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        ranks_run(&(ranks_job){.size = size, .path = (ranks_path)(_i / SIZES), .run = late});
        worst = time_until_failure(ranks_shared(), size);
        if (worst <= 0.2 + slack())
            return;
    }
    ck_abort_msg("%g s instead of 0.2 s", worst);
}
END_TEST

/* Rank 1 is stopped while messages to it are in flight, and rank 0 destroys the communicator. That
 * must take no longer than its timeout, although it normally waits up to 2 s for messages to be
 * delivered. */
static void leave_a_stopped_one(tsr_comm *comm, void *user)
{
    scene *seen = ranks_shared();
    float data[16] = {0};
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
    atomic_fetch_add(&seen->ready, 1);
    if (tsr_comm_rank(comm) == 1) {
        rest_ms(300); /* the rank is stopped in this sleep */
        return;
    }
    rest_ms(150);
    for (int i = 0; i < 20; i++)
        need_ok(tsr_comm_send(comm, data, 16, TSR_F32, 1, 3, NULL));
    tsr_comm_set_timeout(comm, UINT64_C(20000000));
    const double start = seconds_now();
    rank_destroy();
    seen->destroying_s[0] = seconds_now() - start;
}

START_TEST(leaving_takes_no_longer_than_the_deadline)
{
    ranks_start(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = leave_a_stopped_one});
    wait_until_ready(2);
    ranks_signal(1, SIGSTOP);
    rest_ms(2500);
    ranks_signal(1, SIGCONT);
    ranks_wait();
    ranks_check(0);
    const scene *seen = ranks_shared();
    ck_assert_double_lt(seen->destroying_s[0], 1);
}
END_TEST

/* Tests a message for which there is no receive. */
static void never_received(tsr_comm *comm, void *user)
{
    float *data = rank_memory(4000000);
    tsr_comm *other;
    /* Over TCP, newer versions of UCX buffer the complete message, so the send succeeds without
     * a receive. */
    const bool over_tcp = getenv("UCX_TLS") != NULL;
    (void)user;
    tsr_comm_set_timeout(comm, UINT64_C(5000000000));
    need_ok(tsr_comm_duplicate(comm, &other));
    if (tsr_comm_rank(comm) == 0) {
        tsr_comm_set_timeout(other, UINT64_C(100000000));
        const double start = seconds_now();
        const tsr_status sent = tsr_comm_send(other, data, 1000000, TSR_F32, 1, 9, NULL);
        if (!(over_tcp && sent == TSR_OK))
            need_error(sent, TSR_ERR_TIMEOUT,
                       "send (1000000 f32 to rank 1, tag 9): rank 1 has not received it within "
                       "100 ms");
        need(seconds_now() - start < 2);
    }
    /* If UCX could not cancel the send, the library closed the connection, and the barrier
     * fails. */
    if (tsr_comm_barrier(comm, NULL) == TSR_OK && tsr_comm_status(comm) == TSR_OK)
        tsr_comm_destroy(&other);
}

/* Tests a receive for which there is no message. */
static void never_sent(tsr_comm *comm, void *user)
{
    float data[7];
    tsr_comm *other;
    (void)user;
    tsr_comm_set_timeout(comm, UINT64_C(5000000000));
    need_ok(tsr_comm_duplicate(comm, &other));
    if (tsr_comm_rank(comm) == 0) {
        tsr_comm_set_timeout(other, UINT64_C(100000000));
        const double start = seconds_now();
        need_error(tsr_comm_recv(other, data, 7, TSR_F32, 1, 9, NULL), TSR_ERR_TIMEOUT,
                   "recv (7 f32 from rank 1, tag 9): rank 1 has not sent it within 100 ms");
        need(seconds_now() - start < 2);
    }
    need_ok(tsr_comm_barrier(comm, NULL));
    need_ok(tsr_comm_status(comm));
    tsr_comm_destroy(&other);
}

/* Runs each case in a job of its own: if the message of the first case cannot be cancelled, its
 * connection is closed at some later time. */
START_TEST(messages)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = never_received});
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = never_sent});
}
END_TEST

/* A rank that waits must need hardly any processor time. */
static void wait_long(tsr_comm *comm, void *user)
{
    struct timespec before, after;
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    if (rank == size - 1)
        rest_ms(600);
    need_ok(tsr_comm_barrier(comm, NULL));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double cpu =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    if (cpu > 0.02)
        rank_fail("%g s of processor time for waiting 0.6 s", cpu);
}

/* A rank that waits must need hardly any processor time even while UCX refuses to sleep, which
 * it does while messages wait for room in the queue of a rank that does not read them. */
static void wait_for_room(tsr_comm *comm, void *user)
{
    enum { MESSAGES = 2000 };
    struct timespec before, after;
    float data[16] = {0};
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    if (tsr_comm_rank(comm) == 1)
        rest_ms(600);
    for (int i = 0; i < MESSAGES; i++)
        need_ok(tsr_comm_rank(comm) == 0 ? tsr_comm_send(comm, data, 16, TSR_F32, 1, 3, NULL)
                                         : tsr_comm_recv(comm, data, 16, TSR_F32, 0, 3, NULL));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double cpu =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    if (cpu > 0.15)
        rank_fail("%g s of processor time for waiting 0.6 s", cpu);
}

/* A sleeping rank wakes soon after the event for which it waits. One success is enough, because the
 * machine may be busy. The messages by which ranks check each other would also wake it, but only
 * after 50 ms. */
static void be_woken(tsr_comm *comm, void *user)
{
    enum { ATTEMPTS = 12 };
    double *came = ranks_shared();
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    int in_time = 0;
    (void)user;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        need_ok(tsr_comm_barrier(comm, NULL));
        if (rank == size - 1) {
            rest_ms(11 + 3 * attempt % 7);
            came[attempt] = seconds_now();
        }
        need_ok(tsr_comm_barrier(comm, NULL));
        in_time += seconds_now() - came[attempt] < 0.005;
    }
    if (in_time == 0)
        rank_fail("none of %d in time", ATTEMPTS);
}

START_TEST(wakes)
{
    ranks_run(&(ranks_job){
        .size = _i / PATHS ? 8 : 2, .path = (ranks_path)(_i % PATHS), .run = be_woken});
}
END_TEST

START_TEST(long_waits)
{
    ranks_run(&(ranks_job){
        .size = _i / PATHS ? 8 : 2, .path = (ranks_path)(_i % PATHS), .run = wait_long});
}
END_TEST

START_TEST(waits_for_room)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = wait_for_room});
}
END_TEST

TESTS(failures)
{
    tcase_add_loop_test(tests, killed, 0, 15);
    tcase_add_loop_test(tests, killed_while_others_only_test, 0, PATHS);
    tcase_add_loop_test(tests, stopped, 0, 9);
    tcase_add_loop_test(tests, left_alone, 0, 6);
    tcase_add_loop_test(tests, deadlines, 0, SIZES * PATHS);
    tcase_add_loop_test(tests, leaving_takes_no_longer_than_the_deadline, 0, PATHS);
    tcase_add_loop_test(tests, messages, 0, PATHS);
    tcase_add_loop_test(tests, wakes, 0, 2 * PATHS);
    tcase_add_loop_test(tests, long_waits, 0, 2 * PATHS);
    tcase_add_loop_test(tests, waits_for_room, 0, PATHS);
}
