/* The seed manager. The tests in the first half have the names of the specification's methods and
 * scenarios that they implement. */
#include <stddef.h>
#include <string.h>

#include "base/fault.h"
#include "support/check_main.h"
#include "support/refused.h"
#include "tessera/seed.h"

static tsr_seed_manager *seeds;

static void create(void)
{
    ck_assert_ok(tsr_seed_manager_create(NULL, &seeds));
}

static void destroy(void)
{
    tsr_seed_manager_destroy(&seeds);
    ck_assert_ptr_null(seeds);
}

static void use(const tsr_seed_manager_params *params)
{
    tsr_seed_manager_destroy(&seeds);
    ck_assert_ok(tsr_seed_manager_create(params, &seeds));
}

static void check_device(int device, int64_t expected)
{
    int64_t seed = ~expected;
    ck_assert_ok(tsr_seed_of(seeds, TSR_SEED_DEVICE, device, &seed));
    ck_assert_int_eq(seed, expected);
}

static void check_worker(int worker, int64_t expected)
{
    int64_t seed = ~expected;
    ck_assert_ok(tsr_seed_of(seeds, TSR_SEED_WORKER, worker, &seed));
    ck_assert_int_eq(seed, expected);
}

START_TEST(seed_all_devices_seeds_each_uniquely)
{
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 42, 64));
    for (int device = 0; device < 64; device++)
        check_device(device, 42 + device);
    int64_t seed = 7;
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_DEVICE, 64, &seed), TSR_ERR_NOT_FOUND,
                    "seed: device 64 has not been seeded");
    ck_assert_int_eq(seed, 7);
}
END_TEST

START_TEST(seed_all_devices_uses_the_default_count)
{
    use(tsr_seed_manager_params(.device_count = 3));
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, -1, 0));
    check_device(0, -1);
    check_device(2, 1);
    int64_t seed;
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_DEVICE, 3, &seed), TSR_ERR_NOT_FOUND,
                    "seed: device 3 has not been seeded");
}
END_TEST

START_TEST(seed_all_devices_validates_the_count)
{
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_DEVICE, 42, -1), TSR_ERR_INVALID,
                    "seed: -1 devices are outside 1 to 65536");
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_DEVICE, 42, 65537), TSR_ERR_INVALID,
                    "seed: 65537 devices are outside 1 to 65536");
}
END_TEST

START_TEST(seed_device_stores_and_tracks)
{
    ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_DEVICE, 5, 123));
    check_device(5, 123);
    ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_DEVICE, 2, INT64_MIN));
    ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_DEVICE, 5, INT64_MAX));
    check_device(2, INT64_MIN);
    check_device(5, INT64_MAX);
}
END_TEST

START_TEST(seed_device_validates_the_id)
{
    ck_assert_error(tsr_seed_set(seeds, TSR_SEED_DEVICE, -1, 1), TSR_ERR_INVALID,
                    "seed: device -1 is outside 0 to 65535");
    ck_assert_error(tsr_seed_set(seeds, TSR_SEED_DEVICE, 65536, 1), TSR_ERR_INVALID,
                    "seed: device 65536 is outside 0 to 65535");
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 0);
}
END_TEST

START_TEST(get_device_seed_fails_when_not_seeded)
{
    int64_t seed = 7;
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_DEVICE, 0, &seed), TSR_ERR_NOT_FOUND,
                    "seed: device 0 has not been seeded");
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_WORKER, 1, 2));
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_DEVICE, 0, &seed), TSR_ERR_NOT_FOUND,
                    "seed: device 0 has not been seeded");
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_DEVICE, -3, &seed), TSR_ERR_NOT_FOUND,
                    "seed: device -3 has not been seeded");
    ck_assert_int_eq(seed, 7);
}
END_TEST

START_TEST(seed_workers_seeds_each_uniquely)
{
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_WORKER, 100, 4));
    for (int worker = 0; worker < 4; worker++)
        check_worker(worker, 100 + worker);
}
END_TEST

START_TEST(seed_workers_validates_the_count)
{
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_WORKER, 100, 0), TSR_ERR_INVALID,
                    "seed: 0 workers are outside 1 to 65536");
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_WORKER, 100, -4), TSR_ERR_INVALID,
                    "seed: -4 workers are outside 1 to 65536");
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_WORKER, 100, 65537), TSR_ERR_INVALID,
                    "seed: 65537 workers are outside 1 to 65536");
}
END_TEST

START_TEST(seed_worker_stores_and_tracks)
{
    ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_WORKER, 9, -5));
    check_worker(9, -5);
    ck_assert_error(tsr_seed_set(seeds, TSR_SEED_WORKER, -1, 1), TSR_ERR_INVALID,
                    "seed: worker -1 is outside 0 to 65535");
}
END_TEST

START_TEST(get_worker_seed_fails_when_not_seeded)
{
    int64_t seed = 7;
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 1, 2));
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_WORKER, 0, &seed), TSR_ERR_NOT_FOUND,
                    "seed: worker 0 has not been seeded");
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_PROCESS, 0, &seed), TSR_ERR_NOT_FOUND,
                    "seed: the process has not been seeded");
    ck_assert_int_eq(seed, 7);
}
END_TEST

START_TEST(get_deterministic_seed_by_the_manager)
{
    int64_t seed = 0, hashed = 0, expected = 0;
    ck_assert_ok(tsr_seed_of_op(seeds, 42, 3, 17, &seed));
    ck_assert_int_eq(seed, 3059);
    ck_assert_error(tsr_seed_of_op(seeds, 42, 3, 1000, &seed), TSR_ERR_INVALID,
                    "seed: op 1000 is outside 0 to 999 and would take another device's seed");
    use(tsr_seed_manager_params(.strategy = TSR_SEED_STRATEGY_HASHED, .node = 6));
    ck_assert_ok(tsr_seed_set_epoch(seeds, 8));
    ck_assert_ok(tsr_seed_of_op(seeds, 42, 3, 1000, &hashed));
    ck_assert_ok(tsr_seed_derive(
        TSR_SEED_STRATEGY_HASHED,
        &(tsr_seed_point){
            .base = 42, .kind = TSR_SEED_OP, .node = 6, .device = 3, .epoch = 8, .op = 1000},
        &expected));
    ck_assert_int_eq(hashed, expected);
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 0);
}
END_TEST

/* The specification's SetGlobalSeed(42) seeds the process and GPU 0. */
START_TEST(single_gpu_training)
{
    int64_t seed = 0;
    ck_assert_ok(tsr_seed_global(seeds, 42));
    ck_assert_ok(tsr_seed_of(seeds, TSR_SEED_PROCESS, 0, &seed));
    ck_assert_int_eq(seed, 42);
    check_device(0, 42);
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 2);
}
END_TEST

START_TEST(multi_gpu_training_data_parallel)
{
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 42, 4));
    check_device(0, 42);
    check_device(1, 43);
    check_device(2, 44);
    check_device(3, 45);
}
END_TEST

START_TEST(multi_gpu_training_model_parallel)
{
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 42, 2));
    check_device(0, 42);
    check_device(1, 43);
}
END_TEST

START_TEST(data_loading_single_worker)
{
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_WORKER, 100, 1));
    check_worker(0, 100);
    int64_t seed;
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_WORKER, 1, &seed), TSR_ERR_NOT_FOUND,
                    "seed: worker 1 has not been seeded");
}
END_TEST

START_TEST(data_loading_multiple_workers)
{
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_WORKER, 100, 4));
    check_worker(0, 100);
    check_worker(1, 101);
    check_worker(2, 102);
    check_worker(3, 103);
}
END_TEST

/* The same base seed must give the same numbers in another run. */
START_TEST(seeding_is_reproducible_across_runs)
{
    tsr_seed_manager *other = NULL;
    ck_assert_ok(tsr_seed_manager_create(NULL, &other));
    ck_assert_ok(tsr_seed_global(seeds, 7));
    ck_assert_ok(tsr_seed_global(other, 7));
    tsr_rng *a = NULL, *b = NULL;
    ck_assert_ok(tsr_seed_stream(seeds, TSR_SEED_DEVICE, 0, &a));
    ck_assert_ok(tsr_seed_stream(other, TSR_SEED_DEVICE, 0, &b));
    for (int i = 0; i < 100; i++)
        ck_assert_uint_eq(tsr_rng_next_u64(a), tsr_rng_next_u64(b));
    tsr_seed_manager_destroy(&other);
}
END_TEST

START_TEST(global_seeds_everything)
{
    use(tsr_seed_manager_params(.device_count = 2, .worker_count = 3));
    ck_assert_ok(tsr_seed_global(seeds, 10));
    check_device(1, 11);
    check_worker(2, 12);
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 6);
}
END_TEST

START_TEST(streams_are_generators_of_their_seeds)
{
    for (int kind = TSR_RNG_PHILOX; kind <= TSR_RNG_THREEFRY; kind++) {
        use(tsr_seed_manager_params(.rng = (tsr_rng_kind)kind));
        ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_DEVICE, 3, -12));
        tsr_rng expected, *stream = NULL;
        ck_assert_ok(tsr_rng_init((tsr_rng_kind)kind, (uint64_t)-12, 0, &expected));
        ck_assert_ok(tsr_seed_stream(seeds, TSR_SEED_DEVICE, 3, &stream));
        for (int i = 0; i < 10; i++)
            ck_assert_uint_eq(tsr_rng_next_u32(stream), tsr_rng_next_u32(&expected));
        /* Seeding other streams must not move this stream. */
        tsr_rng *again = NULL;
        ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 0, 3));
        ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_WORKER, 0, 300));
        ck_assert_ok(tsr_seed_stream(seeds, TSR_SEED_DEVICE, 3, &again));
        ck_assert_ptr_eq(again, stream);
        ck_assert_uint_eq(tsr_rng_next_u32(stream), tsr_rng_next_u32(&expected));
        /* Seeding again must restart the stream. */
        ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_DEVICE, 3, -12));
        ck_assert_ok(tsr_rng_init((tsr_rng_kind)kind, (uint64_t)-12, 0, &expected));
        ck_assert_uint_eq(tsr_rng_next_u32(stream), tsr_rng_next_u32(&expected));
    }
}
END_TEST

START_TEST(stream_errors)
{
    tsr_rng *stream = NULL;
    ck_assert_error(tsr_seed_stream(seeds, TSR_SEED_OP, 0, &stream), TSR_ERR_INVALID,
                    "seed: kind op has no stream");
    ck_assert_error(tsr_seed_stream(seeds, TSR_SEED_PROCESS, 1, &stream), TSR_ERR_NOT_FOUND,
                    "seed: process 1 has not been seeded");
    ck_assert_error(tsr_seed_stream(seeds, TSR_SEED_WORKER, 1, &stream), TSR_ERR_NOT_FOUND,
                    "seed: worker 1 has not been seeded");
    ck_assert_ptr_null(stream);
}
END_TEST

START_TEST(kinds_are_checked)
{
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_PROCESS, 1, 1), TSR_ERR_INVALID,
                    "seed: kind process is neither device nor worker");
    ck_assert_error(tsr_seed_set(seeds, TSR_SEED_OP, 0, 1), TSR_ERR_INVALID,
                    "seed: kind op has no stream");
    ck_assert_error(tsr_seed_set(seeds, TSR_SEED_PROCESS, 1, 1), TSR_ERR_INVALID,
                    "seed: process 1 is outside 0 to 0");
    int64_t seed = 7;
    ck_assert_error(tsr_seed_of(seeds, TSR_SEED_OP, 0, &seed), TSR_ERR_INVALID,
                    "seed: kind op has no stream");
    ck_assert_int_eq(seed, 7);
    ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_PROCESS, 0, -9));
    ck_assert_ok(tsr_seed_of(seeds, TSR_SEED_PROCESS, 0, &seed));
    ck_assert_int_eq(seed, -9);
    size_t size = 0;
    ck_assert_error(tsr_seed_save(seeds, (tsr_seed_format)2, 0, NULL, &size), TSR_ERR_INVALID,
                    "seed: 2 is no format of snapshots");
    ck_assert_error(tsr_seed_load(seeds, (tsr_seed_format)2, "", 0), TSR_ERR_INVALID,
                    "seed: 2 is no format of snapshots");
}
END_TEST

START_TEST(sizes_of_events)
{
    struct {
        tsr_seed_event event;
        int64_t later;
    } grown = {.later = 7};
    ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_DEVICE, 3, 12));
    ck_assert_error(tsr_seed_get_event(seeds, 0, &grown.event), TSR_ERR_INVALID,
                    "tsr_seed_event: struct_size is 0; use TSR_INIT(tsr_seed_event)");
    grown.event.struct_size = offsetof(tsr_seed_event, seed);
    ck_assert_ok(tsr_seed_get_event(seeds, 0, &grown.event));
    ck_assert_int_eq(grown.event.id, 3);
    ck_assert_int_eq(grown.event.seed, 0);
    grown.event.struct_size = sizeof grown;
    ck_assert_ok(tsr_seed_get_event(seeds, 0, &grown.event));
    ck_assert_uint_eq(grown.event.struct_size, sizeof grown);
    ck_assert_int_eq(grown.event.seed, 12);
    ck_assert_int_eq(grown.later, 0);
}
END_TEST

START_TEST(hashed_manager)
{
    use(tsr_seed_manager_params(.strategy = TSR_SEED_STRATEGY_HASHED, .node = 3, .device_count = 2,
                                .worker_count = 2));
    ck_assert_ok(tsr_seed_global(seeds, 42));
    int64_t device = 0, worker = 0, expected = 0;
    ck_assert_ok(tsr_seed_of(seeds, TSR_SEED_DEVICE, 1, &device));
    ck_assert_ok(tsr_seed_of(seeds, TSR_SEED_WORKER, 1, &worker));
    ck_assert_int_ne(device, worker);
    ck_assert_ok(tsr_seed_derive(
        TSR_SEED_STRATEGY_HASHED,
        &(tsr_seed_point){.base = 42, .kind = TSR_SEED_WORKER, .node = 3, .worker = 1}, &expected));
    ck_assert_int_eq(worker, expected);
    /* Another epoch must give other seeds. */
    ck_assert_ok(tsr_seed_set_epoch(seeds, 1));
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_WORKER, 42, 2));
    int64_t later = worker;
    ck_assert_ok(tsr_seed_of(seeds, TSR_SEED_WORKER, 1, &later));
    ck_assert_int_ne(later, worker);
    /* A call with too many devices must fail and change nothing. */
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_DEVICE, 42, 257), TSR_ERR_INVALID,
                    "seed: device 256 is outside 0 to 255, which hashed seeds have room for");
    check_device(1, device);
}
END_TEST

static tsr_status own_formula(void *user, const tsr_seed_point *point, int64_t *seed)
{
    if (point->device == *(int *)user)
        return TSR_ERR_UNSUPPORTED;
    *seed =
        point->base * 10 + INT64_C(3) * point->device + INT64_C(7) * point->worker + point->node;
    return TSR_OK;
}

START_TEST(a_formula_of_the_callers)
{
    int refused = 5;
    use(tsr_seed_manager_params(.derive = own_formula, .user = &refused, .node = 1));
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 4, 5));
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_WORKER, 4, 3));
    check_device(4, 53);
    check_worker(2, 55);
    ck_assert_int_eq(tsr_seed_all(seeds, TSR_SEED_DEVICE, 9, 6), TSR_ERR_UNSUPPORTED);
    check_device(4, 53);
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 8);
}
END_TEST

START_TEST(failing_calls_change_nothing)
{
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 1, 2));
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_DEVICE, INT64_MAX - 1, 4), TSR_ERR_OVERFLOW,
                    "seed: base 9223372036854775806 + 2 does not fit 64 bits");
    check_device(0, 1);
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 2);

    use(tsr_seed_manager_params(.rng = TSR_RNG_DOTNET));
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 1, 2));
    ck_assert_error(tsr_seed_all(seeds, TSR_SEED_DEVICE, 2147483646, 3), TSR_ERR_INVALID,
                    "seed: device 2: rng: seed 2147483648 is outside System.Random's -2147483648 "
                    "to 2147483647");
    check_device(1, 2);
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 2);
}
END_TEST

START_TEST(params_are_checked)
{
    tsr_seed_manager *none = NULL;
    struct {
        tsr_seed_manager_params params;
        const char *text;
    } cases[] = {
        {{.strategy = (tsr_seed_strategy)2}, "seed: 2 is no strategy"},
        {{.rng = (tsr_rng_kind)8}, "seed: 8 is no kind of generator"},
        {{.strategy = TSR_SEED_STRATEGY_HASHED, .rng = TSR_RNG_MT19937},
         "seed: hashed seeds have 64 bits, of which mt19937 would take 32"},
        {{.strategy = TSR_SEED_STRATEGY_HASHED, .rng = TSR_RNG_DOTNET},
         "seed: hashed seeds have 64 bits, of which dotnet would take 32"},
        {{.device_count = -1}, "seed: -1 devices are outside 0 to 65536"},
        {{.worker_count = 65537}, "seed: 65537 workers are outside 0 to 65536"},
        {{.node = -1}, "seed: node -1 is negative"},
        {{.strategy = TSR_SEED_STRATEGY_HASHED, .node = 16384},
         "seed: node 16384 is outside 0 to 16383, which hashed seeds have room for"},
        {{.strategy = TSR_SEED_STRATEGY_HASHED, .device_count = 257},
         "seed: device 256 is outside 0 to 255, which hashed seeds have room for"},
        {{.strategy = TSR_SEED_STRATEGY_HASHED, .worker_count = 1025},
         "seed: worker 1024 is outside 0 to 1023, which hashed seeds have room for"},
        {{.node = 1},
         "seed: the documented formula for a device has no place for node 1; the hashed strategy "
         "has"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cases[i].params.struct_size = sizeof cases[i].params;
        ck_assert_error(tsr_seed_manager_create(&cases[i].params, &none), TSR_ERR_INVALID,
                        cases[i].text);
    }
    ck_assert_ptr_null(none);
    tsr_seed_manager_destroy(&none);
    tsr_seed_manager_destroy(NULL);
    ck_assert_error(tsr_seed_set_epoch(seeds, 1048576), TSR_ERR_INVALID,
                    "seed: epoch 1048576 is outside 0 to 1048575");
    ck_assert_error(tsr_seed_set_epoch(seeds, -1), TSR_ERR_INVALID,
                    "seed: epoch -1 is outside 0 to 1048575");
    use(tsr_seed_manager_params(.strategy = TSR_SEED_STRATEGY_HASHED, .node = 16383,
                                .device_count = 256, .worker_count = 1024));
    ck_assert_ok(tsr_seed_global(seeds, -1));
}
END_TEST

static char heard[512];

static void listen(void *user, tsr_log_level level, const char *message)
{
    (void)user;
    ck_assert_int_eq(level, TSR_LOG_DEBUG);
    strncat(heard, message, sizeof heard - strlen(heard) - 1);
    strncat(heard, "\n", sizeof heard - strlen(heard) - 1);
}

START_TEST(every_seeding_is_logged)
{
    tsr_log_set(listen, NULL, TSR_LOG_DEBUG);
    ck_assert_ok(tsr_seed_global(seeds, 42));
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_WORKER, 100, 2));
    ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_DEVICE, 0, 5));
    tsr_log_set(NULL, NULL, TSR_LOG_DEBUG);
    ck_assert_str_eq(heard, "seed: process 0: 42\nseed: device 0: 42\nseed: worker 0: 100\n"
                            "seed: worker 1: 101\nseed: device 0: 5\n");

    const tsr_seed_event expected[] = {{sizeof *expected, TSR_SEED_PROCESS, 0, 42},
                                       {sizeof *expected, TSR_SEED_DEVICE, 0, 42},
                                       {sizeof *expected, TSR_SEED_WORKER, 0, 100},
                                       {sizeof *expected, TSR_SEED_WORKER, 1, 101},
                                       {sizeof *expected, TSR_SEED_DEVICE, 0, 5}};
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 5);
    tsr_seed_event event = TSR_INIT(tsr_seed_event);
    for (uint64_t i = 0; i < 5; i++) {
        ck_assert_ok(tsr_seed_get_event(seeds, i, &event));
        ck_assert_int_eq(event.kind, expected[i].kind);
        ck_assert_int_eq(event.id, expected[i].id);
        ck_assert_int_eq(event.seed, expected[i].seed);
    }
    ck_assert_error(tsr_seed_get_event(seeds, 5, &event), TSR_ERR_NOT_FOUND,
                    "seed: there is no entry 5 in a log of 5");
    tsr_seed_clear_events(seeds);
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 0);
    check_device(0, 5);
}
END_TEST

START_TEST(the_largest_number_of_streams)
{
    ck_assert_ok(tsr_seed_all(seeds, TSR_SEED_DEVICE, 0, TSR_MAX_SEED));
    check_device(TSR_MAX_SEED - 1, TSR_MAX_SEED - 1);
}
END_TEST

/* Does the work in which allocations fail. Kinds of streams alternate, so that their sets are
 * merged. */
static tsr_status workload(void)
{
    tsr_seed_manager *manager = NULL;
    tsr_status status = tsr_seed_manager_create(
        tsr_seed_manager_params(.device_count = 3, .worker_count = 2), &manager);
    if (status == TSR_OK)
        status = tsr_seed_set(manager, TSR_SEED_DEVICE, 1, 9);
    if (status == TSR_OK)
        status = tsr_seed_global(manager, 42);
    if (status == TSR_OK)
        status = tsr_seed_all(manager, TSR_SEED_WORKER, 42, 9);
    tsr_seed_manager_destroy(&manager);
    return status;
}

START_TEST(every_allocation_may_fail)
{
    int failed = 0;
    for (uint64_t nth = 0;; nth++, failed++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = workload();
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        if (!reached)
            break;
    }
    ck_assert_int_gt(failed, 15);
}
END_TEST

/* A call that fails for lack of memory must leave the manager unchanged. */
START_TEST(failed_allocations_change_nothing)
{
    int failed = 0;
    for (uint64_t nth = 0;; nth++, failed++) {
        use(NULL);
        ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_DEVICE, 2, 9));
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_seed_all(seeds, TSR_SEED_DEVICE, 42, 12);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        if (!reached)
            break;
        int64_t seed;
        ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
        ck_assert_uint_eq(tsr_seed_event_count(seeds), 1);
        check_device(2, 9);
        ck_assert_error(tsr_seed_of(seeds, TSR_SEED_DEVICE, 0, &seed), TSR_ERR_NOT_FOUND,
                        "seed: device 0 has not been seeded");
    }
    ck_assert_int_gt(failed, 10);
    check_device(2, 44);
}
END_TEST

/* Memory that a refused call must not write to. */
static struct {
    int64_t seed;
    tsr_seed_key key;
    tsr_seed_manager *made;
    tsr_rng *stream;
    tsr_seed_event event;
    char text[64];
    size_t size;
} out;

/* Calls every function that returns a status, in the header's order. */
START_TEST(nulls)
{
    const tsr_seed_point point = {.base = 1};
    char bytes[4096], json[8192];
    size_t bytes_size, json_size;
    ck_assert_ok(tsr_seed_global(seeds, 7));
    ck_assert_ok(tsr_seed_set(seeds, TSR_SEED_WORKER, 0, 7));
    ck_assert_ok(tsr_seed_save(seeds, TSR_SEED_FORMAT_BYTES, sizeof bytes, bytes, &bytes_size));
    ck_assert_ok(tsr_seed_save(seeds, TSR_SEED_FORMAT_JSON, sizeof json, json, &json_size));

    ck_assert_uint_eq(tsr_seed_event_count(NULL), 0);
    tsr_seed_clear_events(NULL);
    REFUSED(tsr_seed_derive(TSR_SEED_STRATEGY_DOCUMENTED, NULL, &out.seed), "seed: point");
    REFUSED(tsr_seed_derive(TSR_SEED_STRATEGY_DOCUMENTED, &point, NULL), "seed: seed");
    REFUSED(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, NULL, &out.seed), "seed: point");
    REFUSED(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &point, NULL), "seed: seed");
    REFUSED(tsr_seed_derive_key(NULL, &out.key), "seed: point");
    REFUSED(tsr_seed_derive_key(&point, NULL), "seed: key");
    REFUSED(tsr_seed_manager_create(NULL, NULL), "seed: out");
    REFUSED(tsr_seed_set_epoch(NULL, 1), "seed: manager");
    REFUSED(tsr_seed_global(NULL, 1), "seed: manager");
    REFUSED(tsr_seed_all(NULL, TSR_SEED_DEVICE, 1, 2), "seed: manager");
    REFUSED(tsr_seed_set(NULL, TSR_SEED_DEVICE, 0, 1), "seed: manager");
    REFUSED(tsr_seed_all(NULL, TSR_SEED_WORKER, 1, 2), "seed: manager");
    REFUSED(tsr_seed_set(NULL, TSR_SEED_WORKER, 0, 1), "seed: manager");
    REFUSED(tsr_seed_of(NULL, TSR_SEED_PROCESS, 0, &out.seed), "seed: manager");
    REFUSED(tsr_seed_of(seeds, TSR_SEED_PROCESS, 0, NULL), "seed: seed");
    REFUSED(tsr_seed_of(NULL, TSR_SEED_DEVICE, 0, &out.seed), "seed: manager");
    REFUSED(tsr_seed_of(seeds, TSR_SEED_DEVICE, 0, NULL), "seed: seed");
    REFUSED(tsr_seed_of(NULL, TSR_SEED_WORKER, 0, &out.seed), "seed: manager");
    REFUSED(tsr_seed_of(seeds, TSR_SEED_WORKER, 0, NULL), "seed: seed");
    REFUSED(tsr_seed_of_op(NULL, 1, 0, 0, &out.seed), "seed: manager");
    REFUSED(tsr_seed_of_op(seeds, 1, 0, 0, NULL), "seed: seed");
    REFUSED(tsr_seed_stream(NULL, TSR_SEED_PROCESS, 0, &out.stream), "seed: manager");
    REFUSED(tsr_seed_stream(seeds, TSR_SEED_PROCESS, 0, NULL), "seed: stream");
    REFUSED(tsr_seed_get_event(NULL, 0, &out.event), "seed: manager");
    REFUSED(tsr_seed_get_event(seeds, 0, NULL), "seed: event");
    REFUSED(tsr_seed_save(NULL, TSR_SEED_FORMAT_BYTES, sizeof out.text, out.text, &out.size),
            "seed: manager");
    REFUSED(tsr_seed_save(seeds, TSR_SEED_FORMAT_BYTES, sizeof out.text, NULL, NULL),
            "seed: size_bytes");
    REFUSED(tsr_seed_save(NULL, TSR_SEED_FORMAT_JSON, sizeof out.text, out.text, &out.size),
            "seed: manager");
    REFUSED(tsr_seed_save(seeds, TSR_SEED_FORMAT_JSON, sizeof out.text, NULL, NULL),
            "seed: size_bytes");
    REFUSED(tsr_seed_load(NULL, TSR_SEED_FORMAT_BYTES, bytes, bytes_size), "seed: manager");
    REFUSED(tsr_seed_load(seeds, TSR_SEED_FORMAT_BYTES, NULL, bytes_size), "seed: data");
    REFUSED(tsr_seed_load(NULL, TSR_SEED_FORMAT_JSON, json, json_size), "seed: manager");
    REFUSED(tsr_seed_load(seeds, TSR_SEED_FORMAT_JSON, NULL, json_size), "seed: data");

    char after[sizeof bytes];
    size_t size;
    ck_assert_uint_eq(tsr_seed_event_count(seeds), 3);
    ck_assert_ok(tsr_seed_save(seeds, TSR_SEED_FORMAT_BYTES, sizeof after, after, &size));
    ck_assert_uint_eq(size, bytes_size);
    ck_assert_mem_eq(after, bytes, size);
}
END_TEST

TESTS(manager)
{
    tcase_add_checked_fixture(tests, create, destroy);
    tcase_add_test(tests, seed_all_devices_seeds_each_uniquely);
    tcase_add_test(tests, seed_all_devices_uses_the_default_count);
    tcase_add_test(tests, seed_all_devices_validates_the_count);
    tcase_add_test(tests, seed_device_stores_and_tracks);
    tcase_add_test(tests, seed_device_validates_the_id);
    tcase_add_test(tests, get_device_seed_fails_when_not_seeded);
    tcase_add_test(tests, seed_workers_seeds_each_uniquely);
    tcase_add_test(tests, seed_workers_validates_the_count);
    tcase_add_test(tests, seed_worker_stores_and_tracks);
    tcase_add_test(tests, get_worker_seed_fails_when_not_seeded);
    tcase_add_test(tests, get_deterministic_seed_by_the_manager);
    tcase_add_test(tests, single_gpu_training);
    tcase_add_test(tests, multi_gpu_training_data_parallel);
    tcase_add_test(tests, multi_gpu_training_model_parallel);
    tcase_add_test(tests, data_loading_single_worker);
    tcase_add_test(tests, data_loading_multiple_workers);
    tcase_add_test(tests, seeding_is_reproducible_across_runs);
    tcase_add_test(tests, global_seeds_everything);
    tcase_add_test(tests, streams_are_generators_of_their_seeds);
    tcase_add_test(tests, stream_errors);
    tcase_add_test(tests, kinds_are_checked);
    tcase_add_test(tests, sizes_of_events);
    tcase_add_test(tests, hashed_manager);
    tcase_add_test(tests, a_formula_of_the_callers);
    tcase_add_test(tests, failing_calls_change_nothing);
    tcase_add_test(tests, params_are_checked);
    tcase_add_test(tests, nulls);
    tcase_add_test(tests, every_seeding_is_logged);
    tcase_add_test(tests, the_largest_number_of_streams);
    tcase_add_test(tests, every_allocation_may_fail);
    tcase_add_test(tests, failed_allocations_change_nothing);
}
