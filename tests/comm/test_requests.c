/* Several operations in progress at a time, and the ways in which a request can end. */
#include <string.h>

#include "comm/values.h"

#define MAX_COUNT 30000

/* One of many operations in progress. All ranks draw the same numbers,
 * except for their own part. */
typedef struct pending {
    int kind, round, root;
    uint64_t count;
    tsr_dtype dtype;
    uint8_t *send, *recv;
    tsr_request *request;
} pending;

static void start_one(tsr_comm *comm, pending *p, uint64_t *random)
{
    static const uint64_t counts[] = {0, 1, 11, 500, 3000, MAX_COUNT};
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    p->kind = (int)random_between(random, 0, 6);
    p->dtype = random_between(random, 0, 1) ? TSR_F32 : TSR_BF16;
    p->count = counts[random_between(random, 0, 5)];
    p->root = (int)random_between(random, 0, size - 1);
    fill_values(p->send, p->round, rank, 0, p->count, p->dtype);
    switch (p->kind) {
    case 0:
        need_ok(tsr_comm_all_reduce(comm, p->send, p->recv, p->count, p->dtype, TSR_OP_SUM,
                                    &p->request));
        break;
    case 1:
        p->count /= (uint64_t)size;
        need_ok(tsr_comm_all_gather(comm, p->send, p->recv, p->count, p->dtype, &p->request));
        break;
    case 2:
        if (rank == p->root)
            memcpy(p->recv, p->send, p->count * tsr__element_size(p->dtype));
        need_ok(tsr_comm_broadcast(comm, p->recv, p->count, p->dtype, p->root, &p->request));
        break;
    case 3:
        p->count /= (uint64_t)size;
        need_ok(tsr_comm_reduce_scatter(comm, p->send, p->recv, p->count, p->dtype, TSR_OP_MAX,
                                        &p->request));
        break;
    case 4: { /* this operation always uses messages */
        uint64_t counts_of[MAX_RANKS];
        p->count /= (uint64_t)size;
        for (int i = 0; i < size; i++)
            counts_of[i] = p->count;
        need_ok(
            tsr_comm_gather_v(comm, p->send, p->recv, counts_of, p->dtype, p->root, &p->request));
        break;
    }
    case 5: /* from each rank to the next */
        if (size == 1)
            break;
        if (rank % 2 == 0 && (rank + 1) < size)
            need_ok(tsr_comm_send(comm, p->send, p->count, p->dtype, rank + 1, 7, &p->request));
        if (rank % 2 == 1)
            need_ok(tsr_comm_recv(comm, p->recv, p->count, p->dtype, rank - 1, 7, &p->request));
        break;
    default:
        need_ok(tsr_comm_barrier(comm, &p->request));
    }
}

static void check_one(tsr_comm *comm, const pending *p)
{
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    const uint64_t element = tsr__element_size(p->dtype);
    switch (p->kind) {
    case 0:
        need_reduced(p->recv, p->round, size, 0, p->count < 200 ? p->count : 200, p->dtype,
                     TSR_OP_SUM);
        break;
    case 4:
        if (rank != p->root)
            break; /* the root checks as for all_gather */
        /* fall through */
    case 1:
        for (int i = 0; i < size; i++)
            need_values(p->recv + (uint64_t)i * p->count * element, p->round, i, 0, p->count,
                        p->dtype);
        break;
    case 2:
        need_values(p->recv, p->round, p->root, 0, p->count, p->dtype);
        break;
    case 3:
        need_reduced(p->recv, p->round, size, (uint64_t)rank * p->count,
                     p->count < 200 ? p->count : 200, p->dtype, TSR_OP_MAX);
        break;
    case 5:
        if (rank % 2 == 1)
            need_values(p->recv, p->round, rank - 1, 0, p->count, p->dtype);
        break;
    default:
        break;
    }
}

static void many(tsr_comm *comm, void *user)
{
    pending all[TSR_MAX_COMM_REQUESTS];
    uint64_t random = 5, own = (uint64_t)tsr_comm_rank(comm) + 77;
    (void)user;
    uint8_t *memory = rank_memory(sizeof all / sizeof all[0] * 2 * MAX_COUNT * 4);
    for (int round = 0; round < 5; round++) {
        const int count = (int)random_between(&random, 2, TSR_MAX_COMM_REQUESTS);
        for (int i = 0; i < count; i++) {
            all[i] = (pending){.round = round * 100 + i,
                               .send = memory + (size_t)i * 2 * MAX_COUNT * 4,
                               .recv = memory + (size_t)(2 * i + 1) * MAX_COUNT * 4};
            start_one(comm, &all[i], &random);
        }
        for (int left = count; left > 0; left--) {
            int i = (int)random_between(&own, 0, count - 1);
            while (all[i].kind < 0)
                i = (i + 1) % count;
            bool done = false;
            if (random_between(&own, 0, 2) == 0) {
                while (!done)
                    need_ok(tsr_request_test(&all[i].request, &done));
            } else {
                need_ok(tsr_request_wait(&all[i].request));
            }
            need(!all[i].request);
            check_one(comm, &all[i]);
            all[i].kind = -1;
        }
    }
}

START_TEST(waited_for_in_any_order)
{
    static const int sizes[] = {1, 2, 5};
    ranks_run(&(ranks_job){.size = sizes[_i % 3], .path = (ranks_path)(_i / 3), .run = many});
}
END_TEST

static void too_many(tsr_comm *comm, void *user)
{
    tsr_request *requests[TSR_MAX_COMM_REQUESTS], *another = NULL;
    float data[TSR_MAX_COMM_REQUESTS], more;
    (void)user;
    /* No rank has sent anything yet, so none of the receives is done. */
    const int other = 1 - tsr_comm_rank(comm);
    for (int i = 0; i < TSR_MAX_COMM_REQUESTS; i++)
        need_ok(tsr_comm_recv(comm, &data[i], 1, TSR_F32, other, i, &requests[i]));
    need_error(tsr_comm_barrier(comm, &another), TSR_ERR_INVALID,
               "barrier: 32 requests have been started and not been waited for");
    need(!another);
    /* Receives for which nothing has arrived can be cancelled without affecting other ranks. */
    for (int i = 0; i < TSR_MAX_COMM_REQUESTS; i++) {
        tsr_request_cancel(&requests[i]);
        need(!requests[i]);
    }
    need_ok(tsr_comm_barrier(comm, NULL));
    more = 3;
    if (other == 1)
        need_ok(tsr_comm_send(comm, &more, 1, TSR_F32, 1, 5, NULL));
    else
        need_ok(tsr_comm_recv(comm, data, 1, TSR_F32, 0, 5, NULL));
    need(other == 1 || data[0] == 3);
}

/* All ranks can start the same number of requests, although different numbers are already done. */
static void until_refused(tsr_comm *comm, void *user)
{
    tsr_request *requests[TSR_MAX_COMM_REQUESTS + 1];
    float data[TSR_MAX_COMM_REQUESTS + 1];
    (void)user;
    for (int round = 0; round < 20; round++) {
        int count = 0;
        tsr_status status = TSR_OK;
        while (status == TSR_OK && count <= TSR_MAX_COMM_REQUESTS) {
            data[count] = (float)count;
            status = tsr_comm_all_reduce(comm, &data[count], &data[count], 1, TSR_F32, TSR_OP_SUM,
                                         &requests[count]);
            count += status == TSR_OK;
        }
        need(status == TSR_ERR_INVALID && count == TSR_MAX_COMM_REQUESTS);
        for (int i = 0; i < count; i++)
            need_ok(tsr_request_wait(&requests[i]));
        for (int i = 0; i < count; i++)
            need(data[i] == (float)(i * tsr_comm_size(comm)));
        need_ok(tsr_comm_barrier(comm, NULL));
    }
}

START_TEST(all_ranks_can_start_the_same_number)
{
    ranks_run(&(ranks_job){.size = 3, .path = (ranks_path)_i, .run = until_refused});
}
END_TEST

START_TEST(more_than_the_maximum)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = too_many});
}
END_TEST

static void nothing_at_all(tsr_comm *comm, void *user)
{
    tsr_request *request = NULL;
    bool done = false;
    (void)user;
    need_ok(tsr_request_wait(&request));
    need_ok(tsr_request_test(&request, &done));
    need(done);
    tsr_request_cancel(&request);
    tsr_request_cancel(NULL);
    need_error(tsr_request_wait(NULL), TSR_ERR_INVALID, "request_wait: request is NULL");
    need_error(tsr_request_test(NULL, &done), TSR_ERR_INVALID, "request_test: request is NULL");
    need_error(tsr_request_test(&request, NULL), TSR_ERR_INVALID, "request_test: done is NULL");
    /* Cancelling a request that is already done has no effect on other ranks. */
    need_ok(tsr_comm_barrier(comm, &request));
    need_ok(tsr_comm_barrier(comm, NULL));
    tsr_request_cancel(&request);
    need_ok(tsr_comm_barrier(comm, NULL));
}

START_TEST(no_request)
{
    ranks_run(&(ranks_job){.size = 1 + _i, .run = nothing_at_all});
}
END_TEST

/* The last rank does not call the operation, and rank 0 cancels it. */
static void cancel(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    float data = 1;
    tsr_request *request;
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
    if (rank == size - 1) {
        /* The rank is notified while it does something else. */
        while (tsr_comm_status(comm) == TSR_OK) {
            float nothing = 0;
            if (tsr_comm_recv(comm, &nothing, 1, TSR_F32, 0, 1, &request) == TSR_OK)
                tsr_request_cancel(&request);
            rest_ms(1);
        }
    } else if (rank == 0) {
        rest_ms(50); /* all ranks leave the barrier in this time */
        need_ok(tsr_comm_all_reduce(comm, &data, &data, 1, TSR_F32, TSR_OP_SUM, &request));
        tsr_request_cancel(&request);
    } else {
        need_error(tsr_comm_all_reduce(comm, &data, &data, 1, TSR_F32, TSR_OP_SUM, NULL),
                   TSR_ERR_PEER_LOST, "rank 0 cancelled all_reduce #2 (sum of 1 f32)");
    }
    need_error(tsr_comm_status(comm), TSR_ERR_PEER_LOST,
               "rank 0 cancelled all_reduce #2 (sum of 1 f32)");
    need_error(tsr_comm_barrier(comm, NULL), TSR_ERR_PEER_LOST, "rank 0 cancelled all_reduce #2");
}

START_TEST(cancelled)
{
    ranks_run(
        &(ranks_job){.size = 2 + _i / PATHS, .path = (ranks_path)(_i % PATHS), .run = cancel});
}
END_TEST

/* A handle of a request outlives its communicator. */
static void destroy_first(tsr_comm *comm, void *user)
{
    tsr_comm *other;
    tsr_request *requests[3];
    float data = 1, more = 0;
    bool done;
    (void)user;
    need_ok(tsr_comm_duplicate(comm, &other));
    if (tsr_comm_rank(comm) == 0) {
        need_ok(tsr_comm_recv(other, &more, 1, TSR_F32, 1, 1, &requests[0]));
        need_ok(tsr_comm_barrier(other, &requests[1]));
        need_ok(tsr_comm_recv(other, &data, 1, TSR_F32, 1, 2, &requests[2]));
        tsr_comm_destroy(&other);
        need(!other);
        need_error(tsr_request_wait(&requests[0]), TSR_ERR_INVALID,
                   "recv (1 f32 from rank 1, tag 1): its communicator was destroyed");
        need_error(tsr_request_test(&requests[1], &done), TSR_ERR_INVALID,
                   "barrier #0: its communicator was destroyed");
        need(done && !requests[1]);
        tsr_request_cancel(&requests[2]);
    }
    need_ok(tsr_comm_barrier(comm, NULL));
    tsr_comm_destroy(&other);
    need_ok(tsr_comm_barrier(comm, NULL));
}

START_TEST(a_request_outlives_its_communicator)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = destroy_first});
}
END_TEST

/* Messages of one tag arrive in the order of their sends, whatever the order of tags. */
static void ordered(tsr_comm *comm, void *user)
{
    enum { COUNT = 30 };
    int32_t values[COUNT];
    tsr_request *requests[COUNT];
    (void)user;
    for (int i = 0; i < COUNT; i++) {
        values[i] = tsr_comm_rank(comm) == 0 ? i : -1;
        if (tsr_comm_rank(comm) == 0)
            need_ok(tsr_comm_send(comm, &values[i], 1, TSR_I32, 1, i % 3, &requests[i]));
    }
    for (int i = 0; i < COUNT && tsr_comm_rank(comm) == 1; i++)
        need_ok(tsr_comm_recv(comm, &values[i], 1, TSR_I32, 0, 2 - i % 3, &requests[i]));
    for (int i = COUNT - 1; i >= 0; i--)
        need_ok(tsr_request_wait(&requests[i]));
    for (int i = 0; i < COUNT && tsr_comm_rank(comm) == 1; i++)
        need(values[i] == i / 3 * 3 + 2 - i % 3);
}

START_TEST(messages_in_order)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = ordered});
}
END_TEST

TESTS(requests)
{
    tcase_add_loop_test(tests, waited_for_in_any_order, 0, 3 * PATHS);
    tcase_add_loop_test(tests, all_ranks_can_start_the_same_number, 0, PATHS);
    tcase_add_loop_test(tests, more_than_the_maximum, 0, PATHS);
    tcase_add_loop_test(tests, no_request, 0, 2);
    tcase_add_loop_test(tests, cancelled, 0, 2 * PATHS);
    tcase_add_loop_test(tests, a_request_outlives_its_communicator, 0, PATHS);
    tcase_add_loop_test(tests, messages_in_order, 0, PATHS);
}
