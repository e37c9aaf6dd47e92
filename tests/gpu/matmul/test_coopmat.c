/* tsr_matmul with cooperative matrices, if the driver has usable ones. Tests each kernel on
 * shapes at its limits, with all kinds of operands and epilogues. If the driver has none, the
 * tests print that and only check that products with these kernels are refused. */
#include <stdio.h>

#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/kernels/configs.h"
#include "gpu/matmul/kernels/kernels.h"
#include "gpu/matmul/matmul_case.h"

static const char *const kernels[] = {"coopmat-s", "coopmat-l",  "coopmat-xl", "coopmat-l64",
                                      "coopmat-m", "coopmat-32", "coopmat-16"};
#define KERNELS ((int)(sizeof kernels / sizeof *kernels))

static bool here;
static tsr_dtype dtype;

static void setup(tsr_dtype of)
{
    gpu_setup();
    dtype = of;
    here = (dtype == TSR_F16 ? gpu->info.coopmat_used : gpu->info.coopmat_bf16_used) >= 0;
    if (!here)
        printf("# %s: no cooperative matrices for products of %s, so the kernels only refuse\n",
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

/* Returns whether the device can run kernel `i`. Its shared memory may be too small for some
 * kernels. */
static bool runs(int i)
{
    tsr__matmul_device device = tsr__matmul_device_of(gpu);
    const tsr__matmul_config *config = tsr__matmul_config_named(kernels[i]);

    return here && tsr__matmul_fragment_for(config, &device, dtype).m > 0;
}

/* Returns whether case `number` of a test is run with kernel `i`. Lavapipe takes more than a second
 * to compile a kernel, and each case needs another variant of it, so there each case is run with
 * one kernel, in turn. */
static bool takes_part(int i, int number)
{
    return !here || strstr(gpu->info.name, "llvmpipe") == NULL || number % KERNELS == i;
}

/* Runs a case with kernel `i` and with k divided into `splits` ranges, whose sums are added up. */
static void run_with(gpu_random *random, int i, uint32_t splits, const matmul_case *c)
{
    force_both(kernels[i], splits);
    tsr_status status = try_case(random, c);
    forced = NULL;
    if (runs(i) && status != TSR_OK)
        ck_abort_msg("%s: %s: %s", kernels[i], case_text(c), tsr_last_error());
    if (!runs(i)) {
        char text[128];
        snprintf(text, sizeof text,
                 "matmul: the kernel configuration %s cannot compute this product on this device",
                 kernels[i]);
        ck_assert_int_eq(status, TSR_ERR_UNSUPPORTED);
        ck_assert_str_eq(tsr_last_error(), text);
    }
}

static matmul_case float16_case(int64_t m, int64_t k, int64_t n)
{
    matmul_case c = plain_case(m, k, n);

    c.a = c.b = dtype;
    return c;
}

/* m, k, n: one element; odd sizes; a fragment (a matrix of one instruction); a tile of both
 * kernels, and one more element; one size that is no multiple of 4; several tiles in both
 * directions; k of several steps and a remainder. */
static const int64_t shapes[][3] = {
    {1, 1, 1},    {3, 5, 7},     {8, 8, 8},     {64, 32, 64},   {65, 33, 63},
    {64, 36, 62}, {66, 64, 128}, {129, 96, 68}, {130, 70, 260}, {32, 1000, 40},
};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* The loop variable says which of a and b are transposed. That decides whether each is loaded
 * along k or across it, as vectors if sizes and strides allow. */
START_TEST(all_transpositions)
{
    gpu_random random = {(uint64_t)_i + 3};

    for (int i = 0; i < SHAPES; i++)
        for (int kernel = 0; kernel < KERNELS; kernel++) {
            matmul_case c = float16_case(shapes[i][0], shapes[i][1], shapes[i][2]);
            c.transpose_a = _i & 1;
            c.transpose_b = _i & 2;
            c.pitched = i == 4 || i == 8;
            if (takes_part(kernel, _i * SHAPES + i))
                run_with(&random, kernel, 1, &c);
        }
}
END_TEST

START_TEST(views_and_batches)
{
    gpu_random random = {5};

    for (int i = 0; i < 6; i++)
        for (int kernel = 0; kernel < KERNELS; kernel++) {
            matmul_case c = float16_case(33 + i, 40 + 3 * i, 35);
            c.views = true;
            c.batch = (batch_shape){3, {2, 3, 2}};
            c.a_batch = (batch_shape){2, {3, 1}};
            c.b_batch = (batch_shape){3, {2, 1, 2}};
            c.transpose_b = i & 1;
            if (takes_part(kernel, i))
                run_with(&random, kernel, 1, &c);
        }
}
END_TEST

START_TEST(epilogues)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {7};

    for (int act = TSR_ACT_NONE; act <= TSR_ACT_SILU; act++)
        for (int i = 0; i < 3; i++)
            for (int kernel = 0; kernel < KERNELS; kernel++) {
                matmul_case c = float16_case(45, 50, 70);
                c.activation = (tsr_activation)act;
                c.y = dtypes[i];
                c.alpha = i & 1 ? -0.5f : 0;
                c.accumulate = (i + act) & 1;
                c.bias = dtypes[(i + act) % 3];
                c.bias_shape = i & 2 ? (batch_shape){2, {45, 1}} : (batch_shape){1, {70}};
                c.transpose_b = i == 1;
                c.views = i == 2;
                if (takes_part(kernel, 3 * (int)act + i))
                    run_with(&random, kernel, 1, &c);
            }
}
END_TEST

START_TEST(split_k)
{
    gpu_random random = {11};

    for (uint32_t splits = 2; splits <= 5; splits++)
        for (int kernel = 0; kernel < KERNELS; kernel++) {
            matmul_case c = float16_case(40, 900 + splits, 50);
            c.transpose_b = splits & 1;
            c.transpose_a = splits & 2;
            c.bias = TSR_F32;
            c.bias_shape = (batch_shape){1, {50}};
            c.batch = splits % 3 ? (batch_shape){0} : (batch_shape){1, {2}};
            c.a_batch = c.b_batch = c.batch;
            if (takes_part(kernel, (int)splits))
                run_with(&random, kernel, splits, &c);
        }
}
END_TEST

START_TEST(k_or_factor_of_zero)
{
    gpu_random random = {13};

    for (int kernel = 0; kernel < KERNELS; kernel++) {
        matmul_case c = float16_case(70, 0, 90);
        c.bias = TSR_F16;
        c.bias_shape = (batch_shape){1, {90}};
        run_with(&random, kernel, 1, &c);
        c.k = 5;
        c.alpha = TSR_ZERO;
        c.accumulate = true;
        run_with(&random, kernel, 1, &c);
    }
}
END_TEST

/* With integers, sums are exact in any order: each product is at most 64, and each sum at most
 * 64·k. */
START_TEST(integers_are_exact)
{
    enum { M = 150, K = 500, N = 140 };
    const int64_t a_shape[2] = {M, K}, b_shape[2] = {K, N}, y_shape[2] = {M, N};
    gpu_random random = {17};
    double *x = malloc(M * K * sizeof *x), *w = malloc(K * N * sizeof *w);
    double *got = malloc(M * N * sizeof *got);
    tsr_tensor *a = gpu_new(dtype, 2, a_shape), *b = gpu_new(dtype, 2, b_shape);
    tsr_tensor *y = gpu_new(TSR_F32, 2, y_shape);

    for (int i = 0; i < M * K; i++)
        x[i] = (double)gpu_random_between(&random, -8, 8);
    for (int i = 0; i < K * N; i++)
        w[i] = (double)gpu_random_between(&random, -8, 8);
    gpu_put(a, x);
    gpu_put(b, w);
    for (int kernel = 0; kernel < KERNELS; kernel++)
        for (uint32_t splits = 1; runs(kernel) && splits < 4; splits++) {
            if (!takes_part(kernel, kernel + (int)splits - 1 - kernel % 3))
                continue;
            force_both(kernels[kernel], splits);
            gpu_poison(y);
            GPU_OK(forced_matmul(queue, y, a, b, NULL));
            forced = NULL;
            gpu_get(y, got);
            for (int row = 0; row < M; row++)
                for (int col = 0; col < N; col++) {
                    double sum = 0;
                    for (int k = 0; k < K; k++)
                        sum += x[row * K + k] * w[k * N + col];
                    ck_assert(got[row * N + col] == sum);
                }
        }
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
    free(x);
    free(w);
    free(got);
}
END_TEST

/* Infinities and NaN in one row must not change other rows. Values outside the operands must
 * have no effect either: the operands are the upper left parts of larger tensors full of NaN. */
START_TEST(special_values_do_not_spread)
{
    enum { SIZE = 70, AROUND = 80 };
    const int64_t around[2] = {AROUND, AROUND}, shape[2] = {SIZE, SIZE};
    double *x = malloc(SIZE * SIZE * sizeof *x), *one = malloc(SIZE * SIZE * sizeof *one);
    double *got = malloc(SIZE * SIZE * sizeof *got);

    for (int i = 0; i < SIZE * SIZE; i++)
        x[i] = one[i] = 1;
    x[(SIZE - 1) * SIZE + SIZE - 1] = INFINITY;
    x[SIZE + 3] = NAN;
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        if (!runs(kernel))
            continue;
        tsr_tensor *outer[2], *inner[2], *y = gpu_new(TSR_F32, 2, shape);
        for (int i = 0; i < 2; i++) {
            outer[i] = gpu_new(dtype, 2, around);
            gpu_poison(outer[i]);
            tsr_tensor *rows;
            GPU_OK(tsr_tensor_slice(outer[i], 0, 0, SIZE, 1, &rows));
            GPU_OK(tsr_tensor_slice(rows, 1, 0, SIZE, 1, &inner[i]));
            tsr_tensor_destroy(&rows);
            gpu_put(inner[i], i ? one : x);
        }
        force(kernels[kernel]);
        GPU_OK(forced_matmul(queue, y, inner[0], inner[1], NULL));
        forced = NULL;
        gpu_get(y, got);
        for (int row = 0; row < SIZE; row++)
            for (int col = 0; col < SIZE; col++) {
                double value = got[row * SIZE + col];
                ck_assert(row == 1 ? isnan(value) : row == SIZE - 1 ? isinf(value) : value == SIZE);
            }
        for (int i = 0; i < 2; i++) {
            tsr_tensor_destroy(&inner[i]);
            tsr_tensor_destroy(&outer[i]);
        }
        tsr_tensor_destroy(&y);
    }
    free(x);
    free(one);
    free(got);
}
END_TEST

static void add_all(TCase *tests)
{
    tcase_add_loop_test(tests, all_transpositions, 0, 4);
    tcase_add_test(tests, views_and_batches);
    tcase_add_test(tests, epilogues);
    tcase_add_test(tests, split_k);
    tcase_add_test(tests, k_or_factor_of_zero);
    tcase_add_test(tests, integers_are_exact);
    tcase_add_test(tests, special_values_do_not_spread);
}

TESTS(coopmat_f16)
{
    tcase_add_checked_fixture(tests, setup_f16, gpu_teardown);
    add_all(tests);
}

TESTS(coopmat_bf16)
{
    tcase_add_checked_fixture(tests, setup_bf16, gpu_teardown);
    add_all(tests);
}

static void setup_packed(void)
{
    gpu_setup_packed();
    dtype = TSR_F16;
    here = false;
}

/* The kernels need 16-bit storage and are not used without it. */
START_TEST(unsupported_with_packed_words)
{
    gpu_random random = {19};
    matmul_case c = float16_case(64, 64, 64);

    run_with(&random, 0, 1, &c);
    run_case(&random, &c);
}
END_TEST

TESTS(coopmat_packed)
{
    tcase_add_checked_fixture(tests, setup_packed, gpu_teardown);
    tcase_add_test(tests, unsupported_with_packed_words);
}
