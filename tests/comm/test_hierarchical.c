/* Hierarchical operations: ranks are on several hosts, and only ranks on the same host share
 * memory. All hosts are this machine: TESSERA_NODE gives each its name. The bits must be the same
 * for every placement. A lost rank must be detected in every step of an operation. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_state.h"
#include "comm/failure/failure.h"
#include "comm/values.h"

typedef struct placement {
    const char *hosts;
    /* how many ranks (leaves) each subtree of the tree of additions has; UNEVEN: different
     * numbers; 0: there are no subtrees */
    int leaves;
} placement;
#define UNEVEN (-1)

static const placement placements[] = {
    {"aabb", 2},        {"aaab", UNEVEN}, {"abbc", 0},          {"abab", 0},
    {"aaaabbbb", 4},    {"aaaabb", 2},    {"aabbaabb", 2},      {"aabcc", UNEVEN},
    {"aabbbb", UNEVEN}, {"aab", 1},       {"aaabbbbb", UNEVEN}, {"abaaabb", UNEVEN},
};
#define PLACEMENTS (int)(sizeof placements / sizeof placements[0])

/* Results ------------------------------------------------------------------------------------ */

#define MOST 40003 /* elements; more than a buffer in shared memory can hold */

static void need_placed(const tsr_comm *comm, const placement *placed)
{
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    int local = 0;
    for (int i = 0; i < size; i++) {
        const bool same = placed->hosts[i] == placed->hosts[rank];
        need((tsr_comm_host(comm, i) == tsr_comm_host(comm, rank)) == same);
        local += same;
    }
    need(tsr_comm_local_size(comm) == local);
    need(tsr_comm_host(comm, 0) == 0 && tsr_comm_host(comm, size) == -1);
    need((comm->hierarchy.subtrees > 1) == (placed->leaves != 0));
    need(comm->hierarchy.uneven == (placed->leaves == UNEVEN));
    need(placed->leaves <= 0 || comm->hierarchy.leaves == placed->leaves);
    need((comm->shm != NULL) == (placed->leaves != 0 && comm->hierarchy.count > 1));
}

static void reduce(tsr_comm *comm, uint64_t count, tsr_dtype dtype, tsr_op op, int round)
{
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    const uint64_t element = tsr__element_size(dtype), each = count / (uint64_t)size;
    uint8_t *data = calloc(count + 1, element), *out = calloc(count + 1, element);
    uint64_t counts[MAX_RANKS], start = 0, total = 0;
    need(data && out);
    fill_values(data, round, rank, 0, count, dtype);
    need_ok(tsr_comm_all_reduce(comm, data, out, count, dtype, op, NULL));
    need_reduced(out, round, size, 0, count, dtype, op);
    need_values(data, round, rank, 0, count, dtype);
    need_ok(tsr_comm_reduce_scatter(comm, data, out, each, dtype, op, NULL));
    need_reduced(out, round, size, each * (uint64_t)rank, each, dtype, op);
    for (int i = 0; i < size; i++) { /* blocks of different sizes, some of them empty */
        counts[i] = i % 3 == 1 ? 0 : each / (uint64_t)(1 + i % 2);
        start += i < rank ? counts[i] : 0;
        total += counts[i];
    }
    need_ok(tsr_comm_reduce_scatter_v(comm, data, data + start * element, counts, dtype, op, NULL));
    need_reduced(data + start * element, round, size, start, counts[rank], dtype, op);
    need(total <= count);
    fill_values(data, round, rank, 0, count, dtype);
    need_ok(tsr_comm_all_reduce(comm, data, data, count, dtype, op, NULL));
    need_reduced(data, round, size, 0, count, dtype, op);
    free(data);
    free(out);
}

static void move(tsr_comm *comm, uint64_t each, tsr_dtype dtype, int round)
{
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    const uint64_t element = tsr__element_size(dtype), count = each * (uint64_t)size;
    uint8_t *data = calloc(count + 1, element), *out = calloc(count + 1, element);
    uint64_t counts[MAX_RANKS], start = 0;
    need(data && out);
    fill_values(data, round, rank, 0, each, dtype);
    need_ok(tsr_comm_all_gather(comm, data, out, each, dtype, NULL));
    for (int i = 0; i < size; i++)
        need_values(out + (uint64_t)i * each * element, round, i, 0, each, dtype);
    for (int i = 0; i < size; i++) {
        counts[i] = i % 3 == 1 ? 0 : each / (uint64_t)(1 + i % 2);
        start += i < rank ? counts[i] : 0;
    }
    memcpy(out + start * element, data, counts[rank] * element);
    need_ok(tsr_comm_all_gather_v(comm, out + start * element, out, counts, dtype, NULL));
    start = 0;
    for (int i = 0; i < size; i++, start += counts[i - 1])
        need_values(out + start * element, round, i, 0, counts[i], dtype);
    for (int root = 0; root < size; root++) {
        memset(out, 0xff, count * element);
        if (rank == root)
            fill_values(out, round, root, 0, count, dtype);
        need_ok(tsr_comm_broadcast(comm, out, count, dtype, root, NULL));
        need_values(out, round, root, 0, count, dtype);
    }
    free(data);
    free(out);
}

static void all_operations(tsr_comm *comm, void *user)
{
    static const uint64_t counts[] = {0, 1, 13, 1000, MOST};
    need_placed(comm, user);
    for (int c = 0; c < 5; c++) {
        reduce(comm, counts[c], c % 2 ? TSR_BF16 : TSR_F32, c % 2 ? TSR_OP_AVG : TSR_OP_SUM, c);
        move(comm, counts[c] / 4, TSR_F32, c);
        need_ok(tsr_comm_barrier(comm, NULL));
    }
}

START_TEST(for_any_placement)
{
    placement placed = placements[_i];
    ranks_run(&(ranks_job){.size = (int)strlen(placed.hosts),
                           .hosts = placed.hosts,
                           .run = all_operations,
                           .user = &placed});
}
END_TEST

/* Starts several operations, hierarchical and flat, and waits for them in another order. */
static void overlapping(tsr_comm *comm, void *user)
{
    enum { REQUESTS = 6 };
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    float *data = rank_memory(MOST * sizeof *data);
    float *out[REQUESTS];
    (void)user;
    fill_values(data, 1, rank, 0, MOST, TSR_F32);
    for (int i = 0; i < REQUESTS; i++)
        out[i] = rank_memory(MOST * sizeof *out[i]);
    for (int round = 0; round < 10; round++) {
        tsr_request *requests[REQUESTS] = {NULL};
        for (int i = 0; i < REQUESTS; i++) {
            const uint64_t count = i % 2 ? MOST / 4 : 100;
            if (i == 2)
                need_ok(tsr_comm_reduce(comm, data, out[i], count, TSR_F32, TSR_OP_SUM, 0,
                                        &requests[i]));
            else
                need_ok(tsr_comm_all_reduce(comm, data, out[i], count, TSR_F32, TSR_OP_SUM,
                                            &requests[i]));
        }
        for (int i = REQUESTS - 1; i >= 0; i--) {
            const int which = (i + rank + round) % REQUESTS;
            need_ok(tsr_request_wait(&requests[which]));
        }
        for (int i = 0; i < REQUESTS && round == 0; i++) {
            if (i != 2 || rank == 0)
                need_reduced(out[i], 1, size, 0, i % 2 ? MOST / 4 : 100, TSR_F32, TSR_OP_SUM);
        }
    }
}

START_TEST(several_at_once)
{
    static const char *const hosts[] = {"aaaabbcc", "aabcc"};
    ranks_run(&(ranks_job){.size = (int)strlen(hosts[_i]), .hosts = hosts[_i], .run = overlapping});
}
END_TEST

/* Communicators of some of the ranks must have subtrees of their own. */
static void split(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm);
    tsr_comm *part = NULL, *same = NULL;
    (void)user;
    /* The hosts are aaaabbbb: the even ranks are on aabb, the odd ones in reverse order on bbaa. */
    need_ok(tsr_comm_split(comm, rank % 2, rank % 2 ? -rank : rank, &part));
    need(tsr_comm_size(part) == 4 && tsr_comm_host_count(part) == 2);
    need(part->hierarchy.subtrees == 2 && part->shm);
    need(tsr_comm_host(part, 0) == 0 && tsr_comm_host(part, 1) == 0 && tsr_comm_host(part, 3) == 1);
    reduce(part, 1000, TSR_F32, TSR_OP_SUM, 1);
    reduce(part, MOST, TSR_F32, TSR_OP_SUM, 2);
    need_ok(tsr_comm_duplicate(part, &same));
    reduce(same, 1000, TSR_F32, TSR_OP_SUM, 1);
    tsr_comm_destroy(&same);
    tsr_comm_destroy(&part);
    /* Each part has one host only. */
    need_ok(tsr_comm_split(comm, tsr_comm_host(comm, rank), 0, &part));
    need(tsr_comm_host_count(part) == 1 && part->hierarchy.subtrees == 1 && part->shm);
    reduce(part, 1000, TSR_F32, TSR_OP_SUM, 1);
    tsr_comm_destroy(&part);
}

START_TEST(of_parts)
{
    ranks_run(&(ranks_job){.size = 8, .hosts = "aaaabbbb", .run = split});
}
END_TEST

/* Failures ----------------------------------------------------------------------------------- */

typedef struct loss {
    const char *hosts;
    int operation, victim;
    uint64_t count;
    uint32_t round; /* the victim ends when it has begun this round of its schedule */
} loss;

static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                    "barrier"};

static tsr_status start(tsr_comm *comm, const loss *plan, float *data, float *out,
                        tsr_request **request)
{
    const uint64_t each = plan->count / (uint64_t)tsr_comm_size(comm);
    switch (plan->operation) {
    case 0:
        return tsr_comm_all_reduce(comm, data, out, plan->count, TSR_F32, TSR_OP_SUM, request);
    case 1:
        return tsr_comm_reduce_scatter(comm, data, out, each, TSR_F32, TSR_OP_SUM, request);
    case 2:
        return tsr_comm_all_gather(comm, data, out, each, TSR_F32, request);
    case 3:
        return tsr_comm_broadcast(comm, out, plan->count, TSR_F32, 1, request);
    default:
        return tsr_comm_barrier(comm, request);
    }
}

/* Makes progress until the request has begun a round, and then kills this process. */
static void end_in_round(tsr_request *request, uint32_t round)
{
    bool done = false;
    while (!done) {
        const size_t at = request->round_start;
        if (request->posted && at < request->schedule.count &&
            request->schedule.steps[at].round >= round)
            raise(SIGKILL);
        need_ok(tsr_request_test(&request, &done));
    }
    raise(SIGKILL); /* reached if this rank's schedule has fewer rounds */
}

static void until_lost(tsr_comm *comm, void *user)
{
    const loss *plan = user;
    char words[64];
    float *data = rank_memory(plan->count * sizeof *data);
    float *out = rank_memory(plan->count * sizeof *out);
    tsr_status status = TSR_OK;
    for (int i = 0; status == TSR_OK; i++) {
        tsr_request *request = NULL;
        status = start(comm, plan, data, out, &request);
        if (status == TSR_OK && i == 2 && tsr_comm_rank(comm) == plan->victim)
            end_in_round(request, plan->round);
        if (status == TSR_OK)
            status = tsr_request_wait(&request);
    }
    snprintf(words, sizeof words, ": rank %d is lost: ", plan->victim);
    if (status != TSR_ERR_PEER_LOST || !strstr(tsr_last_error(), words) ||
        !strstr(tsr_last_error(), names[plan->operation]))
        rank_fail("%s of %llu, rank %d ended in round %u: %s: %s", names[plan->operation],
                  (unsigned long long)plan->count, plan->victim, (unsigned)plan->round,
                  tsr_status_name(status), tsr_last_error());
}

/* Each rank is lost in each operation, in different rounds. */
START_TEST(a_rank_is_lost_in_a_round)
{
    for (int operation = 0; operation < 5; operation++) {
        for (int victim = 0; victim < 4; victim++) {
            const uint32_t round = (uint32_t)(victim + operation) % 6;
            /* With aaba, ranks 0 and 1 are a subtree on one host; ranks 2 and 3 share no memory. */
            loss plan = {.hosts = (operation + victim / 2) % 2 ? "aabb" : "aaba",
                         .operation = operation,
                         .victim = victim,
                         .count = (operation / 2 + victim) % 2 ? 100 : 20000,
                         .round = round};
            ranks_start(
                &(ranks_job){.size = 4, .hosts = plan.hosts, .run = until_lost, .user = &plan});
            ranks_wait();
            for (int i = 0; i < 4; i++) {
                if (i != victim)
                    ranks_check(i);
            }
        }
    }
}
END_TEST

/* After a loss, the communicator of the ranks that are left must have subtrees of its own. */
static void go_on(tsr_comm *comm, void *user)
{
    _Atomic int *met = ranks_shared();
    tsr_comm *left = NULL;
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
    ranks_meet(met, 4);
    if (tsr_comm_rank(comm) == 1)
        raise(SIGKILL);
    need_error(tsr_comm_barrier(comm, NULL), TSR_ERR_PEER_LOST, "rank 1 is lost");
    need_ok(tsr_comm_shrink(comm, NULL, &left));
    need(tsr_comm_size(left) == 3 && tsr_comm_host_count(left) == 2);
    need(left->hierarchy.subtrees == 2 &&
         left->hierarchy.count == (tsr_comm_rank(left) < 2 ? 2 : 1));
    reduce(left, 1000, TSR_F32, TSR_OP_SUM, 1);
    reduce(left, MOST, TSR_F32, TSR_OP_SUM, 2);
    tsr_comm_destroy(&left);
}

START_TEST(of_the_ranks_that_are_left)
{
    ranks_start(&(ranks_job){.size = 4, .hosts = "aaab", .run = go_on});
    ranks_wait();
    for (int i = 0; i < 4; i++) {
        if (i != 1)
            ranks_check(i);
    }
}
END_TEST

/* One rank is late, calls another operation, cancels, or leaves. */
static void misbehave(tsr_comm *comm, void *user)
{
    static const char *const words[] = {
        "all_reduce #2 (sum of 100 f32): not done after 300 ms; no answer from ",
        "rank 0 called all_reduce #2 (sum of 100 f32), rank 1 called barrier #2",
        "rank 3 cancelled all_reduce #2 (sum of 100 f32)",
        "all_reduce #2 (sum of 100 f32): rank 3 has destroyed the communicator",
        " called all_reduce #2 (sum of 100 f32), rank 3 called all_reduce #2 (max of 100 f32)",
    };
    static const tsr_status statuses[] = {TSR_ERR_TIMEOUT, TSR_ERR_INVALID, TSR_ERR_PEER_LOST,
                                          TSR_ERR_PEER_LOST, TSR_ERR_INVALID};
    const int how = *(const int *)user, rank = tsr_comm_rank(comm);
    const bool is_culprit = rank == (how == 1 ? 1 : 3);
    float data[100] = {0};
    tsr_request *request = NULL;
    need_ok(tsr_comm_barrier(comm, NULL));
    rest_ms(30); /* until all ranks have left the barrier */
    if (how == 0)
        tsr_comm_set_timeout(comm, 300 * UINT64_C(1000000));
    if (how == 0 && is_culprit) {
        rest_ms(1000);
        need_error(tsr_comm_all_reduce(comm, data, data, 100, TSR_F32, TSR_OP_SUM, NULL),
                   statuses[0], words[0]);
    } else if (how == 2 && is_culprit) {
        need_ok(tsr_comm_all_reduce(comm, data, data, 100, TSR_F32, TSR_OP_SUM, &request));
        tsr_request_cancel(&request);
        need_error(tsr_comm_status(comm), statuses[2], words[2]);
    } else if (how == 3 && is_culprit) {
        rank_destroy();
    } else if (how == 1 && is_culprit) {
        need_error(tsr_comm_barrier(comm, NULL), statuses[1], words[1]);
    } else if (how == 2) {
        rest_ms(rank == 2 ? 0 : 30); /* the call must not complete before it is cancelled */
        /* A rank that already has all data of the cancelled call gets the error from its next
         * call. */
        if (tsr_comm_all_reduce(comm, data, data, 100, TSR_F32, TSR_OP_SUM, NULL) == TSR_OK)
            need_error(tsr_comm_barrier(comm, NULL), statuses[2], words[2]);
        need_error(tsr_comm_status(comm), statuses[2], words[2]);
    } else {
        const tsr_op op = how == 4 && is_culprit ? TSR_OP_MAX : TSR_OP_SUM;
        need_error(tsr_comm_all_reduce(comm, data, data, 100, TSR_F32, op, NULL), statuses[how],
                   words[how]);
    }
}

START_TEST(a_rank_misbehaves)
{
    int how = _i;
    ranks_run(&(ranks_job){.size = 4, .hosts = "aabb", .run = misbehave, .user = &how});
}
END_TEST

/* The operation that one rank calls waits for an earlier hierarchical one. Another rank asks for
 * whom it waits. A receive is not such an earlier operation, and neither is a completed
 * operation that the caller has not released. */
static void wait_for_earlier(tsr_comm *comm, void *user)
{
    atomic_int *seen = ranks_shared();
    const int rank = tsr_comm_rank(comm);
    float data[3][100] = {{0}}, received;
    tsr_request *requests[3], *receive;
    (void)user;
    need_ok(tsr_comm_all_reduce(comm, data[0], data[0], 100, TSR_F32, TSR_OP_SUM, &requests[0]));
    need_ok(tsr_comm_barrier(comm, NULL)); /* completes the sum, too */
    need(requests[0]->done);
    need_ok(tsr_comm_recv(comm, &received, 1, TSR_F32, (rank + 1) % 4, 5, &receive));
    while (rank != 0 && !atomic_load(seen))
        rest_ms(1);
    for (int i = 1; i < 3; i++)
        need_ok(
            tsr_comm_all_reduce(comm, data[i], data[i], 100, TSR_F32, TSR_OP_SUM, &requests[i]));
    if (rank == 0) {
        int awaited = 0;
        need(requests[1]->is_hierarchical && tsr__request_is_queued(requests[2]));
        for (int other = 1; other < 4; other++) {
            awaited += tsr__request_awaits(requests[1], other);
            need(tsr__request_awaits(requests[2], other) ==
                 tsr__request_awaits(requests[1], other));
        }
        need(awaited > 0);
        atomic_store(seen, 1);
    }
    for (int i = 0; i < 3; i++)
        need_ok(tsr_request_wait(&requests[i]));
    need_ok(tsr_comm_send(comm, &received, 1, TSR_F32, (rank + 3) % 4, 5, NULL));
    need_ok(tsr_request_wait(&receive));
}

START_TEST(a_call_waits_for_an_earlier_one)
{
    ranks_run(&(ranks_job){.size = 4, .hosts = "aabb", .run = wait_for_earlier});
}
END_TEST

TESTS(hierarchy)
{
    tcase_add_loop_test(tests, for_any_placement, 0, PLACEMENTS);
    tcase_add_loop_test(tests, several_at_once, 0, 2);
    tcase_add_test(tests, of_parts);
    tcase_add_test(tests, a_rank_is_lost_in_a_round);
    tcase_add_test(tests, of_the_ranks_that_are_left);
    tcase_add_loop_test(tests, a_rank_misbehaves, 0, 5);
    tcase_add_test(tests, a_call_waits_for_an_earlier_one);
}
