/* Makes every allocation fail in turn. The call that needed it must return TSR_ERR_NO_MEMORY,
 * nothing may leak, no rank may hang, and a call that failed before it started can be repeated. */
#include <string.h>

#include "base/fault.h"
#include "comm/values.h"

/* State that the ranks share without the communicator. */
typedef struct agreement {
    _Atomic uint64_t armed; /* the number of the allocation that fails in the next round */
    _Atomic int failures;   /* number of calls that returned TSR_ERR_NO_MEMORY */
    _Atomic bool last;      /* set if the operations make fewer than `armed` allocations */
} agreement;

/* Repeats the call as long as it fails for lack of memory. */
#define again(call)                                                                                \
    do {                                                                                           \
        tsr_status again_status_;                                                                  \
        while ((again_status_ = (call)) == TSR_ERR_NO_MEMORY)                                      \
            shared->failures++;                                                                    \
        if (again_status_ != TSR_OK)                                                               \
            rank_fail("%s:%d: %s: %s: %s", __FILE__, __LINE__, #call,                              \
                      tsr_status_name(again_status_), tsr_last_error());                           \
    } while (0)

static void some_of_all(tsr_comm *comm, agreement *shared, float *data)
{
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    uint64_t counts[MAX_RANKS];
    tsr_comm *half, *twin;
    tsr_request *requests[6];
    for (int i = 0; i < size; i++)
        counts[i] = (uint64_t)i + 1;
    again(tsr_comm_split(comm, rank % 2, 0, &half));
    again(tsr_comm_duplicate(comm, &twin));
    for (int i = 0; i < 6; i++)
        again(tsr_comm_all_reduce(i % 2 ? twin : comm, data + i * 10000, data + i * 10000,
                                  i % 3 ? 10000 : 10, TSR_F32, TSR_OP_SUM, &requests[i]));
    for (int i = 5; i >= 0; i--)
        need_ok(tsr_request_wait(&requests[i]));
    again(tsr_comm_all_gather_v(twin, data, data + 10000, counts, TSR_F32, NULL));
    again(tsr_comm_gather_v(comm, data, data + 10000, counts, TSR_F32, 0, NULL));
    again(tsr_comm_barrier(half, NULL));
    if (rank == 0)
        again(tsr_comm_send(comm, data, 5, TSR_F32, 1, 1, NULL));
    if (rank == 1)
        again(tsr_comm_recv(comm, data, 5, TSR_F32, 0, 1, NULL));
    tsr_comm_destroy(&half);
    tsr_comm_destroy(&twin);
}

static void fail_each(tsr_comm *comm, void *user)
{
    agreement *shared = ranks_shared();
    const int rank = tsr_comm_rank(comm), victim = tsr_comm_size(comm) - 1;
    float *data = rank_memory(100000 * sizeof *data);
    (void)user;
    do {
        if (rank == victim)
            tsr__fault_arm(TSR__FAULT_ALLOC, shared->armed, 0);
        some_of_all(comm, shared, data);
        if (rank == victim) {
            shared->last = !tsr__fault_site();
            tsr__fault_disarm();
            shared->armed++;
        }
        need_ok(tsr_comm_barrier(comm, NULL));
        need_ok(tsr_comm_barrier(comm, NULL));
    } while (!shared->last);
}

START_TEST(operations)
{
    const agreement *shared;
    ranks_run(
        &(ranks_job){.size = 2 + _i / PATHS, .path = (ranks_path)(_i % PATHS), .run = fail_each});
    shared = ranks_shared();
    /* At least half of the failed allocations must be errors. Others are not, such as those for
     * notes to other ranks. */
    ck_assert_int_gt((int)shared->armed, 20);
    ck_assert_int_gt(shared->failures, (int)shared->armed / 2);
}
END_TEST

/* Creates a communicator while allocations of the last rank fail, so the other ranks find that
 * it is missing. Not tested over TCP: UCX 1.13 ends a process whose peer ends while a connection
 * is being made. */

static void meet(tsr_comm *comm, void *user)
{
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
}

START_TEST(creating)
{
    int failed = 0;
    for (int n = 0;; n++) {
        ck_assert_int_lt(n, 200);
        ranks_start(&(ranks_job){.size = 2,
                                 .path = (ranks_path)_i,
                                 .timeout_ns = UINT64_C(5000000000),
                                 .fault = n + 1,
                                 .run = meet});
        ranks_wait();
        const rank_record *victim = ranks_record(1), *other = ranks_record(0);
        if (victim->has_returned && other->has_returned)
            break;
        failed++;
        ck_assert_int_eq(victim->wait_status, 0);
        ck_assert_int_eq(other->wait_status, 0);
        ck_assert_msg(strstr(victim->failure, "TSR_ERR_NO_MEMORY"), "%s", victim->failure);
        ck_assert_msg(strstr(other->failure, "TSR_ERR_"), "%s", other->failure);
        ck_assert_msg(other->seconds < 4, "after %g s", other->seconds);
    }
    ck_assert_int_gt(failed, 8);
}
END_TEST

TESTS(faults)
{
    tcase_add_loop_test(tests, operations, 0, 2 * PATHS);
    tcase_add_loop_test(tests, creating, 0, PATH_TCP);
}
