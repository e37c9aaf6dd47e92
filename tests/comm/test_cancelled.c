/* Messages that complete after their operation has ended. */
#define TSR__UCX_LIBRARY_ITSELF
#include <stdatomic.h>

#include "comm/comm_state.h"
#include "comm/ucx/ucx_library.h"
#include "comm/values.h"

/* Tests a receive that UCX neither completes nor cancels in time. When UCX completes it, its
 * request already belongs to another operation. The test replaces UCX's function for cancelling by
 * one that does nothing, and calls UCX's function later. */
static ucp_worker_h its_worker;
static void *its_handle;
static tsr__message *left_behind; /* freed with the last communicator */

static void note_and_do_nothing(ucp_worker_h worker, void *handle)
{
    its_worker = worker;
    its_handle = handle;
}

static void (*hold_back_cancelling(void))(ucp_worker_h, void *)
{
    void (*real)(ucp_worker_h, void *) = tsr__ucx.ucp_request_cancel;
    tsr__ucx.ucp_request_cancel = note_and_do_nothing;
    return real;
}

static void land_late(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm);
    tsr_request *request;
    tsr_comm *pair;
    int32_t never = 0, data = 0;
    bool done;
    (void)user;
    need_ok(tsr_comm_split(comm, rank == 1, rank, &pair));
    if (rank == 1) {
        need_error(tsr_comm_barrier(comm, NULL), TSR_ERR_PEER_LOST, "rank 0 ");
        tsr_comm_destroy(&pair);
        return;
    }
    if (rank == 0) {
        need_ok(tsr_comm_recv(comm, &never, 1, TSR_I32, 1, 0, &request));
        left_behind = request->messages;
        void (*cancel)(ucp_worker_h, void *) = hold_back_cancelling();
        tsr_request_cancel(&request);
        tsr__ucx.ucp_request_cancel = cancel;
        need(left_behind->state == TSR__MESSAGE_IN_FLIGHT);

        need_ok(tsr_comm_recv(pair, &data, 1, TSR_I32, 1, 0, &request));
        cancel(its_worker, its_handle);
        for (int i = 0; i < 10; i++) {
            need_ok(tsr_request_test(&request, &done));
            need(!done);
        }
        need(left_behind->state == TSR__MESSAGE_CANCELLED);
        need_ok(tsr_comm_send(pair, &rank, 1, TSR_I32, 1, 0, NULL));
        need_ok(tsr_request_wait(&request));
        need(data == 7);
    } else {
        int32_t answer = 7;
        need_ok(tsr_comm_recv(pair, &data, 1, TSR_I32, 0, 0, NULL));
        need_ok(tsr_comm_send(pair, &answer, 1, TSR_I32, 0, 0, NULL));
    }
    tsr_comm_destroy(&pair);
}

START_TEST(a_receive_that_completes_late)
{
    ranks_run(&(ranks_job){.size = 3, .path = PATH_MESSAGES, .run = land_late});
}
END_TEST

/* A sender gives up and reuses its memory. A receiver that makes no progress until then must get
 * the data that was sent, or an error, but not the new contents. */
static void read_late(tsr_comm *comm, void *user)
{
    enum { COUNT = 5000 };
    atomic_int *has_given_up = ranks_shared();
    int32_t *data = rank_memory(COUNT * sizeof *data);
    tsr_request *request;
    (void)user;
    need_ok(tsr_comm_barrier(comm, NULL));
    if (tsr_comm_rank(comm) == 0) {
        for (int i = 0; i < COUNT; i++)
            data[i] = 1;
        need_ok(tsr_comm_send(comm, data, COUNT, TSR_I32, 1, 0, &request));
        rank_destroy();
        for (int i = 0; i < COUNT; i++)
            data[i] = 2;
        atomic_store(has_given_up, 1);
        tsr_request_cancel(&request);
        while (atomic_load(has_given_up) == 1)
            rest_ms(1);
        return;
    }
    need_ok(tsr_comm_recv(comm, data, COUNT, TSR_I32, 0, 0, &request));
    while (!atomic_load(has_given_up))
        rest_ms(1);
    const tsr_status status = tsr_request_wait(&request);
    atomic_store(has_given_up, 2);
    for (int i = 0; i < COUNT && status == TSR_OK; i++)
        need(data[i] == 1);
}

START_TEST(a_receiver_that_progresses_late)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)(_i % PATHS), .run = read_late});
}
END_TEST

TESTS(abandoned)
{
    tcase_add_test(tests, a_receive_that_completes_late);
    /* Repeated, because the result depends on which rank is first. */
    tcase_add_loop_test(tests, a_receiver_that_progresses_late, 0, 4 * PATHS);
}
