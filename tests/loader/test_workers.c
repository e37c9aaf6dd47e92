/* Worker threads: their seeds, when they begin and end, and that they sleep when idle. */
#include <pthread.h>
#include <signal.h>

#include "one_loader.h"

/* One record per batch: the worker that loaded it, and a number drawn from the worker's own
 * stream. */
typedef struct drawn {
    int64_t worker, worker_seed, seed;
    uint64_t number;
} drawn;

static tsr_philox streams[8];

static tsr_status begin_stream(void *user, tsr_loader_worker *worker)
{
    worker->context = &streams[worker->id];
    tsr__philox_init((uint64_t)worker->seed, 0, worker->context);
    return fixture_init(user, &(tsr_loader_worker){0});
}

static void end_stream(void *user, tsr_loader_worker *worker)
{
    source *from = user;
    atomic_fetch_add(&from->wrong, worker->context != &streams[worker->id]);
    atomic_fetch_add(&from->finishes, 1);
}

static tsr_status draw(void *user, tsr_loader_work *work)
{
    fixture_begin(user, work);
    drawn one = {.worker = work->worker->id,
                 .worker_seed = work->worker->seed,
                 .seed = work->seed,
                 .number = tsr__philox_next_u64(work->worker->context)};
    memcpy(work->data, &one, sizeof one);
    atomic_fetch_sub(&((source *)user)->running, 1);
    return TSR_OK;
}

static void read_drawn(int workers, int64_t seed, tsr_seed_strategy strategy, int node, drawn *out,
                       uint64_t count)
{
    atomic_store(&data.inits, 0);
    atomic_store(&data.finishes, 0);
    data.jitter_us = 500;
    create(tsr_loader_params(.user = &data, .load_batch = draw, .batch_bytes = sizeof(drawn),
                             .worker_init = begin_stream, .worker_finish = end_stream, .n = count,
                             .workers = workers, .prefetch = workers > 0 ? 3 : 0, .seed = seed,
                             .seed_strategy = strategy, .node = node));
    for (uint64_t i = 0; i < count; i++) {
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got;
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        ck_assert(got && batch.size_bytes == sizeof *out);
        memcpy(&out[i], batch.data, sizeof *out);
    }
    tsr_loader_destroy(&loader);
    int alive = workers == 0 ? 1 : workers;
    ck_assert_int_eq(atomic_load(&data.inits), alive);
    ck_assert_int_eq(atomic_load(&data.finishes), alive);
}

START_TEST(a_worker_draws_the_same_in_every_run)
{
    drawn first[40], again[40];
    for (int workers = 0; workers <= 8; workers += 1 + workers / 3) {
        uint64_t alive = workers == 0 ? 1 : (uint64_t)workers;
        read_drawn(workers, 100, TSR_SEED_STRATEGY_DOCUMENTED, 0, first, 40);
        read_drawn(workers, 100, TSR_SEED_STRATEGY_DOCUMENTED, 0, again, 40);
        ck_assert_mem_eq(first, again, sizeof first);
        for (uint64_t b = 0; b < 40; b++) {
            ck_assert_int_eq(first[b].worker, (int64_t)(b % alive));
            ck_assert_int_eq(first[b].worker_seed, 100 + (int64_t)(b % alive));
            tsr_philox stream;
            uint64_t number = 0;
            tsr__philox_init(100 + b % alive, 0, &stream);
            for (uint64_t draws = 0; draws <= b / alive; draws++)
                number = tsr__philox_next_u64(&stream);
            ck_assert_uint_eq(first[b].number, number);
        }
    }
}
END_TEST

START_TEST(no_workers_draw_like_one_worker)
{
    drawn none[20], one[20];
    read_drawn(0, -7, TSR_SEED_STRATEGY_HASHED, 3, none, 20);
    read_drawn(1, -7, TSR_SEED_STRATEGY_HASHED, 3, one, 20);
    ck_assert_mem_eq(none, one, sizeof one);
}
END_TEST

START_TEST(hashed_seeds)
{
    drawn all[20];
    read_drawn(4, 5, TSR_SEED_STRATEGY_HASHED, 9, all, 20);
    for (int b = 0; b < 20; b++) {
        int64_t expected;
        tsr_seed_point point = {.base = 5, .kind = TSR_SEED_WORKER, .node = 9, .worker = b % 4};
        ck_assert_ok(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &point, &expected));
        ck_assert_int_eq(all[b].worker_seed, expected);
    }
}
END_TEST

/* The two expected numbers come from a program in another language, which was written from the
 * header alone. */
START_TEST(seeds_of_batches)
{
    drawn all[50], others[50];
    read_drawn(2, 42, TSR_SEED_STRATEGY_DOCUMENTED, 0, all, 50);
    ck_assert_int_eq(all[0].seed, INT64_C(-8115918460976720209));
    ck_assert_int_eq(all[1].seed, INT64_C(-479310873625558505));
    read_drawn(3, 42, TSR_SEED_STRATEGY_HASHED, 0, others, 50);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(all[i].seed, others[i].seed);
        for (int k = 0; k < i; k++)
            ck_assert_int_ne(all[i].seed, all[k].seed);
    }
    read_drawn(3, 42, TSR_SEED_STRATEGY_HASHED, 1, others, 50); /* another process draws others */
    for (int i = 0; i < 50; i++)
        for (int k = 0; k < 50; k++)
            ck_assert_int_ne(all[i].seed, others[k].seed);
}
END_TEST

START_TEST(workers_live_as_long_as_the_loader)
{
    create(tsr_loader_params(.user = &data, .load_item = fixture_item, .item_bytes = sizeof(record),
                             .worker_init = fixture_init, .worker_finish = fixture_finish, .n = 12,
                             .batch_size = 2, .workers = 3));
    ck_assert_int_eq(atomic_load(&data.inits), 0);
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        ck_assert_ok(tsr_loader_set_epoch(loader, epoch));
        (void)fixture_read(loader, 0);
        ck_assert_int_eq(atomic_load(&data.inits), 3);
        ck_assert_int_eq(atomic_load(&data.finishes), 0);
    }
    tsr_loader_destroy(&loader);
    ck_assert_int_eq(atomic_load(&data.finishes), 3);
}
END_TEST

/* For a worker that gets no batch, worker_init and worker_finish must not be called. */
START_TEST(workers_without_work)
{
    create(tsr_loader_params(.user = &data, .load_item = fixture_item, .item_bytes = sizeof(record),
                             .worker_init = fixture_init, .worker_finish = fixture_finish, .n = 2,
                             .workers = 8));
    (void)fixture_read(loader, 0);
    tsr_loader_destroy(&loader);
    ck_assert_int_eq(atomic_load(&data.inits), 2);
    ck_assert_int_eq(atomic_load(&data.finishes), 2);
    create(tsr_loader_params(.user = &data, .load_item = fixture_item, .worker_init = fixture_init,
                             .worker_finish = fixture_finish, .n = 2));
    tsr_loader_destroy(&loader);
    ck_assert_int_eq(atomic_load(&data.finishes), 2);
}
END_TEST

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *let_go_later(void *argument)
{
    sleep_us(300000);
    atomic_store(&data.let_go, true);
    return argument;
}

/* Eight idle workers and a waiting caller use almost no processor time in 0.3 s. The worker that
 * the test holds is the only one that wakes from time to time. */
START_TEST(waiting_uses_no_processor_time)
{
    pthread_t thread;
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    data.hold = true;
    data.held = 1;
    create(tsr_loader_params(.user = &data, .load_item = fixture_item, .item_bytes = sizeof(record),
                             .n = 2, .workers = 8));
    ck_assert_ok(tsr_loader_next(loader, &batch, &got));
    double before = cpu_seconds();
    ck_assert_int_eq(pthread_create(&thread, NULL, let_go_later, NULL), 0);
    ck_assert_ok(tsr_loader_next(loader, &batch, &got));
    pthread_join(thread, NULL);
    ck_assert(got);
    ck_assert_double_lt(cpu_seconds() - before, 0.15);
}
END_TEST

#ifndef _WIN32 /* Windows has no signals to threads */
static atomic_int blocked;

static tsr_status see_signals(void *user, tsr_loader_work *work)
{
    sigset_t mask;
    (void)user;
    (void)work;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    atomic_store(&blocked, sigismember(&mask, SIGINT) + 2 * sigismember(&mask, SIGTERM) +
                               4 * sigismember(&mask, SIGSEGV));
    return TSR_OK;
}

START_TEST(workers_block_signals)
{
    sigset_t before, after;
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    create(tsr_loader_params(.load_batch = see_signals, .n = 1, .workers = 1));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    ck_assert_int_eq(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
    ck_assert_ok(tsr_loader_next(loader, &batch, &got));
    ck_assert_int_eq(atomic_load(&blocked), 3);
}
END_TEST
#endif

/* However slowly the caller reads, the workers must load no more batches ahead than documented,
 * into no more memory. */
START_TEST(memory_is_bounded)
{
    const void *seen[16];
    int places = 0;
    create(tsr_loader_params(.user = &data, .load_item = fixture_item, .item_bytes = sizeof(record),
                             .n = 60, .workers = 3, .prefetch = 2));
    for (int b = 0; b < 60; b++) {
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got;
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        if (b % 10 == 0)
            sleep_us(20000);
        ck_assert_int_le(atomic_load(&data.begun), b + 1 + 6);
        int place = 0;
        while (place < places && seen[place] != batch.data)
            place++;
        if (place == places)
            seen[places++] = batch.data;
        ck_assert_int_le(places, 7);
    }
}
END_TEST

/* The batch that the caller holds must not change, even when the workers have begun all batches
 * that may be loaded ahead. */
START_TEST(a_batch_is_valid_until_the_next)
{
    create(tsr_loader_params(.user = &data, .load_item = fixture_item, .item_bytes = sizeof(record),
                             .n = 40, .batch_size = 2, .workers = 2, .prefetch = 2));
    for (uint64_t b = 0; b < 16; b++) {
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got;
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        uint64_t hash = fixture_hash(FIXTURE_HASH, &batch);
        for (int tries = 0; atomic_load(&data.begun) < (int)b + 1 + 4; tries++) {
            ck_assert_int_lt(tries, 5000);
            sleep_us(1000);
        }
        sleep_us(500);
        ck_assert_uint_eq(fixture_hash(FIXTURE_HASH, &batch), hash);
    }
}
END_TEST

TESTS(loader_workers)
{
    tcase_add_checked_fixture(tests, reset_data, destroy);
    tcase_add_test(tests, a_worker_draws_the_same_in_every_run);
    tcase_add_test(tests, no_workers_draw_like_one_worker);
    tcase_add_test(tests, hashed_seeds);
    tcase_add_test(tests, seeds_of_batches);
    tcase_add_test(tests, workers_live_as_long_as_the_loader);
    tcase_add_test(tests, workers_without_work);
    tcase_add_test(tests, waiting_uses_no_processor_time);
#ifndef _WIN32
    tcase_add_test(tests, workers_block_signals);
#endif
    tcase_add_test(tests, memory_is_bounded);
    tcase_add_test(tests, a_batch_is_valid_until_the_next);
}
