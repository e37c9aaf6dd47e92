/* Tests the shared-memory transport between ranks that are threads of this process. All slots are
 * in one region, so every rank has them at the same addresses. Therefore the thread sanitizer sees
 * who reads and writes them, which it cannot see between processes. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

#include "comm/shm/shm.h"
#include "support/check_main.h"
#include "support/random.h"

enum { RANKS = 7, CALLS = 60, POLLS = 2 };

/* State that all ranks share. */
typedef struct job {
    int size;
    uint64_t seed;
    tsr__shm_regions *regions;
    sem_t wake[RANKS];
    pthread_barrier_t barrier;
    _Atomic int sleeps, stopped;
} job;

typedef struct rank {
    job *all;
    int number;
    tsr__shm *shm;
    tsr__call calls[CALLS];
    int32_t *send, *recv;
    pthread_t thread;
} rank;

static void wake(job *all, uint64_t ranks)
{
    for (int i = 0; ranks != 0; i++, ranks >>= 1) {
        if (ranks & 1)
            sem_post(&all->wake[i]);
    }
}

/* Advances the transport to the next event that is not a wake-up. Polls first, and then sleeps
 * as progress.c does. */
static tsr__shm_event advance(rank *me)
{
    tsr__shm_event event;
    for (int idle = 0;; idle++) {
        const bool sleeps = idle > POLLS;
        if (sleeps) {
            tsr__shm_set_sleeping(me->shm, true);
            atomic_thread_fence(memory_order_seq_cst);
        }
        const bool moved = tsr__shm_advance(me->shm, &event);
        wake(me->all, event.wake);
        if (sleeps && !moved && !event.happened) {
            atomic_fetch_add(&me->all->sleeps, 1);
            while (sem_wait(&me->all->wake[me->number]) != 0)
                ;
        }
        if (sleeps)
            tsr__shm_set_sleeping(me->shm, false);
        if (event.completed || event.mismatch >= 0)
            return event;
        idle = moved || sleeps ? 0 : idle;
        sched_yield();
    }
}

/* Returns element i of the data that rank `from` contributes to an operation. */
static int32_t element(const tsr__call *call, int from, uint64_t i)
{
    return (from + 1) * (int32_t)((i * 7 + call->sequence) % 1000);
}

static int32_t sum(const tsr__call *call, int size, uint64_t i)
{
    return size * (size + 1) / 2 * element(call, 0, i);
}

/* Returns whether the input of operations of this kind consists of blocks, one for each rank;
 * the next function says so of their output. */
static bool has_input_blocks(int kind)
{
    return kind == TSR__CALL_REDUCE_SCATTER || kind == TSR__CALL_ALL_TO_ALL ||
           kind == TSR__CALL_SCATTER;
}

static bool has_output_blocks(int kind)
{
    return kind == TSR__CALL_ALL_GATHER || kind == TSR__CALL_ALL_TO_ALL || kind == TSR__CALL_GATHER;
}

/* Returns element i of what this rank must receive from an operation. */
static int32_t expected(const rank *me, const tsr__call *call, uint64_t i)
{
    const uint64_t count = call->count, mine = (uint64_t)me->number * count;
    switch (call->kind) {
    case TSR__CALL_REDUCE_SCATTER:
        return sum(call, me->all->size, mine + i);
    case TSR__CALL_ALL_GATHER:
    case TSR__CALL_GATHER:
        return element(call, (int)(i / count), i % count);
    case TSR__CALL_BROADCAST:
        return element(call, call->peer, i);
    case TSR__CALL_SCATTER:
        return element(call, call->peer, mine + i);
    case TSR__CALL_ALL_TO_ALL:
        return element(call, (int)(i / count), mine + i % count);
    default:
        return sum(call, me->all->size, i);
    }
}

/* Makes the list of operations, which is the same on all ranks: every kind, with sizes from a
 * few bytes to several times a slot's memory. */
static void make_calls(rank *me)
{
    static const tsr__call_kind kinds[] = {
        TSR__CALL_ALL_REDUCE, TSR__CALL_REDUCE,  TSR__CALL_REDUCE_SCATTER,
        TSR__CALL_ALL_GATHER, TSR__CALL_GATHER,  TSR__CALL_BROADCAST,
        TSR__CALL_SCATTER,    TSR__CALL_BARRIER, TSR__CALL_ALL_TO_ALL};
    static const uint64_t counts[] = {1, 12, 13, 900, 4097, 70000};
    enum { KINDS = sizeof kinds / sizeof kinds[0], COUNTS = sizeof counts / sizeof counts[0] };
    uint64_t random = me->all->seed;
    for (int i = 0; i < CALLS; i++) {
        tsr__call *call = &me->calls[i];
        const tsr__call_kind kind = kinds[random_between(&random, 0, KINDS - 1)];
        *call = (tsr__call){.sequence = (uint64_t)i, .kind = (uint8_t)kind, .dtype = TSR_I32};
        call->count =
            kind == TSR__CALL_BARRIER ? 0 : counts[random_between(&random, 0, COUNTS - 1)];
        call->peer = (int32_t)random_between(&random, 0, me->all->size - 1);
        call->op = TSR_OP_SUM;
        call->history = i > 0 ? tsr__call_history(&me->calls[i - 1]) : 0;
    }
}

static void add(rank *me, tsr__shm_operation *operation, int at)
{
    const tsr__call *call = &me->calls[at];
    *operation = (tsr__shm_operation){
        .call = call,
        .kind = (tsr__call_kind)call->kind,
        .root = call->peer,
        .count = call->count,
        .send = (const uint8_t *)me->send,
        .recv = (uint8_t *)me->recv,
        .element_bytes = sizeof *me->recv,
        .combine = tsr__reduce_kernels()->combine[TSR_I32][TSR_OP_SUM],
        .blocks = {.each = call->count},
    };
    tsr__shm_prepare(me->all->size, operation);
    ck_assert(operation->rounds > 0);
    tsr__shm_add(me->shm, operation, &me->calls[at > 0 ? at - 1 : at]);
}

static void check_call(rank *me, int at)
{
    const tsr__call *call = &me->calls[at];
    const uint64_t size = (uint64_t)me->all->size;
    const uint64_t in = call->count * (has_input_blocks(call->kind) ? size : 1);
    const uint64_t out = call->count * (has_output_blocks(call->kind) ? size : 1);
    const bool is_root = call->peer == me->number;
    tsr__shm_operation operation;
    for (uint64_t i = 0; i < in; i++)
        me->send[i] = element(call, me->number, i);
    if (call->kind == TSR__CALL_BROADCAST && is_root)
        memcpy(me->recv, me->send, call->count * sizeof *me->recv);
    add(me, &operation, at);
    ck_assert_ptr_eq(advance(me).completed, &operation);
    if ((call->kind == TSR__CALL_REDUCE || call->kind == TSR__CALL_GATHER) && !is_root)
        return;
    for (uint64_t i = 0; i < out; i++) {
        const int32_t want = expected(me, call, i);
        ck_assert_msg(me->recv[i] == want, "%s #%d, rank %d of %d: [%d] is %d, not %d",
                      tsr__call_name(call->kind), at, me->number, me->all->size, (int)i,
                      (int)me->recv[i], (int)want);
    }
}

static void *make_all_calls(void *user)
{
    rank *me = user;
    while (me->number == 0 && atomic_load(&me->all->sleeps) == 0) /* the others must sleep */
        sched_yield();
    for (int i = 0; i < CALLS; i++)
        check_call(me, i);
    return NULL;
}

/* Runs `body` on each rank. Ranks are threads, each with a slot in the same region. `meet` of
 * the ranks use the barrier. */
static void run(job *all, int meet, void *(*body)(void *user))
{
    static const int owner[RANKS] = {0};
    enum { MOST = 70000 * RANKS };
    static rank ranks[RANKS];
    int32_t slots[RANKS];
    unsetenv("TESSERA_SHARED_MEMORY");
    ck_assert_ok(tsr__shm_regions_open(0, 1, &all->regions));
    ck_assert_int_eq(pthread_barrier_init(&all->barrier, NULL, (unsigned)meet), 0);
    for (int i = 0; i < all->size; i++) {
        slots[i] = tsr__shm_slot_reserve(all->regions);
        ck_assert_int_eq(slots[i], i);
        ck_assert_int_eq(sem_init(&all->wake[i], 0, 0), 0);
        ranks[i] = (rank){.all = all, .number = i};
        ranks[i].send = malloc(MOST * sizeof(int32_t));
        ranks[i].recv = malloc(MOST * sizeof(int32_t));
        ck_assert(ranks[i].send && ranks[i].recv);
        make_calls(&ranks[i]);
        ck_assert_ok(tsr__shm_create(all->size, &ranks[i].shm));
    }
    for (int i = 0; i < all->size; i++)
        tsr__shm_attach(ranks[i].shm, all->regions, i, all->size, owner, slots);
    for (int i = 0; i < all->size; i++)
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, body, &ranks[i]), 0);
    for (int i = 0; i < all->size; i++) {
        pthread_join(ranks[i].thread, NULL);
        tsr__shm_destroy(&ranks[i].shm);
        free(ranks[i].send);
        free(ranks[i].recv);
    }
    pthread_barrier_destroy(&all->barrier);
    tsr__shm_regions_close(&all->regions);
}

START_TEST(operations_of_every_kind)
{
    static const int sizes[] = {2, 3, 4, RANKS};
    job all = {.size = sizes[_i], .seed = (uint64_t)_i};
    run(&all, all.size, make_all_calls);
}
END_TEST

/* After some operations that agree, rank 1 calls another operation than the rest. */
static void *differ(void *user)
{
    rank *me = user;
    const int last = CALLS / 2;
    tsr__shm_operation operation;
    tsr__call theirs, before;
    for (int i = 0; i < last; i++)
        check_call(me, i);
    me->calls[last].count = me->number == 1 ? 13 : 12;
    me->calls[last].kind = TSR__CALL_ALL_REDUCE;
    memset(me->send, 0, 13 * sizeof *me->send);
    add(me, &operation, last);
    const tsr__shm_event event = advance(me);
    ck_assert(me->number == 1 ? event.mismatch != 1 && event.mismatch >= 0 : event.mismatch == 1);
    tsr__shm_call_of(me->shm, event.mismatch, &theirs, &before);
    ck_assert_uint_eq(theirs.count, me->number == 1 ? 12 : 13);
    ck_assert(tsr__call_same(&before, &me->calls[last - 1]));
    /* A rank that stopped earlier would end what others wait for */
    pthread_barrier_wait(&me->all->barrier);
    tsr__shm_stop(me->shm);
    return NULL;
}

START_TEST(calls_that_differ)
{
    job all = {.size = 4, .seed = (uint64_t)_i};
    run(&all, all.size, differ);
}
END_TEST

/* Rank 0 stops after the first call. The others may still be in that call, and must not complete
 * the second. */
static void *stop(void *user)
{
    rank *me = user;
    tsr__shm_operation operations[2];
    tsr__shm_event event;
    for (int i = 0; i < 2; i++) {
        me->calls[i].count = 70000;
        me->calls[i].kind = TSR__CALL_ALL_REDUCE;
    }
    memset(me->send, 0, 70000 * sizeof *me->send);
    add(me, &operations[0], 0);
    if (me->number == 0) {
        ck_assert_ptr_eq(advance(me).completed, &operations[0]);
        tsr__shm_stop(me->shm);
        atomic_store(&me->all->stopped, 1);
        return NULL;
    }
    add(me, &operations[1], 1);
    for (int after = 0; after < 1000; sched_yield()) {
        after += atomic_load(&me->all->stopped);
        (void)tsr__shm_advance(me->shm, &event);
        wake(me->all, event.wake);
        ck_assert(event.completed != &operations[1] && event.mismatch < 0);
    }
    ck_assert(tsr__shm_awaits(me->shm, 0));
    pthread_barrier_wait(&me->all->barrier);
    tsr__shm_stop(me->shm);
    ck_assert(!tsr__shm_is_busy(me->shm));
    return NULL;
}

START_TEST(a_rank_stops)
{
    job all = {.size = 3};
    run(&all, 2, stop);
}
END_TEST

TESTS(shm_threads)
{
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, operations_of_every_kind, 0, 4);
    tcase_add_loop_test(tests, calls_that_differ, 0, 3);
    tcase_add_loop_test(tests, a_rank_stops, 0, 5);
}
