/* tsr_matmul with cooperative matrices that all subgroups of a workgroup share, if the driver
 * has usable ones. Tests each kernel on all forms of operands and epilogues, and on incomplete
 * tiles. If the driver has none, the tests print that and only check that products with these
 * kernels are refused. */
#include <stdio.h>

#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/kernels/configs.h"
#include "gpu/matmul/kernels/kernels.h"
#include "gpu/matmul/matmul_case.h"

static bool here;
static tsr_dtype dtype;

static void setup(tsr_dtype of)
{
    gpu_setup();
    dtype = of;
    here = dtype == TSR_F16 ? gpu->info.coopmat2 : gpu->info.coopmat2_bf16;
    if (!here)
        printf("# %s: no cooperative matrices of workgroups for products of %s, so the kernels "
               "only refuse\n",
               gpu->info.name, tsr_dtype_name(dtype));
    fflush(stdout);
}

static void setup_f16(void)
{
    setup(TSR_F16);
}

static void setup_bf16(void)
{
    setup(TSR_BF16);
}

/* Returns the kernel at `index` among those that are tested, or NULL past the last one. */
static const tsr__matmul_config *kernel_at(int index)
{
    const tsr__matmul_config *config;

    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++)
        if (config->family == &tsr__matmul_coopmat2 && index-- == 0)
            return config;
    return NULL;
}

/* Runs a case with a kernel and with k divided into `splits` ranges. If `fits` and the device
 * runs the kernel, the result must be right; if not, the case must be refused. */
static void run_with(gpu_random *random, const tsr__matmul_config *kernel, uint32_t splits,
                     const matmul_case *c, bool fits)
{
    tsr__matmul_device device = tsr__matmul_device_of(gpu);

    force_both(kernel->name, splits);
    tsr_status status = try_case(random, c);
    forced = NULL;
    if (fits && tsr__matmul_coopmat2_runs(kernel, &device, dtype)) {
        ck_assert_msg(status == TSR_OK, "%s: %s: %s", kernel->name, case_text(c), tsr_last_error());
        return;
    }
    char text[128];
    snprintf(text, sizeof text,
             "matmul: the kernel configuration %s cannot compute this product on this device",
             kernel->name);
    ck_assert_msg(status == TSR_ERR_UNSUPPORTED, "%s: %s", kernel->name, case_text(c));
    ck_assert_str_eq(tsr_last_error(), text);
}

/* On a device without such matrices, all kernels refuse for the same reason, so only one is
 * tested. */
static void run_all(gpu_random *random, uint32_t splits, const matmul_case *c, bool fits)
{
    const tsr__matmul_config *kernel;

    for (int i = 0; (kernel = kernel_at(i)) != NULL && (here || i == 0); i++)
        run_with(random, kernel, splits, c, fits);
}

static matmul_case float16_case(int64_t m, int64_t k, int64_t n)
{
    matmul_case c = plain_case(m, k, n);

    c.a = c.b = dtype;
    return c;
}

/* m, k, n: less than a tile; whole tiles; more than one tile in each direction, with a k that is
 * no multiple of the loop's step; a k of several unrolled steps. */
static const int64_t shapes[][3] = {
    {16, 16, 16}, {24, 40, 1000}, {256, 64, 256}, {264, 72, 136}, {136, 712, 264}, {256, 1024, 512},
};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* The loop variable says which of a and b are transposed. */
START_TEST(all_transpositions)
{
    gpu_random random = {(uint64_t)_i + 3};

    for (int i = 0; i < SHAPES; i++) {
        matmul_case c = float16_case(shapes[i][0], shapes[i][1], shapes[i][2]);
        c.transpose_a = _i & 1;
        c.transpose_b = _i & 2;
        c.y = i & 1 ? dtype : TSR_F32;
        run_all(&random, 1, &c, true);
    }
}
END_TEST

/* With a [m,k] and b [n,k], m and n can be odd. The rows of y then start anywhere. */
START_TEST(rows_of_y_start_anywhere)
{
    gpu_random random = {5};

    for (int i = 0; i < 4; i++) {
        matmul_case c = float16_case(131 + i, 72, 77 + i);
        c.transpose_b = true;
        c.y = i & 1 ? dtype : TSR_F32;
        c.accumulate = i & 2;
        run_all(&random, 1, &c, true);
    }
}
END_TEST

START_TEST(batches)
{
    gpu_random random = {7};

    for (int i = 0; i < 4; i++) {
        matmul_case c = float16_case(40, 72, 24);
        c.batch = (batch_shape){3, {2, 3, 2}};
        c.a_batch = (batch_shape){2, {3, 1}};
        c.b_batch = (batch_shape){3, {2, 1, 2}};
        c.transpose_a = i & 1;
        c.transpose_b = i & 2;
        run_all(&random, 1, &c, true);
    }
}
END_TEST

START_TEST(epilogues)
{
    static const tsr_dtype biases[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {11};

    for (int act = TSR_ACT_NONE; act <= TSR_ACT_SILU; act++)
        for (int i = 0; i < 3; i++) {
            matmul_case c = float16_case(48, 56, 72);
            c.activation = (tsr_activation)act;
            c.y = i & 1 ? TSR_F32 : dtype;
            c.alpha = i & 1 ? -0.5f : 0;
            c.accumulate = (i + act) & 1;
            c.bias = biases[(i + act) % 3];
            c.bias_shape = i & 2 ? (batch_shape){2, {48, 1}} : (batch_shape){1, {72}};
            c.transpose_b = i == 1;
            run_all(&random, 1, &c, true);
        }
}
END_TEST

START_TEST(split_k)
{
    gpu_random random = {13};

    for (uint32_t splits = 2; splits <= 5; splits++) {
        matmul_case c = float16_case(40, 904, 56);
        c.transpose_b = splits & 1;
        c.transpose_a = splits & 2;
        c.bias = TSR_F32;
        c.bias_shape = (batch_shape){1, {56}};
        c.batch = splits % 3 ? (batch_shape){0} : (batch_shape){1, {2}};
        c.a_batch = c.b_batch = c.batch;
        run_all(&random, splits, &c, true);
    }
}
END_TEST

/* Rows that are not aligned, empty products, and other dtypes are refused. */
START_TEST(refused_forms)
{
    gpu_random random = {17};
    matmul_case c = float16_case(64, 63, 64); /* rows of a are not aligned */
    run_all(&random, 1, &c, false);
    c = float16_case(64, 64, 63); /* rows of b are not aligned */
    run_all(&random, 1, &c, false);
    c = float16_case(63, 64, 64);
    c.transpose_a = true;
    run_all(&random, 1, &c, false);
    c = float16_case(64, 0, 64);
    run_all(&random, 1, &c, false);
    c = float16_case(64, 64, 64);
    c.a = TSR_F32;
    run_all(&random, 1, &c, false);
    c = float16_case(64, 64, 64);
    c.y = dtype == TSR_F16 ? TSR_BF16 : TSR_F16;
    run_all(&random, 1, &c, false);
}
END_TEST

static void add_all(TCase *tests)
{
    tcase_add_loop_test(tests, all_transpositions, 0, 4);
    tcase_add_test(tests, rows_of_y_start_anywhere);
    tcase_add_test(tests, batches);
    tcase_add_test(tests, epilogues);
    tcase_add_test(tests, split_k);
    tcase_add_test(tests, refused_forms);
}

TESTS(coopmat2_f16)
{
    tcase_add_checked_fixture(tests, setup_f16, gpu_teardown);
    add_all(tests);
}

TESTS(coopmat2_bf16)
{
    tcase_add_checked_fixture(tests, setup_bf16, gpu_teardown);
    add_all(tests);
}
