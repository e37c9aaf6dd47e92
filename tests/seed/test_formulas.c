/* Tests the documented formulas and the hash. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/philox.h"
#include "support/check_main.h"
#include "support/random.h"
#include "tessera/seed.h"

static int64_t documented(tsr_seed_point point)
{
    int64_t seed = 0;
    ck_assert_ok(tsr_seed_derive(TSR_SEED_STRATEGY_DOCUMENTED, &point, &seed));
    return seed;
}

/* GetDeterministicSeed of the specification. */
static tsr_status deterministic(int64_t base, int device, int op, int64_t *seed)
{
    return tsr_seed_derive(
        TSR_SEED_STRATEGY_DOCUMENTED,
        &(tsr_seed_point){.base = base, .kind = TSR_SEED_OP, .device = device, .op = op}, seed);
}

START_TEST(unknown_strategy)
{
    int64_t seed = 7;
    ck_assert_error(tsr_seed_derive((tsr_seed_strategy)2, &(tsr_seed_point){0}, &seed),
                    TSR_ERR_INVALID, "seed: 2 is no strategy");
    ck_assert_int_eq(seed, 7);
}
END_TEST

START_TEST(kind_names)
{
    ck_assert_str_eq(tsr_seed_kind_name(TSR_SEED_PROCESS), "process");
    ck_assert_str_eq(tsr_seed_kind_name(TSR_SEED_DEVICE), "device");
    ck_assert_str_eq(tsr_seed_kind_name(TSR_SEED_WORKER), "worker");
    ck_assert_str_eq(tsr_seed_kind_name(TSR_SEED_OP), "op");
    ck_assert_str_eq(tsr_seed_kind_name((tsr_seed_kind)4), "?");
}
END_TEST

START_TEST(documented_formulas)
{
    for (int64_t base = -3; base < 4; base++)
        for (int id = 0; id < 5; id++) {
            ck_assert_int_eq(documented((tsr_seed_point){.base = base}), base);
            ck_assert_int_eq(
                documented((tsr_seed_point){.base = base, .kind = TSR_SEED_DEVICE, .device = id}),
                base + id);
            ck_assert_int_eq(
                documented((tsr_seed_point){.base = base, .kind = TSR_SEED_WORKER, .worker = id}),
                base + id);
        }
}
END_TEST

/* GetDeterministicSeed gives the same seed on every call, as the formula says. */
START_TEST(get_deterministic_seed_is_deterministic)
{
    for (int device = 0; device < 20; device++)
        for (int op = 0; op < 1000; op += 37) {
            int64_t first = 0, second = 0;
            ck_assert_ok(deterministic(42, device, op, &first));
            ck_assert_ok(deterministic(42, device, op, &second));
            ck_assert_int_eq(first, 42 + INT64_C(1000) * device + op);
            ck_assert_int_eq(second, first);
        }
}
END_TEST

/* The specification's "Ensure uniqueness across devices and operations". */
START_TEST(get_deterministic_seed_is_unique)
{
    enum { DEVICES = 16, OPS = 1000, SEEDS = DEVICES * OPS };
    static char seen[SEEDS];
    for (int device = 0; device < DEVICES; device++)
        for (int op = 0; op < OPS; op++) {
            int64_t seed = -1;
            ck_assert(deterministic(0, device, op, &seed) == TSR_OK);
            ck_assert(seed >= 0 && seed < SEEDS && seen[seed]++ == 0);
        }
}
END_TEST

START_TEST(get_deterministic_seed_rejects)
{
    int64_t seed = 7;
    ck_assert_error(deterministic(0, 0, 1000, &seed), TSR_ERR_INVALID,
                    "seed: op 1000 is outside 0 to 999 and would take another device's seed");
    ck_assert_error(deterministic(0, 0, -1, &seed), TSR_ERR_INVALID,
                    "seed: op -1 is outside 0 to 999 and would take another device's seed");
    ck_assert_error(deterministic(0, -1, 0, &seed), TSR_ERR_INVALID, "seed: device -1 is negative");
    ck_assert_error(deterministic(INT64_MAX, 0, 1, &seed), TSR_ERR_OVERFLOW,
                    "seed: base 9223372036854775807 + 1 does not fit 64 bits");
    ck_assert_error(deterministic(INT64_MAX - 999, INT32_MAX, 0, &seed), TSR_ERR_OVERFLOW,
                    "seed: base 9223372036854774808 + 2147483647000 does not fit 64 bits");
    ck_assert_int_eq(seed, 7);
    ck_assert_ok(deterministic(INT64_MAX - 999, 0, 999, &seed));
    ck_assert_int_eq(seed, INT64_MAX);
    ck_assert_ok(deterministic(INT64_MIN, 0, 0, &seed));
    ck_assert_int_eq(seed, INT64_MIN);
}
END_TEST

START_TEST(documented_rejects_parts_it_does_not_use)
{
    const struct {
        tsr_seed_point point;
        const char *text;
    } cases[] = {
        {{.kind = TSR_SEED_PROCESS, .node = 3},
         "seed: the documented formula for a process has no place for node 3; the hashed strategy "
         "has"},
        {{.kind = TSR_SEED_WORKER, .epoch = 2},
         "seed: the documented formula for a worker has no place for epoch 2; the hashed strategy "
         "has"},
        {{.kind = TSR_SEED_WORKER, .device = 1},
         "seed: the documented formula for a worker has no place for device 1; the hashed strategy "
         "has"},
        {{.kind = TSR_SEED_DEVICE, .worker = 1},
         "seed: the documented formula for a device has no place for worker 1; the hashed strategy "
         "has"},
        {{.kind = TSR_SEED_DEVICE, .op = 1},
         "seed: the documented formula for a device has no place for op 1; the hashed strategy "
         "has"},
        {{.kind = TSR_SEED_WORKER, .worker = -2}, "seed: worker -2 is negative"},
        {{.kind = (tsr_seed_kind)9}, "seed: 9 is no kind of seed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t seed = 7;
        ck_assert_error(tsr_seed_derive(TSR_SEED_STRATEGY_DOCUMENTED, &cases[i].point, &seed),
                        TSR_ERR_INVALID, cases[i].text);
        ck_assert_int_eq(seed, 7);
    }
}
END_TEST

/* Packs a point (what a seed is for: a process, device, worker or operation) into 64 bits by
 * multiplication, independently of the library. */
static uint64_t packed(const tsr_seed_point *point)
{
    uint64_t value = (uint64_t)point->kind;
    value = value * 16384 + (uint64_t)point->node;
    value = value * 256 + (uint64_t)point->device;
    value = value * 1024 + (uint64_t)point->worker;
    value = value * 1048576 + (uint64_t)point->epoch;
    return value * 1024 + (uint64_t)point->op;
}

static tsr_seed_point random_point(uint64_t *state)
{
    return (tsr_seed_point){.base = (int64_t)random_next(state),
                            .kind = (tsr_seed_kind)(random_next(state) % 4),
                            .node = (int)(random_next(state) % 16384),
                            .device = (int)(random_next(state) % 256),
                            .worker = (int)(random_next(state) % 1024),
                            .epoch = (int64_t)(random_next(state) % 1048576),
                            .op = (int)(random_next(state) % 1024)};
}

/* Computes the inverse of threefry2x32-20 for one key: undoes the rounds and key injections from
 * the last to the first. */
static uint64_t threefry_inverse(uint64_t base, uint64_t value)
{
    static const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    uint32_t k0 = (uint32_t)(base >> 32), k1 = (uint32_t)base;
    const uint32_t keys[3] = {k0, k1, k0 ^ k1 ^ UINT32_C(0x1BD11BDA)};
    uint32_t x0 = (uint32_t)(value >> 32), x1 = (uint32_t)value;
    for (uint32_t round = 20; round-- > 0;) {
        if (round % 4 == 3) {
            uint32_t injection = round / 4 + 1;
            x0 -= keys[injection % 3];
            x1 -= keys[(injection + 1) % 3] + injection;
        }
        x1 ^= x0;
        x1 = x1 >> rotations[round % 8] | x1 << (32 - rotations[round % 8]);
        x0 -= x1;
    }
    return (uint64_t)(x0 - keys[0]) << 32 | (x1 - keys[1]);
}

/* Every point can be computed back from its seed, so no two points of a base seed share a seed. */
START_TEST(hashed_seeds_are_invertible)
{
    uint64_t state = 1;
    for (int i = 0; i < 200000; i++) {
        tsr_seed_point point = random_point(&state);
        int64_t seed = 0;
        ck_assert(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &point, &seed) == TSR_OK);
        ck_assert(threefry_inverse((uint64_t)point.base, (uint64_t)seed) == packed(&point));
    }
}
END_TEST

static int compare_seeds(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int compare_keys(const void *a, const void *b)
{
    const tsr_seed_key *x = a, *y = b;
    if (x->seed != y->seed)
        return (x->seed > y->seed) - (x->seed < y->seed);
    return (x->stream > y->stream) - (x->stream < y->stream);
}

/* Small values of all parts, as real jobs have: 1.5 million points of 16 bases. */
START_TEST(hashed_seeds_of_a_grid_do_not_collide)
{
    enum { BASES = 16, KINDS = 4, NODES = 6, DEVICES = 8, WORKERS = 8, EPOCHS = 8, OPS = 8 };
    size_t most = (size_t)BASES * KINDS * NODES * DEVICES * WORKERS * EPOCHS * OPS, count = 0;
    int64_t *seeds = calloc(most, sizeof *seeds);
    tsr_seed_key *keys = calloc(most, sizeof *keys);
    ck_assert(seeds != NULL && keys != NULL);
    for (size_t i = 0; i < most; i++) {
        size_t rest = i;
        tsr_seed_point point = {0};
        point.base = (int64_t)(rest % BASES) - 3;
        rest /= BASES;
        point.kind = (tsr_seed_kind)(rest % KINDS);
        rest /= KINDS;
        point.node = (int)(rest % NODES);
        rest /= NODES;
        point.device = (int)(rest % DEVICES);
        rest /= DEVICES;
        point.worker = (int)(rest % WORKERS);
        rest /= WORKERS;
        point.epoch = (int64_t)(rest % EPOCHS);
        rest /= EPOCHS;
        point.op = (int)(rest % OPS);
        ck_assert(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &point, &seeds[count]) == TSR_OK);
        ck_assert(tsr_seed_derive_key(&point, &keys[count]) == TSR_OK);
        count++;
    }
    qsort(seeds, count, sizeof *seeds, compare_seeds);
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++) {
        ck_assert(seeds[i] != seeds[i - 1]);
        ck_assert(compare_keys(&keys[i], &keys[i - 1]) != 0);
    }
    free(seeds);
    free(keys);
}
END_TEST

/* If one part of a point changes by one, about half of the bits of the seed must change. */
START_TEST(hashed_seeds_depend_on_every_part)
{
    uint64_t state = 5;
    for (int part = 0; part < 7; part++) {
        int bits = 0;
        for (int i = 0; i < 1000; i++) {
            tsr_seed_point a = random_point(&state), b;
            a.kind = TSR_SEED_DEVICE;
            a.node &= ~1;
            a.device &= ~1;
            a.worker &= ~1;
            a.epoch &= ~1;
            a.op &= ~1;
            b = a;
            b.base ^= part == 0;
            b.kind = part == 1 ? TSR_SEED_WORKER : a.kind;
            b.node += part == 2;
            b.device += part == 3;
            b.worker += part == 4;
            b.epoch += part == 5;
            b.op += part == 6;
            int64_t x = 0, y = 0;
            ck_assert_ok(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &a, &x));
            ck_assert_ok(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &b, &y));
            for (uint64_t differ = (uint64_t)x ^ (uint64_t)y; differ != 0; differ &= differ - 1)
                bits++;
        }
        /* The changed bits are 64,000 coin flips. The allowed range is eight standard deviations
         * to each side. */
        ck_assert_int_gt(bits, 31000);
        ck_assert_int_lt(bits, 33000);
    }
}
END_TEST

/* Compares with published known answers for counter 0 and key 0, and with the formula of the
 * header. If this test fails after a change, the seeds of all users would silently change. */
START_TEST(hashed_seeds_never_change)
{
    int64_t seed = 0;
    tsr_seed_key key = {0, 0};
    ck_assert_ok(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &(tsr_seed_point){0}, &seed));
    ck_assert_uint_eq((uint64_t)seed, UINT64_C(0x6b20015999ba4efe));

    tsr_seed_point point = {.base = -7,
                            .kind = TSR_SEED_WORKER,
                            .node = 1,
                            .device = 2,
                            .worker = 3,
                            .epoch = 4,
                            .op = 5};
    uint64_t p = packed(&point), base = (uint64_t)INT64_C(-7);
    uint32_t words[4] = {(uint32_t)p, (uint32_t)(p >> 32), (uint32_t)base, (uint32_t)(base >> 32)};
    tsr__philox4x32(words, (uint32_t[]){0x52524131, 0x54455353}, words);
    ck_assert_ok(tsr_seed_derive_key(&point, &key));
    ck_assert_uint_eq(key.seed, words[0] | (uint64_t)words[1] << 32);
    ck_assert_uint_eq(key.stream, words[2] | (uint64_t)words[3] << 32);
}
END_TEST

START_TEST(hashed_limits)
{
    const struct {
        tsr_seed_point point;
        const char *text;
    } cases[] = {
        {{.node = 16384},
         "seed: node 16384 is outside 0 to 16383, which hashed seeds have room for"},
        {{.device = 256}, "seed: device 256 is outside 0 to 255, which hashed seeds have room for"},
        {{.worker = 1024},
         "seed: worker 1024 is outside 0 to 1023, which hashed seeds have room for"},
        {{.epoch = 1048576},
         "seed: epoch 1048576 is outside 0 to 1048575, which hashed seeds have room for"},
        {{.op = 1024}, "seed: op 1024 is outside 0 to 1023, which hashed seeds have room for"},
        {{.op = -1}, "seed: op -1 is outside 0 to 1023, which hashed seeds have room for"},
        {{.kind = (tsr_seed_kind)4}, "seed: 4 is no kind of seed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t seed = 7;
        tsr_seed_key key = {7, 7};
        ck_assert_error(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &cases[i].point, &seed),
                        TSR_ERR_INVALID, cases[i].text);
        ck_assert_error(tsr_seed_derive_key(&cases[i].point, &key), TSR_ERR_INVALID, cases[i].text);
        ck_assert(seed == 7 && key.seed == 7 && key.stream == 7);
    }
    int64_t seed = 0;
    ck_assert_ok(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED,
                                 &(tsr_seed_point){.base = INT64_MIN,
                                                   .kind = TSR_SEED_OP,
                                                   .node = 16383,
                                                   .device = 255,
                                                   .worker = 1023,
                                                   .epoch = 1048575,
                                                   .op = 1023},
                                 &seed));
    ck_assert_uint_eq(threefry_inverse((uint64_t)INT64_MIN, (uint64_t)seed), UINT64_MAX);
}
END_TEST

TESTS(formulas)
{
    tcase_add_test(tests, kind_names);
    tcase_add_test(tests, unknown_strategy);
    tcase_add_test(tests, documented_formulas);
    tcase_add_test(tests, get_deterministic_seed_is_deterministic);
    tcase_add_test(tests, get_deterministic_seed_is_unique);
    tcase_add_test(tests, get_deterministic_seed_rejects);
    tcase_add_test(tests, documented_rejects_parts_it_does_not_use);
    tcase_add_test(tests, hashed_seeds_are_invertible);
    tcase_add_test(tests, hashed_seeds_of_a_grid_do_not_collide);
    tcase_add_test(tests, hashed_seeds_depend_on_every_part);
    tcase_add_test(tests, hashed_seeds_never_change);
    tcase_add_test(tests, hashed_limits);
}
