/* tsr__comm_steps returns the steps that a communicator makes. */
#include <string.h>

#include "comm/api/comm_steps.h"
#include "comm/comm_state.h"
#include "comm/ranks.h"

#define MAX_STEPS 256

static const struct {
    int size;
    const char *hosts;
} placements[] = {{2, "ab"},     {4, "aabb"}, {5, "aaabb"},   {8, "aaabbbbb"},
                  {6, "aabbcc"}, {4, "abab"}, {8, "aaaabbbb"}};
#define PLACEMENTS ((int)(sizeof placements / sizeof placements[0]))

static const uint64_t counts[] = {0, 7, 1000, 4096, 20000, 600000};
#define COUNTS ((int)(sizeof counts / sizeof counts[0]))

/* Compares the messages and inner steps of a request's schedule with those that tsr__comm_steps
 * returns. */
static void compare(const tsr_request *request, const tsr__comm_steps_params *params)
{
    static tsr__comm_step told[MAX_STEPS];
    uint64_t count = 0, at = 0;
    need_ok(tsr__comm_steps(params, MAX_STEPS, told, &count));
    need(count > 0 && count <= MAX_STEPS);
    for (size_t i = 0; i < request->schedule.count; i++) {
        const tsr__step *made = &request->schedule.steps[i];
        const bool sends = made->kind == TSR__STEP_SEND, recvs = made->kind == TSR__STEP_RECV;
        if (!sends && !recvs && made->kind != TSR__STEP_INNER)
            continue;
        need(at < count && told[at].round == made->round);
        if (sends || recvs) {
            need(told[at].kind == (sends ? TSR__COMM_STEP_SEND : TSR__COMM_STEP_RECV));
            need(told[at].peer == made->peer);
            need(told[at].bytes == 4 * (sends ? made->from.count : made->to.count));
        } else {
            need(told[at].kind == TSR__COMM_STEP_MEMORY);
            need(told[at].peer == request->comm->shm_first);
            need(told[at].ranks == request->comm->shm_count);
        }
        at++;
    }
    need(at == count);
}

static void make_all(tsr_comm *comm, void *user)
{
    static const tsr__call_kind kinds[] = {TSR__CALL_ALL_REDUCE, TSR__CALL_REDUCE_SCATTER,
                                           TSR__CALL_ALL_GATHER};
    int hosts[MAX_RANKS];
    const int size = tsr_comm_size(comm);
    float *data = rank_memory((counts[COUNTS - 1] + MAX_RANKS) * sizeof *data);
    (void)user;
    for (int i = 0; i < size; i++)
        hosts[i] = tsr_comm_host(comm, i);
    for (int i = 0; i < COUNTS; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const tsr__call_kind kind = kinds[k];
            const uint64_t each = counts[i] / (uint64_t)size;
            float *mine = data + (uint64_t)tsr_comm_rank(comm) * each;
            tsr_request *request = NULL;
            need_ok(kind == TSR__CALL_ALL_REDUCE
                        ? tsr_comm_all_reduce(comm, data, data, counts[i], TSR_F32, TSR_OP_MAX,
                                              &request)
                    : kind == TSR__CALL_ALL_GATHER
                        ? tsr_comm_all_gather(comm, mine, data, each, TSR_F32, &request)
                        : tsr_comm_reduce_scatter(comm, data, mine, each, TSR_F32, TSR_OP_MAX,
                                                  &request));
            compare(request, tsr__comm_steps_params(.collective = kind, .size = size,
                                                    .hosts = hosts, .rank = tsr_comm_rank(comm),
                                                    .bytes = kind == TSR__CALL_ALL_REDUCE
                                                                 ? 4 * counts[i]
                                                                 : 4 * each * (uint64_t)size));
            need_ok(tsr_request_wait(&request));
        }
}

START_TEST(of_a_communicator)
{
    ranks_run(
        &(ranks_job){.size = placements[_i].size, .hosts = placements[_i].hosts, .run = make_all});
}
END_TEST

START_TEST(of_ranks_that_share_a_host)
{
    const int hosts[4] = {3, 3, 3, 3};
    tsr__comm_step step;
    uint64_t count = 9;
    tsr__comm_steps_params params = {
        .collective = TSR__CALL_ALL_REDUCE, .size = 4, .hosts = hosts, .bytes = 4000};
    ck_assert_ok(tsr__comm_steps(&params, 1, &step, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(step.kind, TSR__COMM_STEP_MEMORY);
    ck_assert_uint_eq(step.bytes, 2 * 3000);
    params.collective = TSR__CALL_ALL_GATHER;
    ck_assert_ok(tsr__comm_steps(&params, 1, &step, &count));
    ck_assert_uint_eq(step.bytes, 3000);
    params.size = 1;
    ck_assert_ok(tsr__comm_steps(&params, 0, NULL, &count));
    ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(wrong_arguments)
{
    const int hosts[2] = {0, 1};
    uint64_t count;
    tsr__comm_steps_params params = {
        .collective = TSR__CALL_ALL_REDUCE, .size = 2, .hosts = hosts, .rank = 2};
    ck_assert_error(tsr__comm_steps(&params, 0, NULL, &count), TSR_ERR_INVALID,
                    "comm_steps: rank 2 is not one of 2 ranks");
    params.size = 5000;
    ck_assert_error(tsr__comm_steps(&params, 0, NULL, &count), TSR_ERR_INVALID,
                    "comm_steps: size is 5000; it must be 1 to 4096");
    params = (tsr__comm_steps_params){.collective = TSR__CALL_BARRIER, .size = 2, .hosts = hosts};
    ck_assert_error(tsr__comm_steps(&params, 0, NULL, &count), TSR_ERR_INVALID,
                    "comm_steps: unsupported collective 13");
}
END_TEST

TESTS(steps)
{
    tcase_add_loop_test(tests, of_a_communicator, 0, PLACEMENTS);
    tcase_add_test(tests, of_ranks_that_share_a_host);
    tcase_add_test(tests, wrong_arguments);
}
