/* Communicators that are split or duplicated from others. */
#define TSR__UCX_LIBRARY_ITSELF
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "comm/api/comm.h"
#include "comm/api/start_operation.h"
#include "comm/message_tags.h"
#include "comm/progress/progress.h"
#include "comm/shm/shm_state.h"
#include "comm/ucx/ucx_library.h"
#include "comm/values.h"

static int32_t sum_of(tsr_comm *comm, int32_t value)
{
    int32_t sum = 0;
    need_ok(tsr_comm_all_reduce(comm, &value, &sum, 1, TSR_I32, TSR_OP_SUM, NULL));
    return sum;
}

/* Splits the ranks into the rows and columns of a grid, as tensor and data parallelism use them. */
static void grid(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm), columns = *(int *)user;
    const int rows = size / columns, row = rank / columns, column = rank % columns;
    tsr_comm *across, *down, *reversed, *none = comm;
    need(tsr_comm_local_rank(comm) == rank && tsr_comm_local_size(comm) == size);
    need_ok(tsr_comm_split(comm, row, column, &across));
    need_ok(tsr_comm_split(comm, column, row, &down));
    need(tsr_comm_rank(across) == column && tsr_comm_size(across) == columns);
    need(tsr_comm_rank(down) == row && tsr_comm_size(down) == rows);
    need_ok(tsr_comm_split(comm, 0, -rank, &reversed));
    need(tsr_comm_rank(reversed) == size - 1 - rank && tsr_comm_size(reversed) == size);
    need_ok(tsr_comm_split(comm, rank == 1 ? 5 : TSR_COLOUR_NONE, 0, &none));
    need((rank == 1) == (none != NULL));
    if (none) {
        need(tsr_comm_size(none) == 1 && tsr_comm_local_size(none) == 1);
        need(sum_of(none, 9) == 9);
    }
    tsr_comm_destroy(&none);
    /* Runs operations of all three communicators at the same time, and completes them in
     * different orders. */
    int32_t a = rank, b = rank, c = rank;
    tsr_request *requests[3];
    for (int i = 0; i < 20; i++) {
        a = b = c = rank;
        need_ok(tsr_comm_all_reduce(across, &a, &a, 1, TSR_I32, TSR_OP_SUM, &requests[0]));
        need_ok(tsr_comm_all_reduce(down, &b, &b, 1, TSR_I32, TSR_OP_SUM, &requests[1]));
        need_ok(tsr_comm_all_reduce(reversed, &c, &c, 1, TSR_I32, TSR_OP_SUM, &requests[2]));
        for (int j = 0; j < 3; j++)
            need_ok(tsr_request_wait(&requests[(i + j + rank) % 3]));
        need(a == columns * row * columns + columns * (columns - 1) / 2);
        need(b == rows * column + columns * rows * (rows - 1) / 2);
        need(c == size * (size - 1) / 2);
    }
    int32_t who = tsr_comm_rank(reversed) == 0 ? rank : -1;
    need_ok(tsr_comm_broadcast(reversed, &who, 1, TSR_I32, 0, NULL));
    need(who == size - 1);
    /* Splits a communicator that was itself split from another. */
    tsr_comm *pair;
    need_ok(tsr_comm_split(across, column / 2, 0, &pair));
    need(sum_of(pair, 1) == tsr_comm_size(pair));
    /* A parent may be destroyed before its children. */
    tsr_comm_destroy(&across);
    need(sum_of(pair, 2) == 2 * tsr_comm_size(pair));
    need(sum_of(down, 1) == rows);
    tsr_comm_destroy(&down);
    tsr_comm_destroy(&pair);
    need(sum_of(reversed, 1) == size);
    tsr_comm_destroy(&reversed);
    need(sum_of(comm, 1) == size);
}

START_TEST(rows_and_columns)
{
    static const int shapes[][2] = {{4, 2}, {6, 3}, {3, 3}};
    int columns = shapes[_i % 3][1];
    ranks_run(&(ranks_job){
        .size = shapes[_i % 3][0], .path = (ranks_path)(_i / 3), .run = grid, .user = &columns});
}
END_TEST

/* Makes more communicators at a time than shared memory has slots for, and then many one after
 * another. The ranks destroy them at different speeds. */
static void many(tsr_comm *comm, void *user)
{
    enum { AT_A_TIME = 20 };
    tsr_comm *others[AT_A_TIME];
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    (void)user;
    for (int i = 0; i < AT_A_TIME; i++)
        need_ok(tsr_comm_duplicate(i % 2 ? others[i - 1] : comm, &others[i]));
    for (int i = 0; i < AT_A_TIME; i++)
        need(sum_of(others[(i * 7) % AT_A_TIME], i) == i * size);
    for (int i = 0; i < AT_A_TIME; i++)
        tsr_comm_destroy(&others[(i * 3 + rank) % AT_A_TIME]);
    for (int i = 0; i < 50; i++) {
        tsr_comm *one;
        need_ok(tsr_comm_split(comm, (rank + i) % 2, i % 3 ? rank : -rank, &one));
        const int32_t sum = sum_of(one, 1);
        need(sum == tsr_comm_size(one));
        if ((i + rank) % 5 == 0)
            rest_ms(1);
        tsr_comm_destroy(&one);
    }
}

START_TEST(many_communicators)
{
    ranks_run(&(ranks_job){.size = 2 + _i / PATHS, .path = (ranks_path)(_i % PATHS), .run = many});
}
END_TEST

/* A failure of one communicator does not affect the others. */
static void apart(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm);
    float data = 0;
    tsr_comm *mine, *whole;
    (void)user;
    need_ok(tsr_comm_split(comm, rank / 2, rank, &mine));
    need_ok(tsr_comm_duplicate(comm, &whole));
    if (rank == 0)
        need_error(tsr_comm_all_reduce(mine, &data, &data, 1, TSR_F32, TSR_OP_SUM, NULL),
                   TSR_ERR_INVALID,
                   "rank 0 called all_reduce #0 (sum of 1 f32), rank 1 called all_reduce #0 (max "
                   "of 1 f32)");
    if (rank == 1)
        need_error(tsr_comm_all_reduce(mine, &data, &data, 1, TSR_F32, TSR_OP_MAX, NULL),
                   TSR_ERR_INVALID,
                   "rank 0 called all_reduce #0 (sum of 1 f32), rank 1 called all_reduce #0 (max "
                   "of 1 f32)");
    if (rank > 1)
        need(sum_of(mine, 1) == 2);
    need(sum_of(whole, 1) == 4);
    tsr_comm_destroy(&mine);
    need(sum_of(comm, 2) == 8);
    tsr_comm_destroy(&whole);
}

START_TEST(failures_are_separate)
{
    ranks_run(&(ranks_job){.size = 4, .path = (ranks_path)_i, .run = apart});
}
END_TEST

static void mistakes(tsr_comm *comm, void *user)
{
    tsr_comm *out = comm;
    (void)user;
    need_error(tsr_comm_split(NULL, 0, 0, &out), TSR_ERR_INVALID, "split: comm is NULL");
    need_error(tsr_comm_split(comm, 0, 0, NULL), TSR_ERR_INVALID, "split: out is NULL");
    need_error(tsr_comm_duplicate(NULL, &out), TSR_ERR_INVALID, "duplicate: comm is NULL");
    need_error(tsr_comm_split(comm, tsr_comm_rank(comm) == 1 ? -7 : 0, 0, &out), TSR_ERR_INVALID,
               "split: rank 1 passed the invalid colour -7");
    need(out == comm);
    need(sum_of(comm, 1) == 2);
    tsr_comm_destroy(NULL);
    out = NULL;
    tsr_comm_destroy(&out);
}

START_TEST(wrong_colours)
{
    ranks_run(&(ranks_job){.size = 2, .run = mistakes});
}
END_TEST

/* Runs hundreds of operations on a communicator, so that the sequence numbers in the messages'
 * tags wrap around. */
static void long_lived(tsr_comm *comm, void *user)
{
    (void)user;
    for (int i = 0; i < 600; i++)
        need(sum_of(comm, i) == 2 * i);
}

START_TEST(sequence_numbers_wrap_around)
{
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = long_lived});
}
END_TEST

/* Like tsr_comm_duplicate, with a pause in which all other ranks destroy their new communicator. */
static tsr_comm *duplicate_slowly(tsr_comm *comm)
{
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    const uint32_t id = comm->job->next_id;
    struct {
        int32_t colour, key;
        uint32_t next_id;
        int32_t rank, slot;
    } mine = {.key = rank, .next_id = id, .rank = rank, .slot = -1}, all[MAX_RANKS];
    int *world_of = calloc((size_t)size, sizeof *world_of);
    tsr_comm *child;
    need(world_of);
    need_ok(tsr__comm_all_gather_as(comm, TSR__CALL_DUPLICATE, &mine, all, sizeof mine));
    for (int i = 0; i < size - 1; i++)
        need_ok(tsr_comm_recv(comm, &world_of[i], 1, TSR_I32, i, 0, NULL));
    tsr__job_progress_all(comm->job);
    world_of[rank] = rank;
    need_ok(tsr__comm_new(comm->job, TSR__COMM_IDS, 0, size, world_of, comm, &child));
    comm->job->next_id = id + 1;
    tsr__comm_set_members(child, id, rank, size);
    return child;
}

/* Other ranks leave a new communicator before the last rank has made it. The last rank must
 * learn who has left. */
static void leave_early(tsr_comm *comm, void *user)
{
    const int32_t rank = tsr_comm_rank(comm), last = tsr_comm_size(comm) - 1;
    tsr_comm *child;
    float data = 0;
    (void)user;
    if (rank < last) {
        need_ok(tsr_comm_duplicate(comm, &child));
        tsr_comm_destroy(&child);
        need_ok(tsr_comm_send(comm, &rank, 1, TSR_I32, last, 0, NULL));
    } else {
        child = duplicate_slowly(comm);
        for (int i = 0; i < last; i++)
            need(child->peers[i].left);
        need_error(tsr_comm_recv(child, &data, 1, TSR_F32, last - 1, 0, NULL), TSR_ERR_PEER_LOST,
                   "rank 18 has destroyed the communicator");
        tsr_comm_destroy(&child);
    }
    need_ok(tsr_comm_barrier(comm, NULL));
}

START_TEST(many_leave_early)
{
    ranks_run(&(ranks_job){.size = 20, .path = PATH_MESSAGES, .run = leave_early});
}
END_TEST

/* Rank 1 fails to make a communicator that ranks 0, 2, 3 and 4 have made, so it does not know the
 * number of that communicator. The next communicator, of ranks 5 and 1, may therefore have the same
 * number. It must not receive messages of the first one. */
static unsigned no_progress(ucp_worker_h worker)
{
    (void)worker;
    return 0;
}

static void fail_to_duplicate(tsr_comm *comm)
{
    unsigned (*real)(ucp_worker_h) = tsr__ucx.ucp_worker_progress;
    tsr_comm *child;
    tsr_comm_set_timeout(comm, UINT64_C(200000000));
    tsr__ucx.ucp_worker_progress = no_progress;
    const tsr_status status = tsr_comm_duplicate(comm, &child);
    tsr__ucx.ucp_worker_progress = real;
    need(status == TSR_ERR_TIMEOUT);
}

/* Ranks 0, 2, 3 and 4 send in `child` before they leave it, while ranks 5 and 1 use their
 * communicator. */
static void same_number(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm);
    tsr_comm *pair, *most, *child, *again;
    int32_t data = 111;
    (void)user;
    need_ok(tsr_comm_split(comm, rank == 1 || rank == 5 ? 1 : TSR_COLOUR_NONE, -rank, &pair));
    need_ok(tsr_comm_split(comm, rank == 5 ? TSR_COLOUR_NONE : 0, rank, &most));
    if (rank == 1) {
        fail_to_duplicate(most);
    } else if (rank < 5) {
        need_ok(tsr_comm_duplicate(most, &child));
        if (rank == 0)
            need_ok(tsr_comm_send(child, &data, 1, TSR_I32, 1, 0, NULL));
        tsr_comm_destroy(&child);
    }
    rest_ms(100);
    need_ok(tsr_comm_barrier(comm, NULL));
    if (pair) {
        need_ok(tsr_comm_duplicate(pair, &again));
        data = 222;
        if (rank == 5)
            need_ok(tsr_comm_send(again, &data, 1, TSR_I32, 1, 0, NULL));
        else
            need_ok(tsr_comm_recv(again, &data, 1, TSR_I32, 0, 0, NULL));
        need(data == 222);
        need(sum_of(again, rank) == 6);
        tsr_comm_destroy(&again);
    }
    need_ok(tsr_comm_barrier(comm, NULL));
    tsr_comm_destroy(&most);
    tsr_comm_destroy(&pair);
}

START_TEST(equal_numbers_are_distinguished)
{
    ranks_run(&(ranks_job){.size = 6, .path = PATH_MESSAGES, .run = same_number});
}
END_TEST

/* Makes progress until all ranks have received the notes about communicators that others have
 * left. */
static void listen_all(tsr_comm *comm)
{
    for (int i = 0; i < 20; i++) {
        rest_ms(5);
        tsr__job_progress_all(comm->job);
        need_ok(tsr_comm_barrier(comm, NULL));
    }
}

/* Makes the parent communicators: `pair` of ranks 5 and 1, and `most` of all ranks but 5. `most`
 * gets no slot, because all are in use. Afterwards slots are free again. */
static void make_both(tsr_comm *comm, tsr_comm **pair, tsr_comm **most)
{
    enum { FILLERS = 16 };
    const int rank = tsr_comm_rank(comm);
    tsr_comm *fillers[FILLERS];
    need_ok(tsr_comm_split(comm, rank == 1 || rank == 5 ? 1 : TSR_COLOUR_NONE, -rank, pair));
    for (int i = 0; i < FILLERS; i++)
        need_ok(tsr_comm_duplicate(comm, &fillers[i]));
    need_ok(tsr_comm_split(comm, rank == 5 ? TSR_COLOUR_NONE : 0, rank, most));
    need(!*most || !(*most)->shm);
    for (int i = 0; i < FILLERS; i++)
        tsr_comm_destroy(&fillers[i]);
    listen_all(comm);
}

/* Rank 1 reserved a slot of shared memory for a communicator that it failed to make. It must not
 * reuse this slot, because the other ranks read it. */
static void same_slot(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm);
    tsr_comm *pair, *most, *child, *again;
    (void)user;
    make_both(comm, &pair, &most);
    if (rank == 1)
        fail_to_duplicate(most);
    else if (rank < 5)
        need_ok(tsr_comm_duplicate(most, &child));
    if (pair) {
        need_ok(tsr_comm_duplicate(pair, &again));
        need(again->shm);
        need(sum_of(again, rank) == 6);
        need_ok(tsr_comm_barrier(comm, NULL));
        tsr_comm_destroy(&again);
    } else {
        int32_t sum = 0;
        need(child->shm);
        need_ok(tsr_comm_barrier(comm, NULL));
        tsr_comm_set_timeout(child, UINT64_C(1000000000));
        need_error(tsr_comm_all_reduce(child, &rank, &sum, 1, TSR_I32, TSR_OP_SUM, NULL),
                   TSR_ERR_TIMEOUT, "no answer from rank 1");
        tsr_comm_destroy(&child);
    }
    need_ok(tsr_comm_barrier(comm, NULL));
    tsr_comm_destroy(&most);
    tsr_comm_destroy(&pair);
}

START_TEST(a_reserved_slot_is_not_reused)
{
    ranks_run(&(ranks_job){.size = 6, .path = PATH_SHM, .run = same_slot});
}
END_TEST

static bool is_free(tsr__job *job, int slot)
{
    enum { MAX = 64 };
    int taken[MAX], count = 0;
    bool found = false;
    for (int one; count < MAX && (one = tsr__shm_slot_reserve(job->shm_regions)) >= 0;) {
        found = found || one == slot;
        taken[count++] = one;
    }
    while (count > 0)
        tsr__shm_slot_release(job->shm_regions, taken[--count]);
    return found;
}

/* Rank 1 has left the communicator of ranks 5 and 1, while rank 5 may still read its slot. The slot
 * must not become free when rank 0 leaves the other communicator with the same number. */
static void same_place(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm);
    tsr_comm *pair, *most, *child = NULL, *again = NULL;
    int slot = -1;
    (void)user;
    make_both(comm, &pair, &most);
    if (rank == 1)
        fail_to_duplicate(most);
    else if (rank < 5)
        need_ok(tsr_comm_duplicate(most, &child));
    need_ok(tsr_comm_barrier(comm, NULL));
    if (pair) {
        need_ok(tsr_comm_duplicate(pair, &again));
        need(again->shm);
        slot = again->shm->slot_index;
    }
    if (rank == 1) {
        tsr_comm_destroy(&again);
        need(!is_free(comm->job, slot));
    }
    need_ok(tsr_comm_barrier(comm, NULL));
    tsr_comm_destroy(&child);
    listen_all(comm);
    need(rank != 1 || !is_free(comm->job, slot));
    need_ok(tsr_comm_barrier(comm, NULL));
    tsr_comm_destroy(&again);
    listen_all(comm);
    need(rank != 1 || is_free(comm->job, slot));
    tsr_comm_destroy(&most);
    tsr_comm_destroy(&pair);
}

START_TEST(a_slot_with_readers_is_not_free)
{
    ranks_run(&(ranks_job){.size = 6, .path = PATH_SHM, .run = same_place});
}
END_TEST

/* Makes communicators that include a rank which is then killed, and afterwards as many without it,
 * which get the slots of the first ones. */
static void outlive(tsr_comm *comm, void *user)
{
    enum { MANY = 12 };
    tsr_comm *others[MANY], *pair;
    const int rank = tsr_comm_rank(comm);
    (void)user;
    need_ok(tsr_comm_split(comm, rank == 2, rank, &pair));
    for (int i = 0; i < MANY; i++)
        need_ok(tsr_comm_duplicate(comm, &others[i]));
    if (rank == 2)
        raise(SIGKILL);
    for (int i = 0; i < MANY; i++) {
        need_error(tsr_comm_barrier(others[i], NULL), TSR_ERR_PEER_LOST, "rank 2 is lost");
        tsr_comm_destroy(&others[i]);
    }
    for (int i = 0; i < MANY; i++) {
        need_ok(tsr_comm_duplicate(pair, &others[i]));
        need(others[i]->shm);
        need(sum_of(others[i], 1 + rank) == 3);
    }
    for (int i = 0; i < MANY; i++)
        tsr_comm_destroy(&others[i]);
    tsr_comm_destroy(&pair);
}

START_TEST(slots_of_killed_ranks)
{
    ranks_start(&(ranks_job){.size = 3, .path = PATH_SHM, .run = outlive});
    ranks_wait();
    ranks_check(0);
    ranks_check(1);
}
END_TEST

/* Like `outlive`, but the rank is killed after the others have destroyed the communicators. */
static void outstay(tsr_comm *comm, void *user)
{
    enum { MANY = 12 };
    tsr_comm *others[MANY], *pair;
    const int rank = tsr_comm_rank(comm);
    (void)user;
    need_ok(tsr_comm_split(comm, rank == 2, rank, &pair));
    for (int i = 0; i < MANY; i++)
        need_ok(tsr_comm_duplicate(comm, &others[i]));
    for (int i = 0; i < MANY && rank < 2; i++)
        tsr_comm_destroy(&others[i]);
    need_ok(tsr_comm_barrier(comm, NULL));
    if (rank == 2)
        raise(SIGKILL);
    while (!tsr__transport_has_ended(comm->job->transport, 2))
        tsr__transport_poll_processes(comm->job->transport);
    for (int i = 0; i < MANY; i++) {
        need_ok(tsr_comm_duplicate(pair, &others[i]));
        need(others[i]->shm);
        need(sum_of(others[i], 1 + rank) == 3);
    }
    for (int i = 0; i < MANY; i++)
        tsr_comm_destroy(&others[i]);
    tsr_comm_destroy(&pair);
}

START_TEST(slots_of_ranks_killed_late)
{
    ranks_start(&(ranks_job){.size = 3, .path = PATH_SHM, .run = outstay});
    ranks_wait();
    ranks_check(0);
    ranks_check(1);
}
END_TEST

TESTS(groups)
{
    tcase_add_loop_test(tests, rows_and_columns, 0, 3 * PATHS);
    tcase_add_loop_test(tests, many_communicators, 0, 2 * PATHS);
    tcase_add_loop_test(tests, failures_are_separate, 0, PATHS);
    tcase_add_test(tests, wrong_colours);
    tcase_add_loop_test(tests, sequence_numbers_wrap_around, 0, PATHS);
    tcase_add_test(tests, many_leave_early);
    tcase_add_test(tests, equal_numbers_are_distinguished);
    tcase_add_test(tests, a_reserved_slot_is_not_reused);
    tcase_add_test(tests, a_slot_with_readers_is_not_free);
    tcase_add_test(tests, slots_of_killed_ranks);
    tcase_add_test(tests, slots_of_ranks_killed_late);
}
