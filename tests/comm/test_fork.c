/* Children of fork() must not affect their parent, whatever they do with its communicator. */
#include <sys/wait.h>
#include <unistd.h>

#include "comm/ranks.h"

#define WHOSE "the communicator is that of the process that forked this one"

/* Runs in the child. Returns the number of the check that failed, because only the parent may
 * use rank_fail(). */
static int be_child(tsr_comm *comm, tsr_request *waited, tsr_request *tested,
                    tsr_request *cancelled)
{
    float one = 1;
    bool done = false;
    tsr_comm *other = NULL;
    tsr_request *request = NULL;
    if (tsr_comm_all_reduce(comm, &one, &one, 1, TSR_F32, TSR_OP_SUM, NULL) != TSR_ERR_INVALID ||
        strcmp(tsr_last_error(), "all_reduce: " WHOSE) != 0)
        return 1;
    if (tsr_comm_barrier(comm, &request) != TSR_ERR_INVALID || request)
        return 2;
    if (tsr_comm_split(comm, 0, 0, &other) != TSR_ERR_INVALID || other ||
        strcmp(tsr_last_error(), "split: " WHOSE) != 0)
        return 3;
    if (tsr_comm_status(comm) != TSR_ERR_INVALID)
        return 4;
    if (tsr_request_wait(&waited) != TSR_ERR_INVALID || waited ||
        strcmp(tsr_last_error(), "barrier #2: " WHOSE) != 0)
        return 5;
    if (tsr_request_test(&tested, &done) != TSR_ERR_INVALID || tested || !done)
        return 6;
    tsr_comm_destroy(&comm);
    tsr_request_cancel(&cancelled);
    return comm || cancelled ? 7 : 0;
}

/* Rank 0 forks while operations are in progress that rank 1 has not called yet. */
static void fork_one(tsr_comm *comm, void *user)
{
    (void)user;
    float sum = (float)(tsr_comm_rank(comm) + 1);
    tsr_request *requests[3] = {NULL};
    need_ok(tsr_comm_barrier(comm, NULL));
    if (tsr_comm_rank(comm) == 0) {
        for (int i = 0; i < 3; i++)
            need_ok(tsr_comm_barrier(comm, &requests[i]));
        int status;
        const pid_t child = fork();
        if (child == 0)
            _exit(be_child(comm, requests[0], requests[1], requests[2]));
        need(child > 0 && waitpid(child, &status, 0) == child);
        if (status != 0)
            rank_fail("the child ended with status %#x", (unsigned)status);
        need_ok(tsr_comm_send(comm, &sum, 1, TSR_F32, 1, 0, NULL));
        for (int i = 0; i < 3; i++)
            need_ok(tsr_request_wait(&requests[i]));
    } else {
        need_ok(tsr_comm_recv(comm, &sum, 1, TSR_F32, 0, 0, NULL));
        sum = 2;
        for (int i = 0; i < 3; i++)
            need_ok(tsr_comm_barrier(comm, NULL));
    }
    need_ok(tsr_comm_all_reduce(comm, &sum, &sum, 1, TSR_F32, TSR_OP_SUM, NULL));
    need(sum == 3);
}

START_TEST(a_child_does_not_affect_its_parent)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = fork_one});
}
END_TEST

TESTS(fork)
{
    tcase_add_loop_test(tests, a_child_does_not_affect_its_parent, 0, PATHS);
}
