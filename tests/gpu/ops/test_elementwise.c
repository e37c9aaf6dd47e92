/* Compares sums, differences, products and linear functions with double precision, rounded to the
 * dtype of the result. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/gpu.h"

#define COUNT_MAX 6000

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};

/* The dtypes of y, a and b. There are few mixtures, because each needs a pipeline. */
static const tsr_dtype mixtures[][3] = {{TSR_F32, TSR_F32, TSR_F32},
                                        {TSR_F16, TSR_F16, TSR_F16},
                                        {TSR_BF16, TSR_F32, TSR_BF16},
                                        {TSR_F32, TSR_BF16, TSR_F16},
                                        {TSR_F16, TSR_BF16, TSR_F32}};

typedef enum function { ADD, SUB, MUL, SCALE, AXPY, FUNCTIONS } function;

static const float alpha = 0.75f, beta = -1.25f;

static tsr_status run(function f, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    switch (f) {
    case ADD:
        return tsr_binary(queue, y, a, b, TSR_BINARY_ADD);
    case SUB:
        return tsr_binary(queue, y, a, b, TSR_BINARY_SUB);
    case MUL:
        return tsr_binary(queue, y, a, b, TSR_BINARY_MUL);
    case SCALE:
        return tsr_scale(queue, y, a, alpha, beta);
    case AXPY:
    case FUNCTIONS:
        break;
    }
    return tsr_axpy(queue, y, alpha, a);
}

/* Computes the expected value in f32, rounding after each step. */
static double expected(function f, double a, double b, double y)
{
    switch (f) {
    case ADD:
        return gpu_rounded(a + b, TSR_F32);
    case SUB:
        return gpu_rounded(a - b, TSR_F32);
    case MUL:
        return gpu_rounded(a * b, TSR_F32);
    case SCALE:
        return gpu_rounded(gpu_rounded((double)alpha * a, TSR_F32) + (double)beta, TSR_F32);
    case AXPY:
    case FUNCTIONS:
        break;
    }
    return gpu_rounded(gpu_rounded((double)alpha * a, TSR_F32) + y, TSR_F32);
}

/* Returns the element of a tensor that corresponds to row-major element n of y. The tensor is
 * broadcast from `shape` to `y_shape`. */
static int64_t source_index(int64_t n, int y_ndim, const int64_t *y_shape, int ndim,
                            const int64_t *shape)
{
    int64_t index = 0, stride = 1;
    for (int i = 1; i <= y_ndim; i++) {
        int64_t position = n % y_shape[y_ndim - i];
        n /= y_shape[y_ndim - i];
        if (i > ndim)
            continue;
        index += (shape[ndim - i] == 1 ? 0 : position) * stride;
        stride *= shape[ndim - i];
    }
    return index;
}

typedef struct view_of_values {
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    tsr_tensor *parent, *view;
    double values[COUNT_MAX];
} view_of_values;

/* Makes a view with random contents. */
static void make(gpu_random *random, tsr_dtype dtype, view_of_values *out)
{
    int64_t count = 1;
    for (int i = 0; i < out->ndim; i++)
        count *= out->shape[i];
    out->view = gpu_random_view(random, dtype, out->ndim, out->shape, &out->parent);
    for (int64_t i = 0; i < count; i++)
        out->values[i] = gpu_rounded(8 * gpu_random_unit(random), dtype);
    gpu_put(out->view, out->values);
}

static void make_broadcast(gpu_random *random, const view_of_values *y, tsr_dtype dtype,
                           view_of_values *out)
{
    int dropped =
        gpu_random_between(random, 0, 2) == 0 ? (int)gpu_random_between(random, 0, y->ndim) : 0;
    out->ndim = y->ndim - dropped;
    for (int i = 0; i < out->ndim; i++)
        out->shape[i] = gpu_random_between(random, 0, 5) == 0 ? 1 : y->shape[dropped + i];
    make(random, dtype, out);
}

static void drop(view_of_values *operand)
{
    tsr_tensor_destroy(&operand->view);
    tsr_tensor_destroy(&operand->parent);
}

static void check_case(gpu_random *random, function f)
{
    static view_of_values y, a, b;
    static double got[COUNT_MAX];
    y.ndim = (int)gpu_random_between(random, 0, 5);
    int64_t count = 1;
    for (int i = 0; i < y.ndim; i++) {
        y.shape[i] =
            gpu_random_between(random, gpu_random_between(random, 0, 30) > 0, y.ndim <= 2 ? 40 : 5);
        count *= y.shape[i];
    }
    const tsr_dtype *dtypes = mixtures[gpu_random_between(random, 0, 4)];
    tsr_dtype dtype = dtypes[0];
    make(random, dtype, &y);
    make_broadcast(random, &y, dtypes[1], &a);
    make_broadcast(random, &y, dtypes[2], &b);
    GPU_OK(run(f, y.view, a.view, b.view));
    gpu_get(y.view, got);
    for (int64_t n = 0; n < count; n++) {
        double from_a = a.values[source_index(n, y.ndim, y.shape, a.ndim, a.shape)];
        double from_b = b.values[source_index(n, y.ndim, y.shape, b.ndim, b.shape)];
        double want = gpu_rounded(expected(f, from_a, from_b, y.values[n]), dtype);
        if (got[n] != want)
            ck_abort_msg("function %d, %s, element %lld: %.9g instead of %.9g from %.9g and %.9g",
                         (int)f, tsr_dtype_name(dtype), (long long)n, got[n], want, from_a, from_b);
    }
    drop(&b);
    drop(&a);
    drop(&y);
}

START_TEST(random_views)
{
    gpu_random random = {(uint64_t)_i};
    for (int i = 0; i < 24; i++)
        check_case(&random, (function)_i);
}
END_TEST

/* Makes a view of y's shape [planes,rows,columns] with random contents. If `transposed`, it is a
 * view of a tensor [planes,columns,rows], and values[] has that tensor's order. */
static tsr_tensor *make_turned(gpu_random *random, const view_of_values *y, tsr_dtype dtype,
                               bool transposed, view_of_values *out)
{
    tsr_tensor *view;
    out->ndim = 3;
    memcpy(out->shape, y->shape, sizeof out->shape);
    if (transposed) {
        out->shape[1] = y->shape[2];
        out->shape[2] = y->shape[1];
    }
    make(random, dtype, out);
    GPU_OK(transposed ? tsr_tensor_transpose(out->view, 1, 2, &view)
                      : tsr_tensor_slice(out->view, 0, 0, TSR_END, 1, &view));
    return view;
}

static double turned_value(const view_of_values *y, const view_of_values *x, bool transposed,
                           int64_t n)
{
    int64_t rows = y->shape[1], columns = y->shape[2];
    int64_t plane = n / (rows * columns), row = n / columns % rows, column = n % columns;
    return x->values[transposed ? (plane * columns + column) * rows + row : n];
}

/* Checks operations in which a, b or both are transposed. The tensors are so large that the
 * library first copies transposed operands to contiguous memory. */
static void check_turned(gpu_random *random, function f, const tsr_dtype *dtypes, bool a_turned,
                         bool b_turned)
{
    static view_of_values y, a, b;
    static double got[COUNT_MAX];
    y.ndim = 3;
    y.shape[0] = gpu_random_between(random, 1, 2);
    y.shape[1] = gpu_random_between(random, 65, 68);
    y.shape[2] = y.shape[0] == 1 ? 80 : 40;
    make(random, dtypes[0], &y);
    tsr_tensor *views[] = {make_turned(random, &y, dtypes[1], a_turned, &a),
                           make_turned(random, &y, dtypes[2], b_turned, &b)};
    GPU_OK(run(f, y.view, views[0], views[1]));
    gpu_get(y.view, got);
    for (int64_t n = 0; n < y.shape[0] * y.shape[1] * y.shape[2]; n++) {
        double want = expected(f, turned_value(&y, &a, a_turned, n),
                               turned_value(&y, &b, b_turned, n), y.values[n]);
        if (got[n] != gpu_rounded(want, dtypes[0]))
            ck_abort_msg("function %d, a %s, b %s, element %lld: %.9g instead of %.9g", (int)f,
                         a_turned ? "transposed" : "as it is", b_turned ? "transposed" : "as it is",
                         (long long)n, got[n], gpu_rounded(want, dtypes[0]));
    }
    tsr_tensor_destroy(&views[0]);
    tsr_tensor_destroy(&views[1]);
    drop(&b);
    drop(&a);
    drop(&y);
}

START_TEST(transposed_inputs)
{
    gpu_random random = {60 + (uint64_t)_i};
    for (int turn = 0; turn < 3; turn++)
        for (int which = 1; which < 4; which++)
            check_turned(&random, (function)((turn + which) % FUNCTIONS), mixtures[_i], which & 1,
                         which & 2);
}
END_TEST

/* y may be the same view as a, b or both. */
START_TEST(in_place)
{
    gpu_random random = {50};
    int64_t shape[] = {37};
    for (int d = 0; d < 3; d++) {
        static view_of_values y, b;
        double got[37];
        y.ndim = b.ndim = 1;
        y.shape[0] = b.shape[0] = shape[0];
        make(&random, floats[d], &y);
        make(&random, TSR_F32, &b);
        GPU_OK(tsr_binary(queue, y.view, y.view, b.view, TSR_BINARY_ADD));
        GPU_OK(tsr_binary(queue, y.view, b.view, y.view, TSR_BINARY_MUL));
        GPU_OK(tsr_binary(queue, y.view, y.view, y.view, TSR_BINARY_ADD));
        gpu_get(y.view, got);
        for (int i = 0; i < 37; i++) {
            double x = gpu_rounded(expected(ADD, y.values[i], b.values[i], 0), floats[d]);
            x = gpu_rounded(expected(MUL, b.values[i], x, 0), floats[d]);
            ck_assert_double_eq(got[i], gpu_rounded(2 * x, floats[d]));
        }
        drop(&b);
        drop(&y);
    }
}
END_TEST

/* NaN and infinities give the results of IEEE arithmetic. */
START_TEST(special_values)
{
    const double a[] = {INFINITY, -INFINITY, NAN, 0, 3e38, 65504},
                 b[] = {1, INFINITY, 1, -0.0, 3e38, 65504};
    double got[6];
    int64_t shape[] = {6};
    tsr_tensor *x = gpu_new(TSR_F32, 1, shape), *z = gpu_new(TSR_F32, 1, shape),
               *y = gpu_new(TSR_F16, 1, shape);
    gpu_put(x, a);
    gpu_put(z, b);
    GPU_OK(tsr_binary(queue, y, x, z, TSR_BINARY_ADD));
    gpu_get(y, got);
    for (int i = 0; i < 6; i++) {
        double want = gpu_rounded(gpu_rounded(a[i], TSR_F32) + gpu_rounded(b[i], TSR_F32), TSR_F16);
        ck_assert_msg(isnan(want) ? isnan(got[i]) : got[i] == want, "%g + %g is %g", a[i], b[i],
                      got[i]);
    }
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&z);
    tsr_tensor_destroy(&x);
}
END_TEST

/* There are more invocations than the grid holds in one dimension: more than 4 · 128 · 65535
 * elements. */
START_TEST(large)
{
    int64_t shape[] = {4 * 128 * 65535 + 1001};
    tsr_tensor *y = gpu_new(TSR_BF16, 1, shape), *end;
    double got[1001];
    GPU_OK(tsr_fill(queue, y, 3));
    GPU_OK(tsr_scale(queue, y, y, 2, 1));
    GPU_OK(tsr_tensor_slice(y, 0, -1001, TSR_END, 1, &end));
    gpu_get(end, got);
    for (int i = 0; i < 1001; i++)
        ck_assert_double_eq(got[i], 7);
    tsr_tensor_destroy(&end);
    tsr_tensor_destroy(&y);
}
END_TEST

START_TEST(refuses)
{
    int64_t shape[] = {2, 3}, other[] = {4}, row[] = {3};
    tsr_tensor *x = gpu_new(TSR_F32, 2, shape), *i = gpu_new(TSR_U8, 2, shape),
               *o = gpu_new(TSR_F32, 1, other), *wide, *part, *r = gpu_new(TSR_F32, 1, row);
    GPU_FAILS(tsr_binary(NULL, x, x, x, TSR_BINARY_ADD), TSR_ERR_INVALID, "add: stream is NULL");
    GPU_FAILS(tsr_binary(queue, NULL, x, x, TSR_BINARY_ADD), TSR_ERR_INVALID, "add: y is NULL");
    GPU_FAILS(tsr_binary(queue, x, NULL, x, TSR_BINARY_SUB), TSR_ERR_INVALID, "sub: a is NULL");
    GPU_FAILS(tsr_binary(queue, x, x, NULL, TSR_BINARY_MUL), TSR_ERR_INVALID, "mul: b is NULL");
    GPU_FAILS(tsr_scale(queue, x, NULL, 1, 0), TSR_ERR_INVALID, "scale: x is NULL");
    GPU_FAILS(tsr_axpy(queue, x, 1, NULL), TSR_ERR_INVALID, "axpy: x is NULL");
    GPU_FAILS(tsr_binary(queue, i, x, x, TSR_BINARY_ADD), TSR_ERR_INVALID,
              "add: y is u8; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_binary(queue, x, i, x, TSR_BINARY_ADD), TSR_ERR_INVALID, "add: a is u8");
    GPU_FAILS(tsr_binary(queue, x, x, i, TSR_BINARY_ADD), TSR_ERR_INVALID, "add: b is u8");
    GPU_FAILS(tsr_binary(queue, x, o, x, TSR_BINARY_ADD), TSR_ERR_INVALID,
              "add: a [4] does not broadcast to y [2,3]");
    GPU_FAILS(tsr_binary(queue, x, x, o, TSR_BINARY_MUL), TSR_ERR_INVALID,
              "mul: b [4] does not broadcast to y [2,3]");
    GPU_FAILS(tsr_axpy(queue, r, 1, x), TSR_ERR_INVALID,
              "axpy: x [2,3] does not broadcast to y [3]");

    GPU_OK(tsr_tensor_broadcast(r, 2, shape, &wide));
    GPU_FAILS(tsr_scale(queue, wide, x, 1, 0), TSR_ERR_INVALID,
              "scale: y is a view [2,3] that names an element more than once");
    tsr_tensor_destroy(&wide);
    GPU_OK(tsr_tensor_select(x, 0, 0, &part));
    GPU_FAILS(tsr_binary(queue, x, x, part, TSR_BINARY_ADD), TSR_ERR_INVALID,
              "add: y [2,3] overlaps b [2,3]");
    tsr_tensor_destroy(&part);
    tsr_tensor *half = gpu_new(TSR_F16, 2, shape), *other_half = gpu_as(half, TSR_BF16);
    GPU_FAILS(tsr_binary(queue, other_half, x, half, TSR_BINARY_ADD), TSR_ERR_INVALID,
              "add: y [2,3] overlaps b [2,3] in one buffer as another dtype");
    tsr_tensor_destroy(&other_half);
    tsr_tensor_destroy(&half);
    tsr_tensor_destroy(&r);
    tsr_tensor_destroy(&o);
    tsr_tensor_destroy(&i);
    tsr_tensor_destroy(&x);
}
END_TEST

TESTS(elementwise)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, random_views, 0, FUNCTIONS);
    tcase_add_loop_test(tests, transposed_inputs, 0, 5);
    tcase_add_test(tests, in_place);
    tcase_add_test(tests, special_values);
    tcase_add_test(tests, large);
    tcase_add_test(tests, refuses);
}
