/* Products that also compute the derivative of their activation, and products whose elements are
 * each multiplied by a factor. Compares them with double precision, and bit by bit with the same
 * operations in several calls. */
#include "gpu/internal.h"

#include <math.h>
#include <stdlib.h>

#include "gpu/cpu_drivers/cpu_drivers.h"
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

static tsr_tensor *filled(gpu_random *random, int ndim, int64_t rows, int64_t columns,
                          double **values)
{
    const int64_t count = ndim == 2 ? rows * columns : rows;
    tsr_tensor *made = gpu_new(TSR_F32, ndim, (int64_t[]){rows, columns});
    *values = numbers(count);
    for (int64_t i = 0; i < count; i++)
        (*values)[i] = gpu_rounded(gpu_random_unit(random), TSR_F32);
    gpu_put(made, *values);
    return made;
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

static void expect_recorded(const shape *s, bool recorded)
{
    ck_assert_msg(recorded == (has_kernels() && s->suits), "[%lld,%lld,%lld]: %s", (long long)s->m,
                  (long long)s->n, (long long)s->k, recorded ? "recorded" : "not recorded");
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
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_slope(&shapes[i], &random);
}
END_TEST

START_TEST(factors)
{
    gpu_random random = {22};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shape s = shapes[i];
        s.k = s.times_k;
        check_times(&s, &random);
    }
}
END_TEST

/* If the device has no kernel for such products, the functions record nothing, whatever the
 * shape is, and say so. */
START_TEST(depends_on_the_device)
{
    gpu_random random = {23};
    ck_assert_int_eq(tsr__matmul_may_fuse(queue), has_kernels());
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    ck_assert(!tsr__matmul_may_fuse(queue));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_slope(&shapes[i], &random);
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
    tsr_tensor *all[] = {y, other, a};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

TESTS(activated)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, activation_and_its_derivative);
    tcase_add_test(tests, factors);
    tcase_add_test(tests, depends_on_the_device);
    tcase_add_test(tests, refuses);
}
