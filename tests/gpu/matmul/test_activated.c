/* Products that also compute the derivative of their activation, products whose elements are each
 * multiplied by a factor, and products that add another matrix besides the bias. Compares them with
 * double precision, and bit by bit with the same operations in several calls. */
#include "gpu/internal.h"

#include <math.h>
#include <stdlib.h>

#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/device/coopmat.h"
#include "gpu/device/device.h"
#include "support/check_main.h"
#include "support/gpu.h"
#include "tessera/ops.h"

typedef struct shape {
    int64_t m, n, k;
    int64_t times_k; /* k in the tests of products with factors */
    int64_t padding; /* unused elements after the rows of y and the second result */
    bool bias;
    bool suits; /* lavapipe has a kernel for this shape */
} shape;

/* Each length of k needs a pipeline, both for the fused product and for the same operations in
 * several calls. So both kinds of products use only a few of the lengths for which lavapipe has
 * fused kernels: the first, the last, and some between them. */
static const shape shapes[] = {
    {.m = 49, .n = 64, .k = 32, .times_k = 64, .suits = true},
    {.m = 96, .n = 128, .k = 128, .times_k = 96, .bias = true, .suits = true},
    {.m = 50, .n = 81, .k = 32, .times_k = 64, .padding = 3, .bias = true, .suits = true},
    {.m = 130, .n = 68, .k = 32, .times_k = 64, .padding = 4, .suits = true},
    {.m = 49, .n = 64, .k = 33, .times_k = 33},
    {.m = 3, .n = 64, .k = 32, .times_k = 32},
    {.m = 64, .n = 64, .k = 256, .times_k = 256, .bias = true},
};

static double *numbers(int64_t count)
{
    double *memory = calloc((size_t)count + 1, sizeof *memory);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static tsr_tensor *filled_as(tsr_dtype dtype, gpu_random *random, int ndim, int64_t rows,
                             int64_t columns, double **values)
{
    const int64_t count = ndim == 2 ? rows * columns : rows;
    tsr_tensor *made = gpu_new(dtype, ndim, (int64_t[]){rows, columns});
    *values = numbers(count);
    for (int64_t i = 0; i < count; i++)
        (*values)[i] = gpu_rounded(gpu_random_unit(random), dtype);
    gpu_put(made, *values);
    return made;
}

static tsr_tensor *filled(gpu_random *random, int ndim, int64_t rows, int64_t columns,
                          double **values)
{
    return filled_as(TSR_F32, random, ndim, rows, columns, values);
}

/* Makes a tensor [m,n] whose rows are followed by unused elements. */
static tsr_tensor *result(const shape *s, tsr_tensor **whole)
{
    tsr_tensor *view;
    *whole = gpu_new(TSR_F32, 2, (int64_t[]){s->m, s->n + s->padding});
    GPU_OK(tsr_tensor_slice(*whole, 1, 0, s->n, 1, &view));
    gpu_poison(view);
    return view;
}

/* Computes GELU in its exact form, and its derivative. */
static double gelu(double x, double *slope)
{
    static const double pi = 3.14159265358979323846;
    const double cdf = erfc(-x / sqrt(2)) / 2;
    *slope = cdf + x * exp(-x * x / 2) / sqrt(2 * pi);
    return x * cdf;
}

static void expect_near(const shape *s, const char *what, int64_t at, double is, double want)
{
    ck_assert_msg(fabs(is - want) <= 2e-6 * (fabs(want) + sqrt((double)s->k)),
                  "[%lld,%lld,%lld]: %s at %lld is %.9g, not %.9g", (long long)s->m,
                  (long long)s->n, (long long)s->k, what, (long long)at, is, want);
}

static bool has_kernels(void)
{
    return gpu->traits.device_class == TSR__CLASS_LAVAPIPE && tsr__cpu_matmul_config_at(0) != NULL;
}

/* GPUs have kernels for all products in tiles. */
static void expect_recorded(const shape *s, bool recorded)
{
    const bool expected = gpu->traits.slow_pipelines ? has_kernels() && s->suits : s->m > 8;
    ck_assert_msg(recorded == expected, "[%lld,%lld,%lld]: %s", (long long)s->m, (long long)s->n,
                  (long long)s->k, recorded ? "recorded" : "not recorded");
}

static void expect_same(const shape *s, const char *what, const double *is, const double *want)
{
    for (int64_t i = 0; i < s->m * s->n; i++)
        ck_assert_msg(is[i] == want[i], "[%lld,%lld,%lld]: %s at %lld is %.9g, in steps %.9g",
                      (long long)s->m, (long long)s->n, (long long)s->k, what, (long long)i, is[i],
                      want[i]);
}

static void check_slope(const shape *s, gpu_random *random)
{
    double *a_values, *b_values, *bias_values,
        *y = numbers(s->m * s->n), *slope = numbers(s->m * s->n), *steps = numbers(s->m * s->n);
    tsr_tensor *whole[2], *made[] = {result(s, &whole[0]), result(s, &whole[1])},
                          *a = filled(random, 2, s->m, s->k, &a_values),
                          *b = filled(random, 2, s->n, s->k, &b_values),
                          *bias = filled(random, 1, s->n, 0, &bias_values),
                          *z = gpu_new(TSR_F32, 2, (int64_t[]){s->m, s->n});
    bool recorded = false;
    GPU_OK(tsr__matmul_with_slope(queue, made[0], made[1], a, b, s->bias ? bias : NULL,
                                  TSR_ACT_GELU_ERF, &recorded));
    expect_recorded(s, recorded);
    if (recorded) {
        gpu_get(made[0], y);
        gpu_get(made[1], slope);
        for (int64_t i = 0; i < s->m * s->n; i++) {
            const double *row = a_values + i / s->n * s->k, *column = b_values + i % s->n * s->k;
            double sum = s->bias ? bias_values[i % s->n] : 0, derivative;
            for (int64_t k = 0; k < s->k; k++)
                sum += row[k] * column[k];
            expect_near(s, "y", i, y[i], gelu(sum, &derivative));
            expect_near(s, "slope", i, slope[i], derivative);
        }
        GPU_OK(tsr_matmul(queue, z, a, b,
                          tsr_matmul_params(.transpose_b = true, .bias = s->bias ? bias : NULL)));
        tsr_tensor *one = gpu_new(TSR_F32, 2, (int64_t[]){s->m, s->n});
        for (int64_t i = 0; i < s->m * s->n; i++)
            steps[i] = 1;
        gpu_put(one, steps);
        GPU_OK(tsr_activate_grad(queue, one, z, one, TSR_ACT_GELU_ERF));
        gpu_get(one, steps);
        expect_same(s, "slope", slope, steps);
        GPU_OK(tsr_activate(queue, z, z, NULL, TSR_ACT_GELU_ERF));
        gpu_get(z, steps);
        expect_same(s, "y", y, steps);
        tsr_tensor_destroy(&one);
    }
    tsr_tensor *all[] = {made[0], made[1], whole[0], whole[1], a, b, bias, z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
    double *memory[] = {a_values, b_values, bias_values, y, slope, steps};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
}

static void check_times(const shape *s, gpu_random *random)
{
    double *a_values, *b_values, *factors, *y = numbers(s->m * s->n), *steps = numbers(s->m * s->n);
    tsr_tensor *whole, *made = result(s, &whole), *a = filled(random, 2, s->m, s->k, &a_values),
                       *b = filled(random, 2, s->k, s->n, &b_values),
                       *factor = filled(random, 2, s->m, s->n, &factors),
                       *z = gpu_new(TSR_F32, 2, (int64_t[]){s->m, s->n});
    bool recorded = false;
    GPU_OK(tsr__matmul_times(queue, made, a, b, factor, &recorded));
    expect_recorded(s, recorded);
    if (recorded) {
        gpu_get(made, y);
        for (int64_t i = 0; i < s->m * s->n; i++) {
            double sum = 0;
            for (int64_t k = 0; k < s->k; k++)
                sum += a_values[i / s->n * s->k + k] * b_values[k * s->n + i % s->n];
            expect_near(s, "y", i, y[i], sum * factors[i]);
        }
        GPU_OK(tsr_matmul(queue, z, a, b, NULL));
        GPU_OK(tsr_binary(queue, z, z, factor, TSR_BINARY_MUL));
        gpu_get(z, steps);
        expect_same(s, "y", y, steps);
    }
    tsr_tensor *all[] = {made, whole, a, b, factor, z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
    double *memory[] = {a_values, b_values, factors, y, steps};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
}

START_TEST(activation_and_its_derivative)
{
    gpu_random random = {21};
    if (!gpu->traits.slow_pipelines)
        SKIP("gpus_fuse_products_in_tiles has shapes for GPUs");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_slope(&shapes[i], &random);
}
END_TEST

START_TEST(factors)
{
    gpu_random random = {22};
    if (!gpu->traits.slow_pipelines)
        SKIP("gpus_fuse_products_in_tiles has shapes for GPUs");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shape s = shapes[i];
        s.k = s.times_k;
        check_times(&s, &random);
    }
}
END_TEST

/* y = a · bᵀ + bias + added. In f32, the bits are those of two operations. */
static void check_added(const shape *s, tsr_dtype dtype, gpu_random *random)
{
    const int64_t count = s->m * s->n;
    double *values[4], *y = numbers(count), *steps = numbers(count);
    tsr_tensor *in[4], *parents[3], *made[3];
    bool recorded = false;
    for (int i = 0; i < 4; i++) { /* a, b, bias and added */
        const int64_t sizes[] = {i == 0 || i == 3 ? s->m : s->n, i == 3 ? s->n : s->k};
        const int64_t elements = i == 2 ? s->n : sizes[0] * sizes[1];
        in[i] = gpu_new(dtype, i == 2 ? 1 : 2, sizes);
        values[i] = numbers(elements);
        for (int64_t j = 0; j < elements; j++)
            values[i][j] = gpu_rounded(gpu_random_unit(random), dtype);
        gpu_put(in[i], values[i]);
    }
    for (int i = 0; i < 3; i++) { /* y, added in a tensor with y's strides, y in two steps */
        parents[i] = gpu_new(dtype, 2, (int64_t[]){s->m, s->n + s->padding});
        GPU_OK(tsr_tensor_slice(parents[i], 1, 0, s->n, 1, &made[i]));
        gpu_poison(made[i]);
    }
    GPU_OK(tsr_copy(queue, made[1], in[3]));
    GPU_OK(tsr__matmul_fused(queue, made[0], in[0], in[1],
                             &(tsr__matmul_fusion){.bias = in[2], .added = made[1]}, &recorded));
    ck_assert_int_eq(recorded, !gpu->traits.slow_pipelines && s->m > 8);
    if (recorded) {
        gpu_get(made[0], y);
        GPU_OK(tsr_matmul(queue, made[2], in[0], in[1],
                          tsr_matmul_params(.transpose_b = true, .bias = in[2])));
        GPU_OK(tsr_binary(queue, made[2], made[2], made[1], TSR_BINARY_ADD));
        gpu_get(made[2], steps);
        if (dtype == TSR_F32)
            expect_same(s, "y", y, steps);
        for (int64_t i = 0; i < count; i++) {
            double sum = values[2][i % s->n] + values[3][i];
            for (int64_t k = 0; k < s->k; k++)
                sum += values[0][i / s->n * s->k + k] * values[1][i % s->n * s->k + k];
            if (dtype == TSR_F32)
                expect_near(s, "y", i, y[i], sum);
            else
                ck_assert_msg(fabs(y[i] - sum) <= 0x1p-10 * (1 + fabs(sum)),
                              "y at %lld is %g, not %g", (long long)i, y[i], sum);
        }
    }
    for (int i = 0; i < 3; i++) {
        tsr_tensor_destroy(&made[i]);
        tsr_tensor_destroy(&parents[i]);
    }
    for (int i = 0; i < 4; i++) {
        tsr_tensor_destroy(&in[i]);
        free(values[i]);
    }
    free(y);
    free(steps);
}

/* Computes a product in f32 and the sums of its first operand's columns, and adds both a second
 * time. The operands have `dtype`. */
static void check_row_sums(const shape *s, tsr_dtype dtype, bool suits, gpu_random *random)
{
    double *values[2], *y = numbers(s->m * s->n), *sums = numbers(s->m);
    tsr_tensor *a = filled_as(dtype, random, 2, s->k, s->m, &values[0]),
               *b = filled_as(dtype, random, 2, s->k, s->n, &values[1]),
               *made[] = {gpu_new(TSR_F32, 2, (int64_t[]){s->m, s->n}), gpu_new(TSR_F32, 1, &s->m)};
    for (int times = 1; times <= 2; times++) {
        bool recorded = false;
        if (times == 1) {
            gpu_poison(made[0]);
            gpu_poison(made[1]);
        }
        GPU_OK(tsr__matmul_with_row_sums(queue, made[0], made[1], a, b, times == 2, &recorded));
        ck_assert_msg(recorded == suits, "[%lld,%lld,%lld]: %s", (long long)s->m, (long long)s->n,
                      (long long)s->k, recorded ? "recorded" : "not recorded");
        if (!recorded)
            break;
        gpu_get(made[0], y);
        gpu_get(made[1], sums);
        for (int64_t i = 0; i < s->m * s->n; i++) {
            double product = 0, sum = 0;
            for (int64_t k = 0; k < s->k; k++) {
                product += values[0][k * s->m + i / s->n] * values[1][k * s->n + i % s->n];
                sum += values[0][k * s->m + i / s->n];
            }
            expect_near(s, "y", i, y[i], times * product);
            expect_near(s, "a sum", i / s->n, sums[i / s->n], times * sum);
        }
    }
    for (int i = 0; i < 2; i++) {
        tsr_tensor_destroy(&made[i]);
        free(values[i]);
    }
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    free(y);
    free(sums);
}

/* Several columns of workgroups, tiles that are not full, k in several ranges, and rows of a that
 * are not vectors. */
START_TEST(gpus_sum_rows_in_products)
{
    static const shape on_gpus[] = {{.m = 72, .n = 140, .k = 70},
                                    {.m = 36, .n = 33, .k = 2050},
                                    {.m = 128, .n = 128, .k = 768}};
    const shape odd = {.m = 70, .n = 36, .k = 40};
    gpu_random random = {29};
    check_row_sums(&odd, TSR_F32, false, &random);
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    for (size_t i = 0; i < sizeof on_gpus / sizeof *on_gpus; i++)
        check_row_sums(&on_gpus[i], TSR_F32, true, &random);
    check_row_sums(&odd, TSR_F32, false, &random);
}
END_TEST

/* Matrix units load rows of any length. */
START_TEST(matrix_units_sum_rows_in_products)
{
    static const shape all[] = {{.m = 72, .n = 140, .k = 70},
                                {.m = 36, .n = 33, .k = 2050},
                                {.m = 128, .n = 128, .k = 768},
                                {.m = 70, .n = 36, .k = 40}};
    gpu_random random = {31};
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    if (!tsr__coopmat_used(gpu, TSR_F16) || tsr_device_get_info(gpu)->coopmat2)
        SKIP("this device computes no products of f16 with matrices of subgroups");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_row_sums(&all[i], TSR_F16, true, &random);
}
END_TEST

/* The kernels for GPUs: tiles that are not full, rows of y that are not aligned, few rows, for
 * which there are none, and k in several ranges. */
START_TEST(gpus_fuse_products_in_tiles)
{
    static const shape on_gpus[] = {
        {.m = 50, .n = 84, .k = 32, .times_k = 32, .padding = 4, .bias = true},
        {.m = 50, .n = 81, .k = 32, .times_k = 32, .padding = 3},
        {.m = 3, .n = 64, .k = 32, .times_k = 32},
        {.m = 40, .n = 48, .k = 2048, .times_k = 2048, .bias = true},
    };
    gpu_random random = {23};
    ck_assert_int_eq(tsr__matmul_may_fuse(queue, TSR_F32),
                     has_kernels() || !gpu->traits.slow_pipelines);
    check_added(&on_gpus[0], TSR_F32, &random);
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    ck_assert(tsr__matmul_may_fuse(queue, TSR_F16));
    for (size_t i = 0; i < sizeof on_gpus / sizeof *on_gpus; i++) {
        shape s = on_gpus[i];
        check_slope(&s, &random);
        check_times(&s, &random);
        check_added(&s, TSR_F32, &random);
    }
    check_added(&on_gpus[1], TSR_F16, &random);
}
END_TEST

START_TEST(refuses)
{
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){64, 64}),
               *other = gpu_new(TSR_F32, 2, (int64_t[]){64, 32}),
               *a = gpu_new(TSR_F32, 2, (int64_t[]){64, 64});
    bool recorded = true;
    GPU_FAILS(tsr__matmul_with_slope(queue, y, other, a, a, NULL, TSR_ACT_SILU, &recorded),
              TSR_ERR_INVALID, "matmul: slope is [64,32]; y is [64,64]");
    ck_assert(!recorded);
    GPU_FAILS(tsr__matmul_with_slope(queue, y, y, a, a, NULL, TSR_ACT_SILU, &recorded),
              TSR_ERR_INVALID, "matmul: slope");
    GPU_FAILS(tsr__matmul_times(queue, y, a, a, other, &recorded), TSR_ERR_INVALID, "bias");
    GPU_FAILS(tsr__matmul_fused(queue, y, a, a, &(tsr__matmul_fusion){.added = other}, &recorded),
              TSR_ERR_INVALID, "matmul: added is [64,32]; y is [64,64]");
    GPU_FAILS(tsr__matmul_fused(queue, y, a, a,
                                &(tsr__matmul_fusion){.gate = &(tsr__matmul_gate){.up = other}},
                                &recorded),
              TSR_ERR_INVALID, "matmul: up is [64,32]; a is [64,64]");
    tsr_tensor *row = gpu_new(TSR_F32, 1, (int64_t[]){32});
    GPU_FAILS(tsr__matmul_with_row_sums(queue, y, row, a, a, false, &recorded), TSR_ERR_INVALID,
              "matmul: sums is [32]; y is [64,64]");
    tsr_tensor_destroy(&row);
    /* a y of columns is computed as its transpose; these kernels do not have that */
    tsr_tensor *wide = gpu_new(TSR_F32, 2, (int64_t[]){32, 64}), *columns = NULL;
    row = gpu_new(TSR_F32, 1, (int64_t[]){64});
    GPU_OK(tsr_tensor_transpose(wide, 0, 1, &columns));
    recorded = true;
    GPU_OK(tsr__matmul_with_row_sums(queue, columns, row, a, other, false, &recorded));
    ck_assert(!recorded);
    tsr_tensor *all[] = {y, other, a, wide, columns, row};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

TESTS(activated)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, activation_and_its_derivative);
    tcase_add_test(tests, factors);
    tcase_add_test(tests, gpus_fuse_products_in_tiles);
    tcase_add_test(tests, gpus_sum_rows_in_products);
    tcase_add_test(tests, matrix_units_sum_rows_in_products);
    tcase_add_test(tests, refuses);
}
