/* Compares activations and their derivatives with double precision, over the complete range of f32
 * including its ends. */
#include <math.h>
#include <stdlib.h>

#include "support/check_main.h"
#include "support/gpu.h"

#define COUNT 20000

static const tsr_activation all[] = {TSR_ACT_NONE, TSR_ACT_RELU, TSR_ACT_GELU_TANH,
                                     TSR_ACT_GELU_ERF, TSR_ACT_SILU};

static const double pi = 3.14159265358979323846;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double gelu_slope(double x)
{
    return 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
}

static double gelu_argument(double x)
{
    return 2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x);
}

static double activated(double x, tsr_activation activation)
{
    if (x == -INFINITY && activation != TSR_ACT_NONE)
        return 0;
    switch (activation) {
    case TSR_ACT_NONE:
        break;
    case TSR_ACT_RELU:
        return x > 0 || isnan(x) ? x : 0;
    case TSR_ACT_GELU_TANH:
        return x * sigmoid(gelu_argument(x));
    case TSR_ACT_GELU_ERF:
        return x / 2 * erfc(-x / sqrt(2));
    case TSR_ACT_SILU:
        return x * sigmoid(x);
    }
    return x;
}

static double derivative(double x, tsr_activation activation)
{
    double s;
    if (activation == TSR_ACT_NONE)
        return 1;
    if (isinf(x))
        return x > 0;
    switch (activation) {
    case TSR_ACT_NONE:
        break;
    case TSR_ACT_RELU:
        return isnan(x) ? x : x > 0;
    case TSR_ACT_GELU_TANH:
        s = sigmoid(gelu_argument(x));
        return fabs(x) > 1e3 ? x > 0 : s + x * s * sigmoid(-gelu_argument(x)) * gelu_slope(x);
    case TSR_ACT_GELU_ERF:
        return erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi);
    case TSR_ACT_SILU:
        s = sigmoid(x);
        return fabs(x) > 1e3 ? x > 0 : s + x * s * sigmoid(-x);
    }
    return 1;
}

/* Fills x mostly with values at which the functions are curved; also with all magnitudes of f32
 * and its special values. */
static void fill_inputs(double *x)
{
    static const double special[] = {0,
                                     -0.0,
                                     INFINITY,
                                     -INFINITY,
                                     NAN,
                                     3.4028234663852886e38,
                                     -3.4028234663852886e38,
                                     1.17549435e-38,
                                     -1.17549435e-38,
                                     88,
                                     -88,
                                     89,
                                     -104,
                                     -105,
                                     16,
                                     -16,
                                     13,
                                     -13,
                                     1e13,
                                     -1e13};
    gpu_random random = {1};
    for (int i = 0; i < COUNT; i++) {
        x[i] = 12 * gpu_random_unit(&random);
        if (i % 4 == 0)
            x[i] = ldexp(gpu_random_unit(&random), (int)gpu_random_between(&random, -125, 127));
        x[i] = gpu_rounded(x[i], TSR_F32);
    }
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        x[i] = special[i];
}

/* Checks a result. The allowed error is 4e-7, relative to the result if it is as large as x, and
 * absolute where the function approaches or crosses 0. Results below 1e-37 may be 0, because
 * subnormal numbers may be flushed. */
static void check_value(const char *what, tsr_activation activation, double x, double got,
                        double want)
{
    double limit = 4e-7 * fabs(want) + 4e-7 * fmin(fabs(x), 1) + 1e-37;
    if (isnan(want) ? !isnan(got) : isinf(want) ? got != want : !(fabs(got - want) <= limit))
        ck_abort_msg("%s %d of %.9g is %.9g instead of %.9g", what, (int)activation, x, got, want);
}

START_TEST(matches_double_precision)
{
    int64_t count = COUNT;
    double *x = malloc(COUNT * sizeof *x), *got = malloc(COUNT * sizeof *got),
           *dy = malloc(COUNT * sizeof *dy);
    ck_assert(x && got && dy);
    fill_inputs(x);
    for (int i = 0; i < COUNT; i++)
        dy[i] = i % 2 ? 2 : -0.5;
    tsr_tensor *tx = gpu_new(TSR_F32, 1, &count), *ty = gpu_new(TSR_F32, 1, &count),
               *tdy = gpu_new(TSR_F32, 1, &count);
    gpu_put(tx, x);
    gpu_put(tdy, dy);
    tsr_activation activation = all[_i];
    gpu_poison(ty);
    GPU_OK(tsr_activate(queue, ty, tx, NULL, activation));
    gpu_get(ty, got);
    for (int i = 0; i < COUNT; i++)
        check_value("activation", activation, x[i], got[i], activated(x[i], activation));
    gpu_poison(ty);
    GPU_OK(tsr_activate_grad(queue, ty, tx, tdy, activation));
    gpu_get(ty, got);
    for (int i = 0; i < COUNT; i++)
        check_value("derivative of activation", activation, fmax(fabs(x[i]), 1), got[i] / dy[i],
                    isnan(x[i]) && activation != TSR_ACT_NONE ? x[i]
                                                              : derivative(x[i], activation));
    tsr_tensor_destroy(&tdy);
    tsr_tensor_destroy(&ty);
    tsr_tensor_destroy(&tx);
    free(dy);
    free(got);
    free(x);
}
END_TEST

/* Near 0, GELU and SiLU are x/2. Their relative error must be as small there as elsewhere. */
START_TEST(keeps_its_digits_near_zero)
{
    double x[64], got[64];
    int64_t count = 64;
    tsr_tensor *t = gpu_new(TSR_F32, 1, &count);
    for (int i = 0; i < 64; i++)
        x[i] = gpu_rounded((i % 2 ? -1 : 1) * ldexp(1.37, -i), TSR_F32);
    for (int a = 1; a < 5; a++) {
        gpu_put(t, x);
        GPU_OK(tsr_activate(queue, t, t, NULL, all[a])); /* in place */
        gpu_get(t, got);
        for (int i = 0; i < 64; i++) {
            double want = activated(x[i], all[a]);
            ck_assert_msg(fabs(got[i] - want) <= 4e-7 * fabs(want), "%g: %.9g instead of %.9g",
                          x[i], got[i], want);
        }
    }
    tsr_tensor_destroy(&t);
}
END_TEST

START_TEST(float16_and_views)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {3};
    for (int n = 0; n < 60; n++) {
        int64_t shape[] = {gpu_random_between(&random, 0, 5), gpu_random_between(&random, 1, 40)};
        tsr_dtype to = dtypes[gpu_random_between(&random, 0, 1)],
                  from = dtypes[gpu_random_between(&random, 1, 2)];
        tsr_tensor *px, *py, *x = gpu_random_view(&random, from, 2, shape, &px),
                             *y = gpu_random_view(&random, to, 2, shape, &py);
        double in[200], got[200];
        for (int64_t i = 0; i < shape[0] * shape[1]; i++)
            in[i] = gpu_rounded(4 * gpu_random_unit(&random), from);
        gpu_put(x, in);
        GPU_OK(tsr_activate(queue, y, x, NULL, TSR_ACT_SILU));
        gpu_get(y, got);
        for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
            double want = activated(in[i], TSR_ACT_SILU), step = to == TSR_F32 ? 1e-6 : 1.0 / 1024;
            ck_assert_msg(fabs(got[i] - want) <= step * fabs(want) + 1e-7, "%g: %g instead of %g",
                          in[i], got[i], want);
        }
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&py);
        tsr_tensor_destroy(&px);
    }
}
END_TEST

/* Checks act(x) · b for views of x, b and y with all dtypes. In three calls, y is x, y is b, and b
 * is one row for all rows. */
START_TEST(multiplied)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {7};
    for (int n = 0; n < 54; n++) {
        const tsr_activation activation = all[n % 5];
        const int64_t shape[] = {gpu_random_between(&random, 0, 5),
                                 n % 9 == 8 ? 700 : gpu_random_between(&random, 1, 40)};
        const int64_t row[] = {1, shape[1]}, count = shape[0] * shape[1];
        const bool one_row = n % 3 == 2, y_is_x = n % 6 == 0, y_is_b = n % 6 == 3;
        const tsr_dtype from = dtypes[n % 3], by = dtypes[n / 3 % 3],
                        to = y_is_x   ? from
                             : y_is_b ? by
                                      : dtypes[n / 9 % 3];
        tsr_tensor *px, *pb, *py, *x = gpu_random_view(&random, from, 2, shape, &px),
                                  *b = gpu_random_view(&random, by, 2, one_row ? row : shape, &pb),
                                  *y = gpu_random_view(&random, to, 2, shape, &py);
        tsr_tensor *result = y_is_x ? x : y_is_b ? b : y;
        double in[3500], factor[3500], got[3500];
        for (int64_t i = 0; i < count; i++)
            in[i] = gpu_rounded(4 * gpu_random_unit(&random), from);
        for (int64_t i = 0; i < (one_row ? shape[1] : count); i++)
            factor[i] = gpu_rounded(2 * gpu_random_unit(&random) - 1, by);
        gpu_put(x, in);
        gpu_put(b, factor);
        GPU_OK(tsr_activate(queue, result, x, b, activation));
        gpu_get(result, got);
        for (int64_t i = 0; i < count; i++) {
            const double want = activated(in[i], activation) * factor[one_row ? i % shape[1] : i];
            const double step = to == TSR_F32 ? 1e-6 : to == TSR_F16 ? 1.0 / 2048 : 1.0 / 256;
            ck_assert_msg(fabs(got[i] - want) <= step * fabs(want) + 4e-7,
                          "%d of %g, times %g: %g instead of %g", (int)activation, in[i],
                          factor[one_row ? i % shape[1] : i], got[i], want);
        }
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&b);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&py);
        tsr_tensor_destroy(&pb);
        tsr_tensor_destroy(&px);
    }
}
END_TEST

START_TEST(refuses)
{
    int64_t shape[] = {2, 3}, other[] = {4};
    tsr_tensor *x = gpu_new(TSR_F32, 2, shape), *i = gpu_new(TSR_I32, 2, shape),
               *o = gpu_new(TSR_F32, 1, other);
    GPU_FAILS(tsr_activate(queue, x, x, NULL, (tsr_activation)5), TSR_ERR_INVALID,
              "activate: unknown activation 5");
    GPU_FAILS(tsr_activate(queue, x, x, x, (tsr_activation)7), TSR_ERR_INVALID,
              "activate: unknown activation 7");
    GPU_FAILS(tsr_activate(queue, x, x, i, TSR_ACT_RELU), TSR_ERR_INVALID, "activate: b is i32");
    GPU_FAILS(tsr_activate(queue, x, x, o, TSR_ACT_RELU), TSR_ERR_INVALID,
              "activate: b [4] does not broadcast to y [2,3]");
    GPU_FAILS(tsr_activate_grad(queue, x, x, x, (tsr_activation)-1), TSR_ERR_INVALID,
              "activate_grad: unknown activation -1");
    GPU_FAILS(tsr_activate(queue, i, x, NULL, TSR_ACT_RELU), TSR_ERR_INVALID,
              "activate: y is i32; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_activate(queue, x, i, NULL, TSR_ACT_RELU), TSR_ERR_INVALID, "activate: x is i32");
    GPU_FAILS(tsr_activate(queue, x, NULL, NULL, TSR_ACT_RELU), TSR_ERR_INVALID,
              "activate: x is NULL");
    GPU_FAILS(tsr_activate(queue, x, o, NULL, TSR_ACT_RELU), TSR_ERR_INVALID,
              "activate: x [4] does not broadcast to y [2,3]");
    GPU_FAILS(tsr_activate_grad(queue, x, x, NULL, TSR_ACT_RELU), TSR_ERR_INVALID,
              "activate_grad: dy is NULL");
    GPU_FAILS(tsr_activate_grad(queue, x, x, o, TSR_ACT_RELU), TSR_ERR_INVALID,
              "activate_grad: dy [4] does not broadcast to dx [2,3]");
    tsr_tensor_destroy(&o);
    tsr_tensor_destroy(&i);
    tsr_tensor_destroy(&x);
}
END_TEST

TESTS(activation)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, matches_double_precision, 0, 5);
    tcase_add_test(tests, keeps_its_digits_near_zero);
    tcase_add_test(tests, float16_and_views);
    tcase_add_test(tests, multiplied);
    tcase_add_test(tests, refuses);
}
