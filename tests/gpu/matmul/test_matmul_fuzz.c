/* tsr_matmul on 80 random problems, with random shapes, views, dtypes and epilogues and sometimes
 * a kernel that the library would not choose. TESSERA_TEST_PROBLEMS=120 gives ten times as many. */
#include <stdio.h>

#include "gpu/matmul/matmul_case.h"

#define PARTS 4

/* Returns the number of problems in each part. Creating pipelines takes most of the time, so
 * there are few. */
static int cases_per_part(void)
{
    const char *wish = getenv("TESSERA_TEST_PROBLEMS");
    int cases = wish ? atoi(wish) : 12;

    ck_assert_msg(cases > 2, "TESSERA_TEST_PROBLEMS is '%s'; a number of at least 3 is needed",
                  wish);
    return cases;
}

static bool chance(gpu_random *random, int of)
{
    return gpu_random_between(random, 1, of) == 1;
}

static tsr_dtype any_float(gpu_random *random)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};

    return dtypes[gpu_random_between(random, 0, 2)];
}

/* Returns a size. It is usually small, and often a multiple of four, because such sizes use other
 * code. */
static int64_t any_size(gpu_random *random)
{
    switch (gpu_random_between(random, 0, 7)) {
    case 0:
        return gpu_random_between(random, 0, 2);
    case 1:
    case 2:
        return 4 * gpu_random_between(random, 1, 20);
    case 3:
        return gpu_random_between(random, 30, 140);
    default:
        return gpu_random_between(random, 1, 36);
    }
}

/* Returns a shape that broadcasts to `to`: some of its last dimensions, each with its size or 1. */
static batch_shape broadcastable(gpu_random *random, const batch_shape *to)
{
    batch_shape shape = {.ndim = (int)gpu_random_between(random, 0, to->ndim)};

    if (chance(random, 2))
        shape.ndim = to->ndim;
    for (int i = 0; i < shape.ndim; i++)
        shape.size[i] = chance(random, 3) ? 1 : to->size[to->ndim - shape.ndim + i];
    return shape;
}

static matmul_case any_case(gpu_random *random)
{
    matmul_case c = {.m = any_size(random), .n = any_size(random), .k = any_size(random)};

    if (chance(random, 40))
        c.k = gpu_random_between(random, 500, 3000);
    if (c.m * c.n * c.k < 100000 && chance(random, 3)) {
        c.batch.ndim = (int)gpu_random_between(random, 1, chance(random, 6) ? 6 : 2);
        for (int i = 0; i < c.batch.ndim; i++)
            c.batch.size[i] = chance(random, 30) ? 0 : gpu_random_between(random, 1, 3);
    }
    c.a_batch = broadcastable(random, &c.batch);
    c.b_batch = broadcastable(random, &c.batch);
    c.a = c.b = TSR_F32;
    /* Each combination of dtypes needs a pipeline, so only some are used. The directed tests use
     * all of them. */
    if (chance(random, 4))
        c.a = c.b = any_float(random);
    else if (chance(random, 6))
        c.b = TSR_F16;
    c.y = chance(random, 2) ? TSR_F32 : any_float(random);
    c.transpose_a = chance(random, 2);
    c.transpose_b = chance(random, 2);
    c.views = chance(random, 2);
    c.alpha = chance(random, 2) ? 0 : (float)(2 * gpu_random_unit(random));
    if (c.alpha == 0 && chance(random, 20))
        c.alpha = TSR_ZERO;
    c.accumulate = chance(random, 3);
    c.activation =
        chance(random, 2) ? TSR_ACT_NONE : (tsr_activation)gpu_random_between(random, 1, 4);
    if (chance(random, 2)) {
        batch_shape y = with_matrix(c.batch, c.m, c.n);
        c.bias = any_float(random);
        c.bias_shape = broadcastable(random, &y);
    }
    return c;
}

/* Sometimes forces a kernel that runs on this device but that the library would not choose. */
static void force_something(gpu_random *random, const tsr__matmul_device *device)
{
    const tsr__matmul_config *configs[32];
    int count = 0;

    for (int i = 0; tsr__matmul_config_at(i); i++) {
        const tsr__matmul_config *config = tsr__matmul_config_at(i);
        /* The larger tiles have the same code as the small one and are slow to compile on CPU
         * drivers. */
        if (tsr__matmul_config_runs(config, device) && (config->bm <= 32 || chance(random, 20)))
            configs[count++] = config;
    }
    override = (tsr__matmul_override){0};
    if (chance(random, 2))
        override.config = configs[gpu_random_between(random, 0, count - 1)];
    if (chance(random, 5))
        override.splits = (uint32_t)gpu_random_between(random, 2, 5);
    forced = &override;
}

static void fuzz(uint64_t seed, int cases)
{
    gpu_random random = {seed};
    tsr__matmul_device device = tsr__matmul_device_of(gpu);
    bool host_copies = gpu->host_copies;
    int by_choice = 0;

    for (int i = 0; i < cases; i++) {
        matmul_case c = any_case(&random);
        gpu_random same = random;
        /* In every other case, lets the host's CPUs copy operands that must be packed. */
        gpu->host_copies = host_copies && i % 2;
        force_something(&random, &device);
        if (override.config && try_case(&same, &c) == TSR_OK) {
            by_choice++;
            continue;
        }
        override.config = NULL; /* the forced kernel cannot compute this case */
        run_case(&same, &c);
    }
    forced = NULL;
    ck_assert_int_gt(by_choice, cases / 20);
}

START_TEST(random_problems)
{
    fuzz((uint64_t)_i + 1, cases_per_part());
}
END_TEST

/* If the device has no cooperative matrices, the kernels that use them refuse all products but
 * empty ones, which need no kernel. */
START_TEST(random_problems_with_cooperative_matrices)
{
    gpu_random random = {200};
    tsr__matmul_device device = tsr__matmul_device_of(gpu);
    tsr_dtype dtype = _i ? TSR_BF16 : TSR_F16;
    bool here = (_i ? device.coopmat_bf16 : device.coopmat).m > 0;

    for (int i = 0; i < (here ? 300 : 30); i++) {
        matmul_case c = any_case(&random);
        c.a = c.b = dtype;
        const char *name = chance(&random, 8) ? "coopmat-l" : "coopmat-s";
        force_both(name, chance(&random, 5) ? (uint32_t)gpu_random_between(&random, 2, 5) : 0);
        tsr_status status = try_case(&random, &c);
        forced = NULL;
        bool empty = c.m * c.n * count_of(&c.batch) == 0;
        if (status != (here || empty ? TSR_OK : TSR_ERR_UNSUPPORTED))
            ck_abort_msg("%s: %s: %s", name, case_text(&c),
                         status == TSR_OK ? "no error" : tsr_last_error());
    }
}
END_TEST

START_TEST(random_problems_with_packed_words)
{
    fuzz(100, cases_per_part() / 3);
}
END_TEST

TESTS(matmul_fuzz)
{
    tcase_set_timeout(tests, 600);
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, random_problems, 0, PARTS);
    tcase_add_loop_test(tests, random_problems_with_cooperative_matrices, 0, 2);
}

TESTS(matmul_fuzz_packed)
{
    tcase_set_timeout(tests, 600);
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, random_problems_with_packed_words);
}
