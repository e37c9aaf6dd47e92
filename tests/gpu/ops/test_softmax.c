/* Compares softmax, its logarithm and their gradients with references in double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/close.h"
#include "support/gpu.h"

static double *doubles(int64_t count)
{
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

static void softmax(const double *x, int64_t count, bool logarithm, double *y)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < count; j++)
        largest = x[j] > largest ? x[j] : largest;
    for (int64_t j = 0; j < count; j++)
        sum += exp(x[j] - largest);
    for (int64_t j = 0; j < count; j++)
        y[j] = logarithm ? x[j] - largest - log(sum) : exp(x[j] - largest) / sum;
}

static void softmax_gradient(const double *y, const double *dy, int64_t count, bool logarithm,
                             double *dx)
{
    double sum = 0;
    for (int64_t j = 0; j < count; j++)
        sum += logarithm ? dy[j] : y[j] * dy[j];
    for (int64_t j = 0; j < count; j++)
        dx[j] = logarithm ? dy[j] - exp(y[j]) * sum : y[j] * (dy[j] - sum);
}

/* Returns the error bound in f32 of a probability or its logarithm, without the error of storing
 * it. The terms of the logarithm are as large as the range of the inputs. */
static double forward_tolerance(double want, bool logarithm, double spread, tsr_dtype dtype)
{
    return (logarithm ? 4e-7 * (1 + spread) : 2e-6 * fabs(want)) + 2 * storage_error(want, dtype);
}

static void random_tensor(gpu_random *random, tsr_tensor *tensor, double scale, double *values)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    for (int64_t i = 0; i < tsr_layout_count(layout); i++)
        values[i] = gpu_rounded(gpu_random_unit(random) * scale, layout->dtype);
    gpu_put(tensor, values);
}

/* Random views */

typedef struct shape {
    int ndim;
    int64_t size[TSR_MAX_DIMS];
    int64_t rows, count;
} shape;

/* Returns a shape with rows of 1 to 40 elements, sometimes of a few hundred or thousand, so that
 * all sizes of workgroups are used. */
static shape random_shape(gpu_random *random)
{
    static const int64_t most[] = {8, 40, 40, 300, 1500};
    shape s = {.ndim = (int)gpu_random_between(random, 1, 4), .rows = 1};
    for (int d = 0; d + 1 < s.ndim; d++) {
        s.size[d] = gpu_random_between(random, 0, 12) == 0 ? 0 : gpu_random_between(random, 1, 6);
        s.rows *= s.size[d];
    }
    s.count = gpu_random_between(random, 1, most[gpu_random_between(random, 0, 4)]);
    s.size[s.ndim - 1] = s.count;
    return s;
}

/* Two combinations of dtypes in addition to f32. Each needs its own pipelines. */
static const tsr_dtype mixtures[3][3] = {
    {TSR_F32, TSR_F32, TSR_F32}, {TSR_F16, TSR_F32, TSR_BF16}, {TSR_BF16, TSR_F16, TSR_F16}};

static void forward_case(gpu_random *random, bool logarithm)
{
    shape s = random_shape(random);
    const tsr_dtype *dtypes = mixtures[gpu_random_between(random, 0, 2)];
    bool in_place = gpu_random_between(random, 0, 3) == 0;
    tsr_tensor *x_parent, *y_parent = NULL;
    tsr_tensor *x = gpu_random_view(random, dtypes[0], s.ndim, s.size, &x_parent);
    tsr_tensor *y = in_place ? x : gpu_random_view(random, dtypes[1], s.ndim, s.size, &y_parent);
    tsr_dtype y_dtype = in_place ? dtypes[0] : dtypes[1];
    double *values = doubles(s.rows * s.count), *got = doubles(s.rows * s.count);
    double *want = doubles(s.count);
    double scale = ldexp(1, (int)gpu_random_between(random, -2, 5));
    random_tensor(random, x, scale, values);

    GPU_OK(tsr_softmax(queue, y, x, logarithm));
    gpu_get(y, got);
    for (int64_t r = 0; r < s.rows; r++) {
        softmax(values + r * s.count, s.count, logarithm, want);
        for (int64_t j = 0; j < s.count; j++)
            assert_close(got[r * s.count + j], want[j],
                         forward_tolerance(want[j], logarithm, 2 * scale, y_dtype),
                         logarithm ? "log_softmax" : "softmax", r * s.count + j);
    }
    free(values);
    free(got);
    free(want);
    if (!in_place)
        tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&y_parent);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&x_parent);
}

static void gradient_case(gpu_random *random, bool logarithm)
{
    shape s = random_shape(random);
    int64_t total = s.rows * s.count;
    const tsr_dtype *dtypes = mixtures[gpu_random_between(random, 0, 2)];
    bool in_place = gpu_random_between(random, 0, 3) == 0;
    tsr_tensor *parents[3] = {NULL};
    tsr_tensor *y = gpu_random_view(random, dtypes[0], s.ndim, s.size, &parents[0]);
    tsr_tensor *dy = gpu_random_view(random, dtypes[1], s.ndim, s.size, &parents[1]);
    tsr_tensor *dx =
        in_place ? dy : gpu_random_view(random, dtypes[2], s.ndim, s.size, &parents[2]);
    tsr_dtype dx_dtype = in_place ? dtypes[1] : dtypes[2];
    double *x = doubles(total), *y_values = doubles(total), *dy_values = doubles(total);
    double *got = doubles(total), *want = doubles(s.count);
    for (int64_t i = 0; i < total; i++)
        x[i] = 3 * gpu_random_unit(random);
    for (int64_t r = 0; r < s.rows; r++)
        softmax(x + r * s.count, s.count, logarithm, y_values + r * s.count);
    for (int64_t i = 0; i < total; i++)
        y_values[i] = gpu_rounded(y_values[i], dtypes[0]);
    gpu_put(y, y_values);
    random_tensor(random, dy, 2, dy_values);

    GPU_OK(tsr_softmax_grad(queue, dx, y, dy, logarithm));
    gpu_get(dx, got);
    for (int64_t r = 0; r < s.rows; r++) {
        softmax_gradient(y_values + r * s.count, dy_values + r * s.count, s.count, logarithm, want);
        for (int64_t j = 0; j < s.count; j++) {
            double part = logarithm ? exp(y_values[r * s.count + j]) * (double)s.count
                                    : y_values[r * s.count + j];
            assert_close(got[r * s.count + j], want[j],
                         4e-6 * part + 1e-6 * fabs(want[j]) + 2 * storage_error(want[j], dx_dtype),
                         logarithm ? "log_softmax_grad" : "softmax_grad", r * s.count + j);
        }
    }
    free(x);
    free(y_values);
    free(dy_values);
    free(got);
    free(want);
    tsr_tensor_destroy(&y);
    if (!in_place)
        tsr_tensor_destroy(&dx);
    tsr_tensor_destroy(&dy);
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&parents[i]);
}

static void random_cases(uint64_t seed, int count)
{
    gpu_random random = {seed};
    for (int i = 0; i < count; i++) {
        forward_case(&random, i % 2 == 0);
        gradient_case(&random, i % 4 < 2);
    }
}

START_TEST(softmax_of_random_views)
{
    random_cases(21, 60);
}
END_TEST

START_TEST(softmax_with_packed_float16)
{
    if (tsr_device_get_info(gpu)
            ->storage16) /* otherwise the test above has already used these kernels */
        random_cases(22, 24);
}
END_TEST

/* Sizes and values at the limits */

/* Compares one row of `count` classes, forward and backward, with the reference. */
static void wide_case(int64_t count)
{
    gpu_random random = {(uint64_t)count};
    double *x_values = doubles(count), *want = doubles(count), *got = doubles(count);
    double *dy_values = doubles(count), *gradient = doubles(count);
    tsr_tensor *x = gpu_new(TSR_F32, 1, &count), *y = gpu_new(TSR_F32, 1, &count);
    tsr_tensor *dy = gpu_new(TSR_F32, 1, &count), *dx = gpu_new(TSR_F32, 1, &count);
    random_tensor(&random, x, 8, x_values);
    random_tensor(&random, dy, 1, dy_values);
    gpu_poison(y);
    gpu_poison(dx);
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        GPU_OK(tsr_softmax(queue, y, x, logarithm));
        gpu_get(y, got);
        softmax(x_values, count, logarithm, want);
        for (int64_t j = 0; j < count; j++)
            assert_close(got[j], want[j], forward_tolerance(want[j], logarithm, 16, TSR_F32),
                         "wide row", j);
        GPU_OK(tsr_softmax_grad(queue, dx, y, dy, logarithm));
        softmax_gradient(got, dy_values, count, logarithm, gradient);
        gpu_get(dx, got);
        double largest = 0;
        for (int64_t j = 0; j < count; j++)
            largest = fabs(gradient[j]) > largest ? fabs(gradient[j]) : largest;
        for (int64_t j = 0; j < count; j++)
            assert_close(got[j], gradient[j], 4e-6 * largest, "wide gradient", j);
    }
    free(x_values);
    free(want);
    free(got);
    free(dy_values);
    free(gradient);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dy);
    tsr_tensor_destroy(&dx);
}

START_TEST(any_number_of_classes)
{
    static const int64_t counts[] = {1,   2,   15,   16,    17,     255,   256,
                                     257, 259, 4099, 16385, 200003, 262144};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        wide_case(counts[i]);
}
END_TEST

/* There are so many rows that CPU drivers compute each in one invocation. The gradient overwrites
 * the result. */
START_TEST(many_rows)
{
    int64_t size[] = {300, 37}, total = size[0] * size[1];
    gpu_random random = {23};
    double *x_values = doubles(total), *y_values = doubles(total), *want = doubles(size[1]);
    double *got = doubles(total);
    tsr_tensor *x = gpu_new(TSR_F32, 2, size), *y = gpu_new(TSR_F32, 2, size);
    random_tensor(&random, x, 4, x_values);
    gpu_poison(y);
    GPU_OK(tsr_softmax(queue, y, x, false));
    gpu_get(y, y_values);
    GPU_OK(tsr_softmax_grad(queue, y, y, x, false));
    gpu_get(y, got);
    for (int64_t r = 0; r < size[0]; r++) {
        int64_t row = r * size[1];
        softmax(x_values + row, size[1], false, want);
        for (int64_t j = 0; j < size[1]; j++)
            assert_close(y_values[row + j], want[j], forward_tolerance(want[j], false, 8, TSR_F32),
                         "many rows", row + j);
        softmax_gradient(y_values + row, x_values + row, size[1], false, want);
        for (int64_t j = 0; j < size[1]; j++)
            assert_close(got[row + j], want[j], 4e-6 * y_values[row + j] + 1e-6 * fabs(want[j]),
                         "gradient of many rows", row + j);
    }
    free(x_values);
    free(y_values);
    free(want);
    free(got);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Computes softmax and its logarithm of one row of four. */
static void four(const double *x, double *y, double *log_y)
{
    tsr_tensor *in = gpu_new(TSR_F32, 1, (int64_t[]){4}),
               *out = gpu_new(TSR_F32, 1, (int64_t[]){4});
    gpu_put(in, x);
    GPU_OK(tsr_softmax(queue, out, in, false));
    gpu_get(out, y);
    GPU_OK(tsr_softmax(queue, out, in, true));
    gpu_get(out, log_y);
    tsr_tensor_destroy(&in);
    tsr_tensor_destroy(&out);
}

START_TEST(extreme_values)
{
    double y[4], log_y[4];
    four((double[]){-INFINITY, -INFINITY, -INFINITY, -INFINITY}, y, log_y);
    for (int i = 0; i < 4; i++)
        ck_assert(isnan(y[i]) && isnan(log_y[i]));

    four((double[]){3e38, 3e38, -3e38, 0}, y, log_y);
    ck_assert(y[0] == 0.5 && y[1] == 0.5 && y[2] == 0 && y[3] == 0);
    assert_close(log_y[0], -log(2), 1e-7, "large values", 0);
    ck_assert(log_y[2] == -INFINITY && log_y[3] == (double)-3e38f);

    four((double[]){1, -INFINITY, 1, -INFINITY}, y, log_y);
    ck_assert(y[0] == 0.5 && y[1] == 0 && y[2] == 0.5 && y[3] == 0);
    ck_assert(log_y[1] == -INFINITY && log_y[3] == -INFINITY);

    four((double[]){-1e30, -1e30, -1e30, -1e30}, y, log_y);
    for (int i = 0; i < 4; i++) {
        ck_assert_double_eq(y[i], 0.25);
        assert_close(log_y[i], -log(4), 2e-7, "equal values", i);
    }

    four((double[]){1, NAN, 2, 3}, y, log_y);
    for (int i = 0; i < 4; i++)
        ck_assert(isnan(y[i]) && isnan(log_y[i]));

    four((double[]){0, INFINITY, 1, 2}, y, log_y); /* as in PyTorch: inf − inf */
    for (int i = 0; i < 4; i++)
        ck_assert(isnan(y[i]) && isnan(log_y[i]));

    /* Values for which e^x is subnormal. */
    four((double[]){0, -80, -87, -300}, y, log_y);
    assert_close(y[1], exp(-80), 1e-6 * exp(-80), "small probability", 1);
    assert_close(y[2], exp(-87), 1e-6 * exp(-87), "small probability", 2);
    ck_assert_double_eq(y[3], 0);
    ck_assert(log_y[0] == 0 && log_y[3] == -300);
}
END_TEST

/* Two calls give the same bits, even if the row is among others. */
START_TEST(runs_agree_bit_by_bit)
{
    int64_t size[] = {37, 1003};
    int64_t total = size[0] * size[1];
    gpu_random random = {24};
    tsr_tensor *x = gpu_new(TSR_F32, 2, size), *y = gpu_new(TSR_F32, 2, size);
    double *values = doubles(total);
    float *first = malloc((size_t)total * sizeof *first),
          *second = malloc((size_t)total * sizeof *second);
    ck_assert(first && second);
    random_tensor(&random, x, 5, values);
    for (int run = 0; run < 3; run++) {
        gpu_poison(y);
        GPU_OK(tsr_softmax(queue, y, x, false));
        GPU_OK(tsr_tensor_download(queue, y, run == 0 ? first : second,
                                   (uint64_t)total * sizeof *first));
    }
    ck_assert_mem_eq(first, second, (size_t)total * sizeof *first);
    free(values);
    free(first);
    free(second);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Gradients against finite differences of the reference */

START_TEST(gradients_match_finite_differences)
{
    enum { COUNT = 23 };
    const double h = 1e-5;
    gpu_random random = {25};
    double x[COUNT], dy_values[COUNT], got[COUNT], up[COUNT], down[COUNT];
    int64_t count = COUNT;
    tsr_tensor *in = gpu_new(TSR_F32, 1, &count), *y = gpu_new(TSR_F32, 1, &count);
    tsr_tensor *dy = gpu_new(TSR_F32, 1, &count);
    random_tensor(&random, in, 2, x);
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        random_tensor(&random, dy, 1, dy_values);
        GPU_OK(tsr_softmax(queue, y, in, logarithm));
        GPU_OK(tsr_softmax_grad(queue, dy, y, dy, logarithm));
        gpu_get(dy, got);
        for (int j = 0; j < COUNT; j++) {
            double kept = x[j], slope = 0;
            x[j] = kept + h;
            softmax(x, COUNT, logarithm, up);
            x[j] = kept - h;
            softmax(x, COUNT, logarithm, down);
            x[j] = kept;
            for (int i = 0; i < COUNT; i++)
                slope += dy_values[i] * (up[i] - down[i]) / (2 * h);
            assert_close(got[j], slope, 2e-6, logarithm ? "d log softmax" : "d softmax", j);
        }
    }
    tsr_tensor_destroy(&in);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dy);
}
END_TEST

/* Refused calls */

START_TEST(mistakes_are_named)
{
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){3, 4}),
               *y = gpu_new(TSR_F32, 2, (int64_t[]){3, 4});
    tsr_tensor *other = gpu_new(TSR_F32, 2, (int64_t[]){4, 3}),
               *integers = gpu_new(TSR_I32, 2, (int64_t[]){3, 4});
    tsr_tensor *scalar = gpu_new(TSR_F32, 0, NULL), *big = gpu_new(TSR_F32, 2, (int64_t[]){4, 4});
    tsr_tensor *half = gpu_new(TSR_F16, 2, (int64_t[]){3, 4}), *as_bf16 = gpu_as(half, TSR_BF16);
    tsr_tensor *low, *high, *repeated, *row;
    GPU_OK(tsr_tensor_slice(big, 0, 0, 3, 1, &low));
    GPU_OK(tsr_tensor_slice(big, 0, 1, 4, 1, &high));
    GPU_OK(tsr_tensor_select(y, 0, 0, &row));
    GPU_OK(tsr_tensor_broadcast(row, 2, (int64_t[]){3, 4}, &repeated));

    for (int i = 0; i < 2; i++) {
        GPU_FAILS(tsr_softmax(NULL, y, x, i == 1), TSR_ERR_INVALID, "softmax: stream is NULL");
        GPU_FAILS(tsr_softmax(queue, NULL, x, i == 1), TSR_ERR_INVALID, "softmax: y is NULL");
        GPU_FAILS(tsr_softmax(queue, y, NULL, i == 1), TSR_ERR_INVALID, "softmax: x is NULL");
        GPU_FAILS(tsr_softmax(queue, integers, x, i == 1), TSR_ERR_INVALID, "softmax: y is i32");
        GPU_FAILS(tsr_softmax(queue, y, integers, i == 1), TSR_ERR_INVALID, "softmax: x is i32");
        GPU_FAILS(tsr_softmax(queue, y, other, i == 1), TSR_ERR_INVALID,
                  "softmax: y is [3,4], x is [4,3]");
        GPU_FAILS(tsr_softmax(queue, scalar, scalar, i == 1), TSR_ERR_INVALID,
                  "softmax: x is a scalar and has no last dimension");
        GPU_FAILS(tsr_softmax(queue, low, high, i == 1), TSR_ERR_INVALID,
                  "softmax: y [3,4] overlaps x [3,4]");
        GPU_FAILS(tsr_softmax(queue, as_bf16, half, i == 1), TSR_ERR_INVALID,
                  "softmax: y [3,4] overlaps x [3,4] in one buffer as another dtype");
        GPU_FAILS(tsr_softmax(queue, repeated, x, i == 1), TSR_ERR_INVALID, "more than once");
    }
    for (int i = 0; i < 2; i++) {
        GPU_FAILS(tsr_softmax_grad(queue, NULL, x, y, i == 1), TSR_ERR_INVALID,
                  "softmax_grad: dx is NULL");
        GPU_FAILS(tsr_softmax_grad(queue, y, NULL, x, i == 1), TSR_ERR_INVALID,
                  "softmax_grad: y is NULL");
        GPU_FAILS(tsr_softmax_grad(queue, y, x, NULL, i == 1), TSR_ERR_INVALID,
                  "softmax_grad: dy is NULL");
        GPU_FAILS(tsr_softmax_grad(queue, y, x, integers, i == 1), TSR_ERR_INVALID,
                  "softmax_grad: dy is i32");
        GPU_FAILS(tsr_softmax_grad(queue, y, x, other, i == 1), TSR_ERR_INVALID,
                  "softmax_grad: dx is [3,4], dy is [4,3]");
        GPU_FAILS(tsr_softmax_grad(queue, y, other, x, i == 1), TSR_ERR_INVALID,
                  "softmax_grad: dx is [3,4], y is [4,3]");
        GPU_FAILS(tsr_softmax_grad(queue, low, x, high, i == 1), TSR_ERR_INVALID,
                  "softmax_grad: dx [3,4] overlaps dy [3,4]");
        GPU_FAILS(tsr_softmax_grad(queue, low, high, x, i == 1), TSR_ERR_INVALID,
                  "softmax_grad: dx [3,4] overlaps y [3,4]");
    }
    GPU_FAILS(tsr_softmax(queue, y, other, true), TSR_ERR_INVALID, "log_softmax: ");

    tsr_tensor *all[] = {low,   high,     repeated, row, x,    y,
                         other, integers, scalar,   big, half, as_bf16};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

START_TEST(empty_tensors_do_nothing)
{
    static const int64_t sizes[][2] = {{0, 4}, {3, 0}, {0, 0}};
    for (int i = 0; i < 3; i++) {
        tsr_tensor *x = gpu_new(TSR_F32, 2, sizes[i]), *y = gpu_new(TSR_F16, 2, sizes[i]);
        GPU_OK(tsr_softmax(queue, y, x, false));
        GPU_OK(tsr_softmax(queue, y, x, true));
        GPU_OK(tsr_softmax_grad(queue, y, x, x, false));
        GPU_OK(tsr_softmax_grad(queue, y, x, x, true));
        GPU_OK(tsr_stream_wait(queue));
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

TESTS(softmax)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, softmax_of_random_views);
    tcase_add_test(tests, any_number_of_classes);
    tcase_add_test(tests, many_rows);
    tcase_add_test(tests, extreme_values);
    tcase_add_test(tests, runs_agree_bit_by_bit);
    tcase_add_test(tests, gradients_match_finite_differences);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, empty_tensors_do_nothing);
}

TESTS(softmax_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, softmax_with_packed_float16);
}
