/* Compares selection by index along any dimension, and its gradient, with the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/gpu.h"

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};
static const tsr_dtype all_dtypes[] = {TSR_F32, TSR_F16, TSR_BF16, TSR_I32, TSR_U32, TSR_U8};
static const tsr_dtype index_dtypes[] = {TSR_I32, TSR_I64, TSR_U32, TSR_U8};

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

typedef struct selection {
    int ndim, dim;
    int64_t shape[TSR_MAX_DIMS], y_shape[TSR_MAX_DIMS]; /* the shapes of x and of y */
    int64_t outer, inner;                               /* elements before and after `dim` */
    tsr_dtype x, y, indices;
    bool views, accumulate;
} selection;

static void finish(selection *s, int64_t indices)
{
    memcpy(s->y_shape, s->shape, sizeof s->shape);
    s->y_shape[s->dim] = indices;
    s->outer = s->inner = 1;
    for (int d = 0; d < s->ndim; d++) {
        s->outer *= d < s->dim ? s->shape[d] : 1;
        s->inner *= d > s->dim ? s->shape[d] : 1;
    }
}

static selection random_selection(gpu_random *random)
{
    selection s = {.ndim = (int)gpu_random_between(random, 1, 5),
                   .views = true,
                   .accumulate = gpu_random_between(random, 0, 1) == 1,
                   .indices = index_dtypes[gpu_random_between(random, 0, 3)]};
    s.dim = (int)gpu_random_between(random, 0, s.ndim - 1);
    for (int d = 0; d < s.ndim; d++)
        s.shape[d] = gpu_random_between(random, gpu_random_between(random, 0, 20) > 0, 6);
    finish(&s, gpu_random_between(random, 0, 12));
    return s;
}

/* Makes indices, of which a few are outside the dimension. */
static tsr_tensor *make_indices(gpu_random *random, const selection *s, double *values,
                                tsr_tensor **parent)
{
    const int64_t count = s->y_shape[s->dim], size = s->shape[s->dim];
    const bool has_sign = s->indices == TSR_I32 || s->indices == TSR_I64;
    tsr_tensor *indices = gpu_random_view(random, s->indices, 1, &count, parent);
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)gpu_random_between(random, has_sign ? -1 : 0, size);
    if (s->indices == TSR_I64 && count > 2)
        values[1] = 0x1p32 + 1; /* is 1 for a kernel that ignores the upper word */
    gpu_put(indices, values);
    return indices;
}

static tsr_tensor *make(gpu_random *random, const selection *s, tsr_dtype dtype,
                        const int64_t *shape, double *values, tsr_tensor **parent)
{
    int64_t count = 1;
    for (int d = 0; d < s->ndim; d++)
        count *= shape[d];
    *parent = NULL;
    tsr_tensor *tensor = s->views ? gpu_random_view(random, dtype, s->ndim, shape, parent)
                                  : gpu_new(dtype, s->ndim, shape);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded((double)gpu_random_between(random, 0, 200) / 8, dtype);
    gpu_put(tensor, values);
    return tensor;
}

typedef struct operands {
    int64_t count, y_count;
    double *x_values, *y_values, *indices_values;
    tsr_tensor *x, *y, *indices, *parents[3];
} operands;

static operands make_operands(gpu_random *random, const selection *s)
{
    operands o = {.count = s->outer * s->shape[s->dim] * s->inner,
                  .y_count = s->outer * s->y_shape[s->dim] * s->inner};
    o.x_values = doubles(o.count);
    o.y_values = doubles(o.y_count);
    o.indices_values = doubles(s->y_shape[s->dim]);
    o.x = make(random, s, s->x, s->shape, o.x_values, &o.parents[0]);
    o.y = make(random, s, s->y, s->y_shape, o.y_values, &o.parents[1]);
    o.indices = make_indices(random, s, o.indices_values, &o.parents[2]);
    return o;
}

static void drop(operands *o)
{
    free(o->x_values);
    free(o->y_values);
    free(o->indices_values);
    tsr_tensor *all[] = {o->x, o->y, o->indices};
    for (int i = 0; i < 3; i++) {
        tsr_tensor_destroy(&all[i]);
        tsr_tensor_destroy(&o->parents[i]);
    }
}

/* Returns the element of x that index number r selects, for one position in the other dimensions,
 * or -1 if there is none. */
static int64_t source(const selection *s, const operands *o, int64_t outer, int64_t r,
                      int64_t inner)
{
    const double index = o->indices_values[r];
    if (index < 0 || index >= (double)s->shape[s->dim])
        return -1;
    return (outer * s->shape[s->dim] + (int64_t)index) * s->inner + inner;
}

static void check_select(gpu_random *random, const selection *s)
{
    operands o = make_operands(random, s);
    const int64_t rows = s->y_shape[s->dim];
    double *got = doubles(o.y_count);
    GPU_OK(tsr_index_select(
        queue, o.y, o.x, gpu_random_between(random, 0, 1) ? s->dim : s->dim - s->ndim, o.indices));
    gpu_get(o.y, got);
    for (int64_t n = 0; n < o.y_count; n++) {
        const int64_t from = source(s, &o, n / s->inner / rows, n / s->inner % rows, n % s->inner);
        const double want = from < 0 ? 0 : gpu_rounded(o.x_values[from], s->y);
        if (got[n] != want)
            ck_abort_msg("%s to %s, dim %d of %d, element %lld: %g instead of %g",
                         tsr_dtype_name(s->x), tsr_dtype_name(s->y), s->dim, s->ndim, (long long)n,
                         got[n], want);
    }
    free(got);
    drop(&o);
}

/* Checks the gradient. Here s->shape is the shape of dx, and s->y_shape that of dy. */
static void check_grad(gpu_random *random, const selection *s)
{
    operands o = make_operands(random, s);
    const int64_t rows = s->y_shape[s->dim];
    double *got = doubles(o.count);
    if (!s->accumulate)
        memset(o.x_values, 0, (size_t)o.count * sizeof *o.x_values);
    for (int64_t outer = 0; outer < s->outer; outer++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t inner = 0; inner < s->inner; inner++) {
                const int64_t to = source(s, &o, outer, r, inner);
                const int64_t from = (outer * rows + r) * s->inner + inner;
                if (to >= 0)
                    o.x_values[to] = gpu_rounded(o.x_values[to] + o.y_values[from], s->x);
            }
    GPU_OK(tsr_index_select_grad(queue, o.x, o.y, s->dim, o.indices, s->accumulate));
    gpu_get(o.x, got);
    for (int64_t n = 0; n < o.count; n++)
        if (got[n] != o.x_values[n])
            ck_abort_msg("%s from %s, dim %d of %d, element %lld: %g instead of %g",
                         tsr_dtype_name(s->x), tsr_dtype_name(s->y), s->dim, s->ndim, (long long)n,
                         got[n], o.x_values[n]);
    free(got);
    drop(&o);
}

START_TEST(selects)
{
    gpu_random random = {(uint64_t)_i};
    for (int i = 0; i < 25; i++) {
        selection s = random_selection(&random);
        s.x = s.y = all_dtypes[_i];
        if (_i < 3 && i % 5 == 0)
            s.y = floats[(_i + 1) % 3];
        check_select(&random, &s);
    }
}
END_TEST

START_TEST(adds)
{
    gpu_random random = {20 + (uint64_t)_i};
    for (int i = 0; i < 25; i++) {
        selection s = random_selection(&random);
        s.x = floats[_i];
        s.y = floats[(_i + (i % 5 == 0)) % 3];
        check_grad(&random, &s);
    }
}
END_TEST

/* Tests longer dimensions without gaps, in which many indices select each element. */
START_TEST(larger)
{
    static const selection cases[] = {
        {.ndim = 1, .dim = 0, .shape = {300}, .x = TSR_F32, .y = TSR_F32, .indices = TSR_I32},
        {.ndim = 2, .dim = 0, .shape = {40, 130}, .x = TSR_F32, .y = TSR_F32, .indices = TSR_I64},
        {.ndim = 2, .dim = 1, .shape = {130, 40}, .x = TSR_BF16, .y = TSR_BF16, .indices = TSR_I32},
        {.ndim = 3, .dim = 1, .shape = {5, 33, 70}, .x = TSR_F16, .y = TSR_F32, .indices = TSR_U8},
        {.ndim = 4,
         .dim = 2,
         .shape = {3, 2, 20, 17},
         .x = TSR_F32,
         .y = TSR_BF16,
         .indices = TSR_U32},
    };
    gpu_random random = {40 + (uint64_t)_i};
    selection s = cases[_i];
    finish(&s, 2000);
    check_select(&random, &s);
    check_grad(&random, &s);
    s.accumulate = true;
    check_grad(&random, &s);
}
END_TEST

/* There are more indices than 65535. lavapipe ends loops after that many iterations, so no loop
 * may go over all indices. */
START_TEST(many_indices)
{
    if (getenv("TEST_DRIVER_OF"))
        SKIP("Mesa's CPU driver ends loops after 65535 iterations, and the library takes it for a "
             "GPU here");
    const int64_t count = 70001, size = 3;
    double *values = doubles(count), got[9];
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)(i % 3);
    tsr_tensor *indices = gpu_new(TSR_I32, 1, &count),
               *dx = gpu_new(TSR_F32, 2, (int64_t[]){3, size}),
               *dy = gpu_new(TSR_F32, 2, (int64_t[]){_i == 0 ? count : 3, _i == 0 ? 3 : count});
    gpu_put(indices, values);
    GPU_OK(tsr_fill(queue, dy, 1));
    GPU_OK(tsr_index_select_grad(queue, dx, dy, _i, indices, false));
    gpu_get(dx, got);
    for (int i = 0; i < 9; i++)
        ck_assert_double_eq(got[i], (_i == 0 ? i / 3 : i % 3) < 2 ? 23334 : 23333);
    tsr_tensor_destroy(&dy);
    tsr_tensor_destroy(&dx);
    tsr_tensor_destroy(&indices);
    free(values);
}
END_TEST

/* If x has no elements, the result is 0. */
START_TEST(empty)
{
    int64_t none[] = {3, 0}, some[] = {3, 4}, four = 4;
    double got[12];
    tsr_tensor *x = gpu_new(TSR_F32, 2, none), *y = gpu_new(TSR_F32, 2, some),
               *indices = gpu_new(TSR_I32, 1, &four);
    gpu_put(indices, (double[]){0, 1, 2, 3});
    gpu_poison(y);
    GPU_OK(tsr_index_select(queue, y, x, 1, indices));
    gpu_get(y, got);
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq(got[i], 0);
    GPU_OK(tsr_index_select_grad(queue, x, y, 1, indices, false));
    tsr_tensor_destroy(&indices);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(refuses)
{
    int64_t shape[] = {2, 3}, y_shape[] = {2, 4}, four = 4, square[] = {2, 2};
    tsr_tensor *x = gpu_new(TSR_F32, 2, shape), *y = gpu_new(TSR_F32, 2, y_shape),
               *indices = gpu_new(TSR_I32, 1, &four), *i = gpu_new(TSR_I32, 2, y_shape),
               *xi = gpu_new(TSR_U32, 2, shape), *i2 = gpu_new(TSR_I32, 2, square),
               *f = gpu_as(indices, TSR_F32);
    GPU_FAILS(tsr_index_select(NULL, y, x, 1, indices), TSR_ERR_INVALID,
              "index_select: stream is NULL");
    GPU_FAILS(tsr_index_select(queue, NULL, x, 1, indices), TSR_ERR_INVALID,
              "index_select: y is NULL");
    GPU_FAILS(tsr_index_select(queue, y, NULL, 1, indices), TSR_ERR_INVALID,
              "index_select: x is NULL");
    GPU_FAILS(tsr_index_select(queue, y, x, 1, NULL), TSR_ERR_INVALID,
              "index_select: indices is NULL");
    GPU_FAILS(tsr_index_select(queue, y, x, 1, f), TSR_ERR_INVALID,
              "index_select: indices are f32, not i32, i64, u32 or u8");
    GPU_FAILS(tsr_index_select(queue, y, x, 1, i2), TSR_ERR_INVALID,
              "index_select: indices are [2,2]; they must have one dimension");
    GPU_FAILS(tsr_index_select(queue, y, x, 2, indices), TSR_ERR_INVALID,
              "index_select: dim 2 is outside a tensor of 2 dimensions");
    GPU_FAILS(tsr_index_select(queue, y, x, 0, indices), TSR_ERR_INVALID,
              "index_select: y is [2,4]; x [2,3] with 4 indices along dim 0 is [4,3]");
    GPU_FAILS(tsr_index_select(queue, i, x, 1, indices), TSR_ERR_INVALID,
              "index_select: x is f32 and y i32; dtypes other than floats must be the same");
    GPU_FAILS(tsr_index_select_grad(queue, xi, y, 1, indices, false), TSR_ERR_INVALID,
              "index_select_grad: dx is u32; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_index_select_grad(queue, x, i, 1, indices, false), TSR_ERR_INVALID,
              "index_select_grad: dy is i32");
    GPU_FAILS(tsr_index_select_grad(queue, x, x, 1, indices, false), TSR_ERR_INVALID,
              "index_select_grad: dy is [2,3]; dx [2,3] with 4 indices along dim 1 is [2,4]");
    tsr_tensor *part, *row;
    GPU_OK(tsr_tensor_slice(y, 1, 1, TSR_END, 1, &part));
    GPU_FAILS(tsr_index_select(queue, y, part, 1, indices), TSR_ERR_INVALID,
              "index_select: y [2,4] overlaps x [2,3]");
    GPU_FAILS(tsr_index_select_grad(queue, part, y, 1, indices, true), TSR_ERR_INVALID,
              "index_select_grad: dx [2,3] overlaps dy [2,4]");
    GPU_OK(tsr_tensor_select(i, 0, 1, &row));
    GPU_FAILS(tsr_index_select(queue, i, xi, 1, row), TSR_ERR_INVALID, "index_select: x is u32");
    tsr_tensor *xs = gpu_as(xi, TSR_I32);
    GPU_FAILS(tsr_index_select(queue, i, xs, 1, row), TSR_ERR_INVALID,
              "index_select: y [2,4] overlaps indices [4]");
    tsr_tensor *all[] = {xs, row, part, f, i2, xi, i, indices, y, x};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        tsr_tensor_destroy(&all[n]);
}
END_TEST

TESTS(index_select)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, selects, 0, 6);
    tcase_add_loop_test(tests, adds, 0, 3);
    tcase_add_loop_test(tests, larger, 0, 5);
    tcase_add_loop_test(tests, many_indices, 0, 2);
    tcase_add_test(tests, empty);
    tcase_add_test(tests, refuses);
}

TESTS(index_select_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu_packed, gpu_teardown);
    tcase_add_loop_test(tests, selects, 0, 2);
    tcase_add_loop_test(tests, adds, 1, 3);
    tcase_add_loop_test(tests, larger, 0, 5);
}
