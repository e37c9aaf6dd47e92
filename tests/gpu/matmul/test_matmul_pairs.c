/* Products of f16 with pairs of elements in shared memory (matmul_pairs.comp, matmul_dot2.comp):
 * which devices use these kernels, and their results with every way of loading operands. */
#include <stdio.h>

#include "gpu/matmul/chip_tiles.h"
#include "gpu/matmul/matmul_case.h"
#include "gpu/matmul/matmul_force.h"
#include "shaders/params/matmul.h"

/* The choice of a kernel ----------------------------------------------------------------------- */

static tsr__matmul_device device_with_dot2(void)
{
    return (tsr__matmul_device){.traits = tsr__traits_of(TSR__CLASS_GPU),
                                .vendor_id = TSR__VENDOR_AMD,
                                .max_invocations = 1024,
                                .max_shared_bytes = 65536,
                                .subgroup_size = 64,
                                .subgroup_size_min = 32,
                                .int64 = true,
                                .dot2 = true,
                                .max_subgroups = 16};
}

/* Returns the plan for x·wᵀ with contiguous rows. */
static tsr__matmul_plan choose(const tsr__matmul_device *device, tsr_dtype a, tsr_dtype b,
                               int64_t m, int64_t k, int64_t n)
{
    tsr_layout la, lb, ly;
    tsr__matmul_problem problem;
    tsr__matmul_plan plan;

    ck_assert_ok(tsr_layout_init(a, 2, (int64_t[]){m, k}, &la));
    ck_assert_ok(tsr_layout_init(b, 2, (int64_t[]){n, k}, &lb));
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){m, n}, &ly));
    ck_assert_ok(tsr__matmul_problem_init(&ly, &la, &lb, NULL,
                                          tsr_matmul_params(.transpose_b = true), &problem));
    ck_assert_ok(tsr__matmul_choose(device, NULL, &problem, NULL, &plan));
    return plan;
}

static const char *chosen(const tsr__matmul_device *device, int64_t m, int64_t k, int64_t n)
{
    return choose(device, TSR_F16, TSR_F16, m, k, n).config->name;
}

START_TEST(devices_with_the_instruction_use_pairs)
{
    tsr__matmul_device device = device_with_dot2();

    ck_assert_str_eq(chosen(&device, 4096, 4096, 4096), "pairs-l");
    ck_assert_uint_eq(choose(&device, TSR_F16, TSR_F16, 4096, 4096, 4096).variant.dot2, 1);
    ck_assert_str_eq(chosen(&device, 768, 768, 768), "pairs-m8");
    ck_assert_str_eq(chosen(&device, 4095, 4095, 4095), "pairs-m");
    ck_assert_str_eq(chosen(&device, 48, 48, 48), "pairs-s");
    ck_assert_str_eq(chosen(&device, 1, 4096, 4096), "vector-k");
    device.subgroup_size_min = 64; /* GCN */
    ck_assert_str_eq(chosen(&device, 4096, 4096, 4096), "pairs-m8");
    device.vendor_id = 0x8086;
    ck_assert_str_eq(chosen(&device, 4096, 4096, 4096), "pairs-m8");
}
END_TEST

START_TEST(cooperative_matrices_come_first)
{
    tsr__matmul_device device = device_with_dot2();

    device.coopmat = (tsr_coopmat_shape){.m = 16, .n = 16, .k = 16};
    device.coopmat_subgroup_size = 32;
    ck_assert_str_eq(chosen(&device, 4096, 4096, 4096), "coopmat-l");
    ck_assert_str_eq(chosen(&device, 31, 32, 32), "pairs-s");
}
END_TEST

START_TEST(other_products_do_not_use_pairs)
{
    tsr__matmul_device device = device_with_dot2();

    ck_assert_str_eq(choose(&device, TSR_F32, TSR_F16, 4096, 4096, 4096).config->name, "tiled-l");
    ck_assert_str_eq(choose(&device, TSR_F16, TSR_F32, 4096, 4096, 4096).config->name, "tiled-l");
    ck_assert_str_eq(choose(&device, TSR_BF16, TSR_BF16, 4096, 4096, 4096).config->name, "tiled-l");
    device.dot2 = false;
    ck_assert_str_eq(chosen(&device, 4096, 4096, 4096), "tiled-l");
}
END_TEST

static uint32_t width_of(uint32_t load)
{
    return load == TSR_MM_LOAD_SCALAR                                    ? 1
           : load == TSR_MM_LOAD_VEC8_K || load == TSR_MM_LOAD_VEC8_LINE ? 8
                                                                         : 4;
}

/* Checks the loads of matmul_pairs_fetch.glsl: a thread makes one load along k, or two loads
 * across it, and all threads together load whole tiles. */
static void check_side(uint32_t lines, uint32_t bk, uint32_t threads, uint32_t load)
{
    bool along_k = load == TSR_MM_LOAD_VEC_K || load == TSR_MM_LOAD_VEC8_K;
    uint32_t piece = width_of(load) * (along_k ? 1 : 2);

    ck_assert_uint_eq(lines * bk % (threads * piece), 0);
    ck_assert_uint_gt(lines * bk / (threads * piece), 0);
}

static void check_variant(void *user, const tsr__matmul_config *config,
                          const tsr__matmul_variant *variant)
{
    int *variants = user;

    check_side(config->bm, config->bk, config->threads, variant->a_load);
    check_side(config->bn, config->bk, config->threads, variant->b_load);
    ck_assert_int_eq(variant->a_dtype, TSR_F16);
    ck_assert_int_eq(variant->b_dtype, TSR_F16);
    (*variants)++;
}

START_TEST(loads_cover_the_tiles)
{
    static const char *const configs[] = {"pairs-l", "pairs-m8", "pairs-m", "pairs-s"};
    const tsr__matmul_device device = device_with_dot2();

    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        int variants = 0;
        tsr__matmul_each_variant(tsr__matmul_config_named(configs[i]), &device, check_variant,
                                 &variants);
        ck_assert_int_ge(variants, 9);
    }
}
END_TEST

/* Results -------------------------------------------------------------------------------------- */

static matmul_case f16_case(int64_t m, int64_t k, int64_t n)
{
    matmul_case c = plain_case(m, k, n);

    c.a = c.b = TSR_F16;
    return c;
}

/* Returns whether the driver can run these kernels: GPUs need the instruction for dot products
 * of two f16. Without it all cases must be refused, and the test counts as skipped. */
static bool applies(void)
{
    return gpu->traits.device_class != TSR__CLASS_GPU || gpu->dot2;
}

static void check_refusal(tsr_status status)
{
    char text[128];

    snprintf(text, sizeof text,
             "matmul: the kernel configuration %s cannot compute this product on this device",
             forced->config->name);
    ck_assert_int_eq(status, TSR_ERR_UNSUPPORTED);
    ck_assert_str_eq(tsr_last_error(), text);
    tests_skip("this GPU has no instruction that adds two products of f16");
}

/* Runs a case with the forced kernel, or checks that it is refused. */
static void run_forced(gpu_random *random, const matmul_case *c)
{
    if (applies())
        run_case(random, c);
    else
        check_refusal(try_case(random, c));
}

/* m, k, n: multiples of 8, of 4 and odd sizes; a k of whole steps of the kernel's loop, of whole
 * steps and a remainder, and of one element. */
static const int64_t shapes[][3] = {{40, 64, 72}, {36, 100, 44}, {33, 65, 35}, {5, 1, 3}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* The loop variable says which of a and b are transposed, which decides how they are loaded. */
START_TEST(every_load)
{
    gpu_random random = {(uint64_t)_i + 3};

    force("pairs-s");
    for (int i = 0; i < SHAPES; i++) {
        matmul_case c = f16_case(shapes[i][0], shapes[i][1], shapes[i][2]);
        c.transpose_a = _i & 1;
        c.transpose_b = _i & 2;
        c.views = i % 2;
        c.pitched = i == 2;
        run_forced(&random, &c);
    }
    forced = NULL;
}
END_TEST

START_TEST(larger_tiles)
{
    static const char *const configs[] = {"pairs-m", "pairs-m8", "pairs-l"};
    gpu_random random = {5};
    matmul_case c = f16_case(137, 40, 136);

    force(configs[_i]);
    c.y = TSR_F16;
    c.transpose_b = _i & 1;
    run_forced(&random, &c);
    forced = NULL;
}
END_TEST

START_TEST(epilogues_splits_and_batches)
{
    gpu_random random = {7};
    matmul_case c = f16_case(35, 600, 40);

    c.y = TSR_F16;
    c.bias = TSR_F32;
    c.bias_shape = (batch_shape){1, {40}};
    c.alpha = -0.5f;
    c.accumulate = true;
    c.activation = TSR_ACT_SILU;
    c.transpose_b = true;
    force("pairs-s");
    run_forced(&random, &c);
    c.batch = c.a_batch = (batch_shape){2, {2, 3}};
    force_both("pairs-s", 2);
    run_forced(&random, &c);
    forced = NULL;
}
END_TEST

/* The product of two f16 is exact in f32, even for the largest and the smallest values. */
START_TEST(products_are_exact)
{
    const float a_values[] = {65504, 0x1p-14f, 0x1.ffcp0f, -3};
    const float b_values[] = {65504, 0x1p-14f, 0x1.ffcp0f, 5};
    const int64_t one[] = {1, 1};
    tsr_tensor *y = gpu_new(TSR_F32, 2, one), *a = gpu_new(TSR_F16, 2, one);
    tsr_tensor *b = gpu_new(TSR_F16, 2, one);

    force("pairs-s");
    for (int i = 0; i < 4; i++) {
        float product;
        GPU_OK(tsr_fill(queue, a, (double)a_values[i]));
        GPU_OK(tsr_fill(queue, b, (double)b_values[i]));
        const tsr_status status = forced_matmul(queue, y, a, b, NULL);
        if (!applies()) {
            check_refusal(status);
            continue;
        }
        GPU_OK(status);
        GPU_OK(tsr_tensor_download(queue, y, &product, sizeof product));
        ck_assert_float_eq(product, a_values[i] * b_values[i]);
    }
    forced = NULL;
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
}
END_TEST

START_TEST(other_dtypes_are_refused)
{
    gpu_random random = {11};
    matmul_case c = f16_case(8, 8, 8);

    force("pairs-s");
    c.b = TSR_F32;
    ck_assert_int_eq(try_case(&random, &c), TSR_ERR_UNSUPPORTED);
    c.a = c.b = TSR_BF16;
    ck_assert_int_eq(try_case(&random, &c), TSR_ERR_UNSUPPORTED);
    forced = NULL;
}
END_TEST

TESTS(matmul_pairs)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, devices_with_the_instruction_use_pairs);
    tcase_add_test(tests, cooperative_matrices_come_first);
    tcase_add_test(tests, other_products_do_not_use_pairs);
    tcase_add_test(tests, loads_cover_the_tiles);
    tcase_add_loop_test(tests, every_load, 0, 1);
    tcase_add_test(tests, epilogues_splits_and_batches);
    tcase_add_test(tests, products_are_exact);
    tcase_add_test(tests, other_dtypes_are_refused);
}

TESTS(matmul_pairs_long)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, every_load, 1, 4);
    tcase_add_loop_test(tests, larger_tiles, 0, 1);
}

/* Larger tiles, which take long to compile. */
TESTS(matmul_pairs_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, larger_tiles, 1, 3);
}

/* On NVIDIA's GPUs, kernels of f32 load the next tiles ahead with a loop over k, unless elements
 * are loaded one by one. */
START_TEST(loads_ahead_in_a_loop)
{
    static const char *const names[] = {"tiled-m", "tiled-s"};
    const uint32_t vendor = gpu->info.vendor_id;
    gpu_random random = {93};

    gpu->info.vendor_id = TSR__VENDOR_NVIDIA;
    const tsr__matmul_device device = tsr__matmul_device_of(gpu);
    ck_assert_uint_eq(choose(&device, TSR_F32, TSR_F32, 64, 100, 64).variant.ahead,
                      TSR__LOADS_AHEAD);
    ck_assert_uint_eq(choose(&device, TSR_F32, TSR_F32, 64, 101, 64).variant.ahead,
                      TSR__LOADS_WAIT);
    for (int i = 0; i < 4; i++) {
        matmul_case c = i < 2 ? plain_case(75, 99, 67) : plain_case(76, 32, 68);
        c.pitched = i < 2;
        c.transpose_a = i == 2;
        c.transpose_b = i % 2;
        force(names[i % 2]);
        run_case(&random, &c);
    }
    forced = NULL;
    gpu->info.vendor_id = vendor;
}
END_TEST

/* Makes a CPU driver look like a GPU without the instruction, so that the kernels are refused. */
TESTS(matmul_pairs_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_test(tests, loads_ahead_in_a_loop);
    tcase_add_loop_test(tests, every_load, 3, 4);
    tcase_add_test(tests, products_are_exact);
}
