/* Ranks that call different operations. All ranks must get an error, by the next call at the
 * latest, that names both calls. */
#include <stdio.h>
#include <string.h>

#include "comm/values.h"

typedef tsr_status (*call_fn)(tsr_comm *comm, float *data, int variant);

static tsr_status all_reduce_of(tsr_comm *comm, float *data, int variant)
{
    static const struct {
        uint64_t count;
        tsr_dtype dtype;
        tsr_op op;
    } as[] = {{8, TSR_F32, TSR_OP_SUM}, {9, TSR_F32, TSR_OP_SUM},     {8, TSR_I32, TSR_OP_SUM},
              {8, TSR_F32, TSR_OP_MAX}, {20000, TSR_F32, TSR_OP_SUM}, {0, TSR_F32, TSR_OP_SUM}};
    return tsr_comm_all_reduce(comm, data, data, as[variant].count, as[variant].dtype,
                               as[variant].op, NULL);
}

static tsr_status reduce_of(tsr_comm *comm, float *data, int variant)
{
    return tsr_comm_reduce(comm, data, data, 8, TSR_F32, TSR_OP_SUM, variant, NULL);
}

static tsr_status broadcast_of(tsr_comm *comm, float *data, int variant)
{
    return tsr_comm_broadcast(comm, data, variant < 2 ? 8 : 40000, TSR_F32, variant % 2, NULL);
}

static tsr_status kind_of(tsr_comm *comm, float *data, int variant)
{
    switch (variant) {
    case 0:
        return tsr_comm_barrier(comm, NULL);
    case 1:
        return tsr_comm_all_reduce(comm, data, data, 8, TSR_F32, TSR_OP_SUM, NULL);
    case 2:
        return tsr_comm_broadcast(comm, data, 8, TSR_F32, 0, NULL);
    default:
        return tsr_comm_all_gather(comm, data, data + 100, 8, TSR_F32, NULL);
    }
}

static tsr_status counts_of(tsr_comm *comm, float *data, int variant)
{
    uint64_t counts[MAX_RANKS];
    for (int i = 0; i < tsr_comm_size(comm); i++)
        counts[i] = (uint64_t)(i == variant ? 3 : 2);
    return tsr_comm_reduce_scatter_v(comm, data, data + 100, counts, TSR_F32, TSR_OP_SUM, NULL);
}

static tsr_status gathered_of(tsr_comm *comm, float *data, int variant)
{
    return tsr_comm_gather(comm, data, data + 100, 8, TSR_F32, variant, NULL);
}

static const struct {
    call_fn call;
    int most, one; /* numbers of the variants that most ranks call, and that one rank calls */
    const char *max_text, *one_text;
} cases[] = {
    {all_reduce_of, 0, 1, "all_reduce #1 (sum of 8 f32)", "all_reduce #1 (sum of 9 f32)"},
    {all_reduce_of, 0, 2, "all_reduce #1 (sum of 8 f32)", "all_reduce #1 (sum of 8 i32)"},
    {all_reduce_of, 0, 3, "all_reduce #1 (sum of 8 f32)", "all_reduce #1 (max of 8 f32)"},
    {all_reduce_of, 0, 4, "all_reduce #1 (sum of 8 f32)", "all_reduce #1 (sum of 20000 f32)"},
    {all_reduce_of, 4, 0, "all_reduce #1 (sum of 20000 f32)", "all_reduce #1 (sum of 8 f32)"},
    {all_reduce_of, 0, 5, "all_reduce #1 (sum of 8 f32)", "all_reduce #1 (sum of 0 f32)"},
    {reduce_of, 0, 1, "reduce #1 (sum of 8 f32, root 0)", "reduce #1 (sum of 8 f32, root 1)"},
    {broadcast_of, 0, 1, "broadcast #1 (8 f32, root 0)", "broadcast #1 (8 f32, root 1)"},
    {broadcast_of, 0, 2, "broadcast #1 (8 f32, root 0)", "broadcast #1 (40000 f32, root 0)"},
    {kind_of, 0, 1, "barrier #1", "all_reduce #1 (sum of 8 f32)"},
    {kind_of, 1, 0, "all_reduce #1 (sum of 8 f32)", "barrier #1"},
    {kind_of, 2, 3, "broadcast #1 (8 f32, root 0)", "all_gather #1 (8 f32)"},
    {counts_of, 0, 1, "reduce_scatter_v #1 (sum of ", "reduce_scatter_v #1 (sum of "},
    {gathered_of, 0, 1, "gather #1 (8 f32, root 0)", "gather #1 (8 f32, root 1)"},
};
#define CASES ((int)(sizeof cases / sizeof cases[0]))

/* In the first round the last rank but one calls another operation; in the second, the last rank
 * does. */
static void differ(tsr_comm *comm, void *user)
{
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    float *data = rank_memory(100000 * sizeof *data);
    (void)user;
    for (int i = 0; i < CASES; i++) {
        for (int odd = size - 2; odd < size; odd++) {
            char side[256];
            const int variant = rank == odd ? cases[i].one : cases[i].most;
            tsr_comm *other;
            need_ok(tsr_comm_duplicate(comm, &other));
            const double start = seconds_now();
            /* Some ranks may still be in this call while others have failed. */
            tsr_status status = tsr_comm_barrier(other, NULL);
            if (status == TSR_OK)
                status = cases[i].call(other, data, variant);
            if (status == TSR_OK)
                status = tsr_comm_barrier(other, NULL);
            const double took = seconds_now() - start;
            if (status != TSR_ERR_INVALID)
                rank_fail("case %d, odd %d: %s %s", i, odd, tsr_status_name(status),
                          status ? tsr_last_error() : "");
            /* The error names the rank that differs, and one of the others. */
            snprintf(side, sizeof side, "rank %d called %s", odd, cases[i].one_text);
            if (!strstr(tsr_last_error(), side))
                rank_fail("case %d: %s: no '%s'", i, tsr_last_error(), side);
            snprintf(side, sizeof side, " called %s", cases[i].max_text);
            if (!strstr(tsr_last_error(), side))
                rank_fail("case %d: %s: no '%s'", i, tsr_last_error(), side);
            if (took > 2)
                rank_fail("case %d: after %g s", i, took);
            need(tsr_comm_status(other) == TSR_ERR_INVALID);
            tsr_comm_destroy(&other);
        }
    }
}

START_TEST(different_calls)
{
    static const int sizes[] = {2, 5};
    ranks_run(&(ranks_job){.size = sizes[_i % 2], .path = (ranks_path)(_i / 2), .run = differ});
}
END_TEST

/* One rank starts two operations in another order than the others. */
static void reorder(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm);
    float data[2] = {1, 2};
    tsr_request *requests[2] = {NULL, NULL};
    tsr_status status = TSR_OK;
    (void)user;
    for (int i = 0; i < 2 && status == TSR_OK; i++) {
        if ((i == 0) == (rank == 1))
            status = tsr_comm_broadcast(comm, data, 1, TSR_F32, 0, &requests[i]);
        else
            status = tsr_comm_all_reduce(comm, data, data, 2, TSR_F32, TSR_OP_SUM, &requests[i]);
    }
    for (int i = 0; i < 2; i++) {
        tsr_status ended = tsr_request_wait(&requests[i]);
        status = status == TSR_OK ? ended : status;
    }
    if (status == TSR_OK)
        status = tsr_comm_barrier(comm, NULL);
    need(status == TSR_ERR_INVALID);
    /* The error may be about the first operation or about the second. */
    need(strstr(tsr_last_error(), "rank 1 called "));
    need(strstr(tsr_last_error(), " called broadcast #"));
    need(strstr(tsr_last_error(), " called all_reduce #"));
}

START_TEST(another_order)
{
    ranks_run(
        &(ranks_job){.size = 2 + _i / PATHS, .path = (ranks_path)(_i % PATHS), .run = reorder});
}
END_TEST

/* Tests a message whose count or dtype differs from that of its receive. */
static void messages(tsr_comm *comm, void *user)
{
    static const struct {
        uint64_t count;
        tsr_dtype dtype;
        const char *words;
    } as[] = {
        {8, TSR_F32, "rank 1 called recv (9 f32 from rank 0, tag 3), rank 0 sent it 8 f32"},
        {10, TSR_F32, "rank 1 called recv (9 f32 from rank 0, tag 3), rank 0 sent it 10 f32"},
        {9, TSR_I32, "rank 1 called recv (9 f32 from rank 0, tag 3), rank 0 sent it 9 i32"},
        {100000, TSR_F32, "rank 1 called recv (9 f32 from rank 0, tag 3), rank 0 sent it 100000"},
    };
    float *data = rank_memory(400000);
    (void)user;
    for (int i = 0; i < 4; i++) {
        tsr_comm *other;
        tsr_status status;
        need_ok(tsr_comm_duplicate(comm, &other));
        if (tsr_comm_rank(comm) == 0)
            status = tsr_comm_send(other, data, as[i].count, as[i].dtype, 1, 3, NULL);
        else
            status = tsr_comm_recv(other, data, 9, TSR_F32, 0, 3, NULL);
        if (status == TSR_OK)
            status = tsr_comm_barrier(other, NULL);
        if (status != TSR_ERR_INVALID || !strstr(tsr_last_error(), as[i].words))
            rank_fail("case %d: %s", i, status ? tsr_last_error() : "no error");
        tsr_comm_destroy(&other);
    }
}

START_TEST(different_messages)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = messages});
}
END_TEST

/* Errors that each rank detects without the others. */
static void arguments(tsr_comm *comm, void *user)
{
    float data[64] = {0}, other[64] = {0};
    uint64_t counts[2] = {UINT64_MAX, 2};
    tsr_request *request = NULL;
    (void)user;
    need_error(tsr_comm_all_reduce(NULL, data, data, 1, TSR_F32, TSR_OP_SUM, NULL), TSR_ERR_INVALID,
               "all_reduce: comm is NULL");
    need_error(tsr_comm_all_reduce(comm, NULL, data, 1, TSR_F32, TSR_OP_SUM, NULL), TSR_ERR_INVALID,
               "all_reduce: send is NULL");
    need_error(tsr_comm_all_reduce(comm, data, NULL, 1, TSR_F32, TSR_OP_SUM, NULL), TSR_ERR_INVALID,
               "all_reduce: recv is NULL");
    need_error(tsr_comm_broadcast(comm, NULL, 1, TSR_F32, 0, NULL), TSR_ERR_INVALID,
               "broadcast: data is NULL");
    need_error(tsr_comm_all_reduce(comm, data, other, 1, (tsr_dtype)99, TSR_OP_SUM, NULL),
               TSR_ERR_INVALID, "all_reduce: unsupported dtype 99");
    need_error(tsr_comm_all_reduce(comm, data, other, 1, TSR_F32, (tsr_op)0, NULL), TSR_ERR_INVALID,
               "all_reduce: unsupported op 0");
    need_error(tsr_comm_reduce(comm, data, other, 1, TSR_F32, TSR_OP_SUM, 2, NULL), TSR_ERR_INVALID,
               "reduce: root 2 is not one of 2 ranks");
    need_error(tsr_comm_broadcast(comm, data, 1, TSR_F32, -1, NULL), TSR_ERR_INVALID,
               "broadcast: root -1 is not one of 2 ranks");
    need_error(tsr_comm_all_reduce(comm, data, data + 1, 4, TSR_F32, TSR_OP_SUM, NULL),
               TSR_ERR_INVALID, "all_reduce: recv overlaps send");
    need_error(tsr_comm_all_gather(comm, data, data, 4, TSR_F32, NULL),
               tsr_comm_rank(comm) == 0 ? TSR_OK : TSR_ERR_INVALID,
               tsr_comm_rank(comm) == 0 ? "" : "all_gather: recv overlaps send");
    if (tsr_comm_rank(comm) == 1)
        need_ok(tsr_comm_all_gather(comm, data, other, 4, TSR_F32, NULL));
    need_error(tsr_comm_all_to_all(comm, data, data + 1, 2, TSR_F32, NULL), TSR_ERR_INVALID,
               "all_to_all: recv overlaps send");
    need_error(tsr_comm_all_reduce(comm, data, other, UINT64_MAX / 4, TSR_F32, TSR_OP_SUM, NULL),
               TSR_ERR_OVERFLOW, "all_reduce: 4611686018427387903 elements of f32 are too many");
    need_error(tsr_comm_all_gather(comm, data, other, UINT64_MAX / 2 + 1, TSR_U8, NULL),
               TSR_ERR_OVERFLOW, "all_gather: 2 blocks of 9223372036854775808 elements are too");
    need_error(tsr_comm_reduce_scatter_v(comm, data, other, counts, TSR_F32, TSR_OP_SUM, NULL),
               TSR_ERR_OVERFLOW, "reduce_scatter_v: the counts add up to too many");
    need_error(tsr_comm_reduce_scatter_v(comm, data, other, NULL, TSR_F32, TSR_OP_SUM, NULL),
               TSR_ERR_INVALID, "reduce_scatter_v: counts is NULL");
    need_error(tsr_comm_all_to_all_v(comm, data, counts, other, NULL, TSR_F32, NULL),
               TSR_ERR_INVALID, "all_to_all_v: counts is NULL");
    need_error(tsr_comm_send(comm, data, 1, TSR_F32, 2, 0, NULL), TSR_ERR_INVALID,
               "send: rank 2 is not one of 2 ranks");
    need_error(tsr_comm_recv(comm, data, 1, TSR_F32, tsr_comm_rank(comm), 0, NULL), TSR_ERR_INVALID,
               " is this rank itself");
    need_error(tsr_comm_send(comm, data, 1, TSR_F32, 1 - tsr_comm_rank(comm), 65536, NULL),
               TSR_ERR_INVALID, "send: tag 65536 is not in 0..65535");
    need_error(tsr_comm_recv(comm, data, 1, TSR_F32, 0, -1, &request), TSR_ERR_INVALID,
               tsr_comm_rank(comm) == 0 ? "itself" : "recv: tag -1 is not in 0..65535");
    need(!request);
    need_error(tsr_comm_status(NULL), TSR_ERR_INVALID, "comm_status: comm is NULL");
    need(tsr_comm_rank(NULL) == 0 && tsr_comm_size(NULL) == 0);
    need(tsr_comm_local_rank(NULL) == 0 && tsr_comm_local_size(NULL) == 0);
    need(tsr_comm_host_count(NULL) == 0 && tsr_comm_host(NULL, 0) == -1);
    need(tsr_comm_host(comm, -1) == -1 && tsr_comm_host(comm, tsr_comm_size(comm)) == -1);
    need(tsr_comm_set_timeout(NULL, 1) == 0);
    /* The communicator has not failed. */
    need_ok(tsr_comm_barrier(comm, NULL));
}

START_TEST(wrong_arguments)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = arguments});
}
END_TEST

TESTS(mismatch)
{
    tcase_add_loop_test(tests, different_calls, 0, 2 * PATHS);
    tcase_add_loop_test(tests, another_order, 0, 2 * PATHS);
    tcase_add_loop_test(tests, different_messages, 0, PATHS);
    tcase_add_loop_test(tests, wrong_arguments, 0, PATHS);
}
