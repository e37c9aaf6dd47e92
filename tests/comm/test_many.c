/* Communicators of so many ranks that not all of them are connected to each other: they work, few
 * ranks are connected, and failures reach ranks without a connection. TEST_MANY_RANKS sets the
 * number of ranks, and makes more rounds. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm_state.h"
#include "comm/ranks.h"

static int many(void)
{
    const char *text = getenv("TEST_MANY_RANKS");
    return text ? atoi(text) : TSR__MANY_RANKS + 4;
}

/* Returns the hosts of the ranks: two hosts, each with half of the leaves of the tree of
 * additions (algorithms/tree.h), so that operations are hierarchical. */
static const char *two_hosts(int size)
{
    static char hosts[RANKS_CAPACITY + 1];
    int leaves = 1;
    while (2 * leaves <= size)
        leaves *= 2;
    const int extra = size - leaves < leaves / 2 ? size - leaves : leaves / 2;
    for (int i = 0; i < size; i++)
        hosts[i] = i < leaves / 2 + extra ? 'a' : 'b';
    return hosts;
}

/* The three ways in which operations run: shared memory, hierarchy, and messages. */
#define WAYS 3
static void start(int size, int round, void (*run)(tsr_comm *comm, void *user))
{
    static const ranks_path paths[WAYS] = {PATH_SHM, PATH_SHM, PATH_MESSAGES};
    ranks_start(&(ranks_job){.size = size,
                             .path = paths[round % WAYS],
                             .hosts = round % WAYS == 1 ? two_hosts(size) : NULL,
                             .run = run});
}

static int connected(const tsr_comm *comm)
{
    int count = 0;
    for (int i = 0; i < comm->size; i++)
        count += tsr__transport_is_connected(comm->job->transport, i);
    return count;
}

static int log2_of(int n)
{
    int log = 0;
    while (1 << log < n)
        log++;
    return log;
}

static void sums(tsr_comm *comm)
{
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    const uint64_t counts[] = {1, 300, 70001};
    float *data = rank_memory(counts[2] * sizeof *data);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (uint64_t j = 0; j < counts[i]; j++)
            data[j] = (float)(rank + 1 + (int)(j % 3));
        need_ok(tsr_comm_all_reduce(comm, data, data, counts[i], TSR_F32, TSR_OP_SUM, NULL));
        for (uint64_t j = 0; j < counts[i]; j++)
            need(data[j] == (float)(size * (size + 1) / 2 + size * (int)(j % 3)));
    }
    need_ok(tsr_comm_barrier(comm, NULL));
}

/* Every rank sends to a rank to which it is not connected, and receives from another one. */
static void messages(tsr_comm *comm)
{
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    const int to = (rank + 11) % size, from = (rank + size - 11) % size;
    int32_t sent = rank, received = -1;
    tsr_request *request;
    need_ok(tsr_comm_send(comm, &sent, 1, TSR_I32, to, 5, &request));
    need_ok(tsr_comm_recv(comm, &received, 1, TSR_I32, from, 5, NULL));
    need_ok(tsr_request_wait(&request));
    need(received == from);
}

/* Gathers blocks of different sizes, some of them empty, on the last rank. */
static void blocks(tsr_comm *comm)
{
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    uint64_t *counts = rank_memory((uint64_t)size * sizeof *counts), total = 0;
    for (int i = 0; i < size; i++)
        total += counts[i] = (uint64_t)(i % 5);
    int32_t mine[4], *all = rank_memory(total * sizeof *all);
    for (int i = 0; i < 4; i++)
        mine[i] = 10 * rank + i;
    need_ok(tsr_comm_gather_v(comm, mine, all, counts, TSR_I32, size - 1, NULL));
    for (int i = 0; i < size && rank == size - 1; i++) {
        for (uint64_t j = 0; j < counts[i]; j++)
            need(*all++ == 10 * i + (int)j);
    }
}

/* Splits the ranks into those with even and odd numbers. Both communicators must work like any
 * other. */
static void halves(tsr_comm *comm)
{
    tsr_comm *half;
    const int rank = tsr_comm_rank(comm);
    int32_t sum = 1;
    need_ok(tsr_comm_split(comm, rank % 2, rank, &half));
    need_ok(tsr_comm_all_reduce(half, &sum, &sum, 1, TSR_I32, TSR_OP_SUM, NULL));
    need(sum == tsr_comm_size(half) && sum == (tsr_comm_size(comm) + 1 - rank % 2) / 2);
    tsr_comm_destroy(&half);
}

/* One rank calls another operation than the others. */
static void differs(tsr_comm *comm)
{
    tsr_comm *child;
    int32_t one = 1;
    need_ok(tsr_comm_duplicate(comm, &child));
    if (tsr_comm_rank(comm) == 7)
        need_error(tsr_comm_barrier(child, NULL), TSR_ERR_INVALID, "rank 7 called barrier #0");
    else
        need_error(tsr_comm_all_reduce(child, &one, &one, 1, TSR_I32, TSR_OP_SUM, NULL),
                   TSR_ERR_INVALID, "rank 7 called barrier #0");
    tsr_comm_destroy(&child);
}

/* One rank calls nothing. Ranks that wait for it must name it, and may send their error to the
 * others. */
static void does_not_call(tsr_comm *comm)
{
    tsr_comm *child;
    int32_t one = 1;
    need_ok(tsr_comm_duplicate(comm, &child));
    /* The timeout is long, because busy processors may give a rank its turn late. */
    tsr_comm_set_timeout(child, UINT64_C(3000000000));
    if (tsr_comm_rank(comm) == 9)
        rest_ms(8000);
    else
        need_error(
            tsr_comm_all_reduce(child, &one, &one, 1, TSR_I32, TSR_OP_SUM, NULL), TSR_ERR_TIMEOUT,
            "all_reduce #0 (sum of 1 i32): not done after 3 s; no answer from rank 9 at present");
    tsr_comm_destroy(&child);
    need_ok(tsr_comm_barrier(comm, NULL));
}

/* One rank destroys the communicator while the others use it. */
static void leaves(tsr_comm *comm)
{
    tsr_comm *child;
    need_ok(tsr_comm_duplicate(comm, &child));
    if (tsr_comm_rank(comm) != 11)
        need_error(tsr_comm_barrier(child, NULL), TSR_ERR_PEER_LOST,
                   "rank 11 has destroyed the communicator");
    tsr_comm_destroy(&child);
    need_ok(tsr_comm_barrier(comm, NULL));
}

/* The last rank but one is killed while the others reduce, or wait for a message from it. */
static void is_killed(tsr_comm *comm)
{
    const int victim = tsr_comm_size(comm) - 2, rank = tsr_comm_rank(comm);
    char words[64];
    int32_t one = 1;
    snprintf(words, sizeof words, "rank %d is lost", victim);
    if (rank == victim) {
        rest_ms(50);
        raise(SIGKILL);
    }
    if (rank == 1)
        need_error(tsr_comm_recv(comm, &one, 1, TSR_I32, victim, 6, NULL), TSR_ERR_PEER_LOST,
                   words);
    else
        need_error(tsr_comm_all_reduce(comm, &one, &one, 1, TSR_I32, TSR_OP_SUM, NULL),
                   TSR_ERR_PEER_LOST, words);
}

static void all_of_it(tsr_comm *comm, void *user)
{
    const int size = tsr_comm_size(comm);
    (void)user;
    need(connected(comm) <= log2_of(size) + 1);
    sums(comm);
    halves(comm);
    differs(comm);
    does_not_call(comm);
    leaves(comm);
    messages(comm);
    blocks(comm);
    sums(comm);
    need(connected(comm) <= 2 * log2_of(size) + 2 || tsr_comm_rank(comm) == size - 1);
    is_killed(comm);
}

START_TEST(few_connections)
{
    const int size = many();
    start(size, _i, all_of_it);
    ranks_wait();
    for (int i = 0; i < size; i++) {
        if (i != size - 2)
            ranks_check(i);
    }
}
END_TEST

/* A rank is killed while all ranks connect to each other. */
#define VICTIM 5

static void connect_to_all(tsr_comm *comm, void *user)
{
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    _Atomic int *started = ranks_shared();
    tsr_request **requests = rank_memory(2 * (uint64_t)size * sizeof(tsr_request *));
    int32_t *received = rank_memory((uint64_t)size * sizeof *received);
    (void)user;
    atomic_fetch_add(started, 1);
    while (atomic_load(started) < size)
        rest_ms(1);
    for (int i = 1; i < size && tsr_comm_status(comm) == TSR_OK; i++) {
        const int to = (rank + i) % size, from = (rank + size - i) % size;
        if (tsr_comm_recv(comm, &received[from], 1, TSR_I32, from, 1, &requests[from]) != TSR_OK ||
            tsr_comm_send(comm, &rank, 1, TSR_I32, to, 1, &requests[size + to]) != TSR_OK)
            break;
    }
    for (int i = 0; i < 2 * size; i++) {
        const tsr_status status = tsr_request_wait(&requests[i]);
        need(status == TSR_OK || status == TSR_ERR_PEER_LOST);
    }
    if (rank == VICTIM)
        pause();
    need_error(tsr_comm_barrier(comm, NULL), TSR_ERR_PEER_LOST, "rank 5 is lost");
}

START_TEST(killed_while_connecting)
{
    const int size = many();
    start(size, _i, connect_to_all);
    _Atomic int *started = ranks_shared();
    for (int ms = 0; ms < 30000 && atomic_load(started) < size; ms++)
        rest_ms(1);
    rest_ms(3 * _i);
    ranks_signal(VICTIM, SIGKILL);
    ranks_wait();
    for (int i = 0; i < size; i++) {
        if (i != VICTIM)
            ranks_check(i);
    }
}
END_TEST

/* Ranks that can only use TCP connect while the communicator is created,
 * so they need no mailbox. */
START_TEST(transports_with_shared_memory)
{
    static const struct {
        const char *chosen;
        bool expected;
    } cases[] = {{"tcp,self", false},   {"self", false},        {"tcp,sm,self", true},
                 {"posix,self", true},  {"sysv", true},         {"all", true},
                 {"^posix", true},      {"^tcp", true},         {"^sm,tcp", false},
                 {"^shm", false},       {"^posix,sysv", false}, {"smx,tcp", false},
                 {"rc,sysv,tcp", true}, {"^sysv", true}};
    unsetenv("UCX_TLS");
    ck_assert(tsr__transport_has_shared_memory());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("UCX_TLS", cases[i].chosen, 1);
        ck_assert_msg(tsr__transport_has_shared_memory() == cases[i].expected, "%s",
                      cases[i].chosen);
    }
    unsetenv("UCX_TLS");
}
END_TEST

TESTS(many)
{
    tcase_add_test(tests, transports_with_shared_memory);
    const bool more = getenv("TEST_MANY_RANKS") != NULL;
    tcase_add_loop_test(tests, few_connections, 0, more ? WAYS : 2);
    tcase_add_loop_test(tests, killed_while_connecting, 0, more ? 2 * WAYS : 2);
}
