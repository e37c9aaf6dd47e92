/* Tests bootstrapping through an all-gather of the caller. Ranks are threads. Also tests nodes and
 * local ranks, because only a callback can simulate several nodes. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/bootstrap/bootstrap.h"
#include "support/check_main.h"

#define MAX_SIZE 16

/* State that the threads of an all-gather share. */
static struct {
    pthread_barrier_t barrier;
    int size;
    uint8_t *bytes;
} table;

typedef struct gatherer {
    int rank, size;
    int calls, fails_at; /* −1: never */
    bool oversize;       /* the callback reports too large a contribution of rank 0 */
    tsr_status status;
    char error[256];
    int node_of[MAX_SIZE], node_count, local_rank, local_size;
} gatherer;

/* Waits until all threads have called this function. Returns true in exactly one of them. */
static bool all_here(void)
{
    return pthread_barrier_wait(&table.barrier) != 0;
}

static int gather(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    gatherer *me = user;
    if (me->calls++ == me->fails_at)
        return 42;
    if (all_here())
        table.bytes = calloc((size_t)table.size, (size_t)size_bytes + 1);
    (void)all_here();
    memcpy(table.bytes + (uint64_t)me->rank * size_bytes, mine, (size_t)size_bytes);
    (void)all_here();
    memcpy(all, table.bytes, (size_t)size_bytes * (size_t)table.size);
    if (me->oversize && size_bytes == 8 && me->calls > 2)
        *(uint64_t *)all = 70000;
    if (all_here())
        free(table.bytes);
    (void)all_here();
    return 0;
}

static tsr_status check_exchange(tsr__bootstrap *bootstrap, const gatherer *me, uint64_t step)
{
    char mine[64];
    memset(mine, 'a' + me->rank, sizeof mine);
    tsr__bootstrap_gathered all;
    tsr_status status =
        tsr__bootstrap_exchange(bootstrap, mine, step * (uint64_t)me->rank, NULL, &all);
    if (status != TSR_OK)
        return status;
    for (int rank = 0; rank < me->size; rank++) {
        ck_assert(all.starts[rank + 1] - all.starts[rank] == step * (uint64_t)rank);
        for (uint64_t i = all.starts[rank]; i < all.starts[rank + 1]; i++)
            ck_assert(all.bytes[i] == 'a' + rank);
    }
    tsr__bootstrap_gathered_finish(&all);
    return TSR_OK;
}

static void *run(void *user)
{
    gatherer *me = user;
    tsr__bootstrap *bootstrap = NULL;
    tsr__bootstrap_params params = {.kind = TSR__BOOTSTRAP_CALLBACK,
                                    .rank = me->rank,
                                    .size = me->size,
                                    .gather = gather,
                                    .user = me};
    me->status = tsr__bootstrap_open(&params, &bootstrap);
    if (me->status == TSR_OK) {
        const tsr__bootstrap_info *info = tsr__bootstrap_get_info(bootstrap);
        for (int rank = 0; rank < me->size; rank++)
            me->node_of[rank] = info->node_of[rank];
        me->node_count = info->node_count;
        me->local_rank = info->local_rank;
        me->local_size = info->local_size;
        me->status = check_exchange(bootstrap, me, 3);
    }
    if (me->status == TSR_OK)
        me->status = check_exchange(bootstrap, me, 0);
    if (me->status != TSR_OK) {
        snprintf(me->error, sizeof me->error, "%s", tsr_last_error());
        if (bootstrap != NULL) { /* further exchanges must fail, too */
            tsr__bootstrap_gathered all;
            ck_assert(tsr__bootstrap_exchange(bootstrap, "x", 1, NULL, &all) == TSR_ERR_INVALID);
            ck_assert(strcmp(tsr_last_error(), "bootstrap: an earlier exchange failed") == 0);
        }
    }
    tsr__bootstrap_close(&bootstrap);
    return NULL;
}

static void run_all(gatherer *all, int size)
{
    pthread_t threads[MAX_SIZE];
    table.size = size;
    ck_assert_int_eq(pthread_barrier_init(&table.barrier, NULL, (unsigned)size), 0);
    for (int rank = 0; rank < size; rank++) {
        all[rank].rank = rank;
        all[rank].size = size;
        ck_assert_int_eq(pthread_create(&threads[rank], NULL, run, &all[rank]), 0);
    }
    for (int rank = 0; rank < size; rank++)
        pthread_join(threads[rank], NULL);
    pthread_barrier_destroy(&table.barrier);
}

START_TEST(every_rank_gets_every_contribution)
{
    static const int sizes[] = {1, 2, 3, 7, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        gatherer all[MAX_SIZE];
        for (int rank = 0; rank < MAX_SIZE; rank++)
            all[rank] = (gatherer){.fails_at = -1};
        run_all(all, sizes[i]);
        for (int rank = 0; rank < sizes[i]; rank++) {
            ck_assert_str_eq(all[rank].error, "");
            ck_assert_int_eq(all[rank].node_count, 1);
            ck_assert_int_eq(all[rank].local_rank, rank);
            ck_assert_int_eq(all[rank].local_size, sizes[i]);
        }
    }
}
END_TEST

START_TEST(failures_of_the_callback_are_passed_on)
{
    static const struct {
        int at;
        const char *error;
    } fails[] = {
        {0, "bootstrap: the caller's all-gather of 8 bytes per rank returned 42"},
        {1, "bootstrap: the caller's all-gather of 16 bytes per rank returned 42"},
        {2, "bootstrap: the caller's all-gather of 8 bytes per rank returned 42"},
    };
    for (size_t i = 0; i < sizeof fails / sizeof fails[0]; i++) {
        gatherer one = {.fails_at = fails[i].at};
        run_all(&one, 1);
        ck_assert_int_eq(one.status, TSR_ERR_IO);
        ck_assert_str_eq(one.error, fails[i].error);
    }
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
    gatherer one = {.fails_at = -1, .oversize = true};
    run_all(&one, 1);
    ck_assert_int_eq(one.status, TSR_ERR_INVALID);
    ck_assert_str_eq(
        one.error, "bootstrap: rank 0 contributes 70000 bytes to an exchange, the limit is 65536");
}
END_TEST

/* An all-gather that simulates ranks on other nodes. */
static int nodes_of_others(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    static const char nodes[] = "abacab";
    (void)user;
    for (int rank = 0; rank < 6; rank++) {
        uint8_t *one = (uint8_t *)all + (uint64_t)rank * size_bytes;
        memcpy(one, mine, (size_t)size_bytes);
        if (size_bytes == TSR__BOOTSTRAP_NODE_SIZE && nodes[rank] != 'a') /* rank 2 is on node a */
            memset(one, nodes[rank], (size_t)size_bytes);
    }
    return 0;
}

START_TEST(nodes_are_numbered_by_their_first_ranks)
{
    static const int expected[] = {0, 1, 0, 2, 0, 1};
    tsr__bootstrap *bootstrap;
    tsr__bootstrap_params params = {
        .kind = TSR__BOOTSTRAP_CALLBACK, .rank = 2, .size = 6, .gather = nodes_of_others};
    ck_assert_ok(tsr__bootstrap_open(&params, &bootstrap));
    const tsr__bootstrap_info *info = tsr__bootstrap_get_info(bootstrap);
    ck_assert_int_eq(info->node_count, 3);
    for (int rank = 0; rank < 6; rank++)
        ck_assert_int_eq(info->node_of[rank], expected[rank]);
    ck_assert_int_eq(info->local_rank, 1);
    ck_assert_int_eq(info->local_size, 3);
    tsr__bootstrap_close(&bootstrap);
}
END_TEST

START_TEST(tessera_node_identifies_a_node)
{
    uint8_t nodes[4][TSR__BOOTSTRAP_NODE_SIZE];
    static const char *const names[] = {NULL, "one", "two", "one"};
    for (int i = 0; i < 4; i++) {
        tsr__bootstrap *bootstrap;
        if (names[i] != NULL)
            setenv("TESSERA_NODE", names[i], 1);
        ck_assert_ok(tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_SINGLE},
                                         &bootstrap));
        memcpy(nodes[i], tsr__bootstrap_get_info(bootstrap)->node, TSR__BOOTSTRAP_NODE_SIZE);
        tsr__bootstrap_close(&bootstrap);
    }
    ck_assert_mem_eq(nodes[1], nodes[3], TSR__BOOTSTRAP_NODE_SIZE);
    ck_assert_mem_ne(nodes[0], nodes[1], TSR__BOOTSTRAP_NODE_SIZE);
    ck_assert_mem_ne(nodes[1], nodes[2], TSR__BOOTSTRAP_NODE_SIZE);
}
END_TEST

START_TEST(parameters_are_checked)
{
    tsr__bootstrap *bootstrap = NULL;
    ck_assert_error(
        tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_CALLBACK, .size = 2},
                            &bootstrap),
        TSR_ERR_INVALID, "bootstrap: the all-gather callback is NULL");
    ck_assert_error(tsr__bootstrap_open(
                        &(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_CALLBACK, .gather = gather},
                        &bootstrap),
                    TSR_ERR_INVALID, "bootstrap: size is 0, not at least 1");
    ck_assert_error(tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_CALLBACK,
                                                                 .size = 4097,
                                                                 .gather = gather},
                                        &bootstrap),
                    TSR_ERR_UNSUPPORTED, "bootstrap: 4097 ranks are more than 4096");
    ck_assert_error(tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_CALLBACK,
                                                                 .size = 2,
                                                                 .rank = 2,
                                                                 .gather = gather},
                                        &bootstrap),
                    TSR_ERR_INVALID, "bootstrap: rank is 2, not from 0 to 1");
    ck_assert_error(tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_CALLBACK,
                                                                 .size = 2,
                                                                 .rank = -1,
                                                                 .gather = gather},
                                        &bootstrap),
                    TSR_ERR_INVALID, "bootstrap: rank is -1, not from 0 to 1");
    ck_assert_ptr_null(bootstrap);
}
END_TEST

TESTS(callback)
{
    tcase_add_test(tests, every_rank_gets_every_contribution);
    tcase_add_test(tests, failures_of_the_callback_are_passed_on);
    tcase_add_test(tests, impossible_sizes_are_refused);
    tcase_add_test(tests, nodes_are_numbered_by_their_first_ranks);
    tcase_add_test(tests, tessera_node_identifies_a_node);
    tcase_add_test(tests, parameters_are_checked);
}
