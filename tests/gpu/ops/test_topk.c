/* Compares top-k with a sort on the host: ties, NaN, zeros of both signs, any strides. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/gpu.h"

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

typedef struct entry {
    double value;
    int64_t index;
} entry;

static int descending(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const int nan_x = isnan(x->value), nan_y = isnan(y->value);
    if (nan_x != nan_y)
        return nan_y - nan_x;
    if (!nan_x && x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

/* A tensor with `count` elements along `dim`, of which the k largest are wanted. */
typedef struct topk_case {
    int ndim, dim;
    int64_t shape[TSR_MAX_DIMS];
    int64_t k;
    tsr_dtype dtype;
    bool views;
} topk_case;

/* Returns the first element of row `row` along c->dim, in row-major order of a tensor whose size
 * along `dim` is `count`. *step is the distance between the row's elements. */
static int64_t row_start(const topk_case *c, int64_t row, int64_t count, int64_t *step)
{
    int64_t inner = 1;
    for (int d = c->dim + 1; d < c->ndim; d++)
        inner *= c->shape[d];
    *step = inner;
    return row / inner * inner * count + row % inner;
}

static void check_row(const topk_case *c, int64_t row, const double *x, const double *values,
                      const double *indices)
{
    const int64_t count = c->shape[c->dim];
    int64_t step, out_step;
    const int64_t at = row_start(c, row, count, &step), out = row_start(c, row, c->k, &out_step);
    entry *entries = calloc((size_t)count, sizeof *entries);
    ck_assert_ptr_nonnull(entries);
    for (int64_t i = 0; i < count; i++)
        entries[i] = (entry){x[at + i * step], i};
    qsort(entries, (size_t)count, sizeof *entries, descending);
    for (int64_t i = 0; i < c->k; i++) {
        const double value = values[out + i * out_step], index = indices[out + i * out_step];
        if (index != (double)entries[i].index ||
            !(isnan(value) ? isnan(entries[i].value) : value == entries[i].value))
            ck_abort_msg("row %lld, number %lld of %lld of %lld: %g at %g instead of %g at %lld",
                         (long long)row, (long long)i, (long long)c->k, (long long)count, value,
                         index, entries[i].value, (long long)entries[i].index);
    }
    free(entries);
}

static tsr_tensor *make(gpu_random *random, const topk_case *c, tsr_dtype dtype, int64_t size,
                        tsr_tensor **parent)
{
    int64_t shape[TSR_MAX_DIMS];
    memcpy(shape, c->shape, sizeof shape);
    shape[c->dim] = size;
    if (c->views)
        return gpu_random_view(random, dtype, c->ndim, shape, parent);
    *parent = NULL;
    tsr_tensor *tensor = gpu_new(dtype, c->ndim, shape);
    gpu_poison(tensor);
    return tensor;
}

static void check_case(gpu_random *random, const topk_case *c)
{
    int64_t rows = 1;
    for (int d = 0; d < c->ndim; d++)
        rows *= d == c->dim ? 1 : c->shape[d];
    const int64_t count = c->shape[c->dim];
    tsr_tensor *parents[3], *x = make(random, c, c->dtype, count, &parents[0]),
                            *values = make(random, c, c->dtype, c->k, &parents[1]),
                            *indices = make(random, c, TSR_I32, c->k, &parents[2]);
    double *in = doubles(rows * count), *got = doubles(rows * c->k), *at = doubles(rows * c->k);
    for (int64_t i = 0; i < rows * count; i++) {
        in[i] = gpu_rounded((double)gpu_random_between(random, -300, 300) / 16, c->dtype);
        if (gpu_random_between(random, 0, 40) == 0)
            in[i] = (double[]){NAN, INFINITY, -INFINITY, -0.0}[gpu_random_between(random, 0, 3)];
    }
    gpu_put(x, in);
    GPU_OK(tsr_topk(queue, values, indices, x,
                    gpu_random_between(random, 0, 1) ? c->dim : c->dim - c->ndim));
    gpu_get(values, got);
    gpu_get(indices, at);
    /* Compares only some of many long rows, because sorting all of them completely on the host
     * would take too long. */
    for (int64_t row = 0; row < rows && c->k > 0; row += rows * count > 1000000 ? 51 : 1)
        check_row(c, row, in, got, at);
    free(in);
    free(got);
    free(at);
    tsr_tensor *all[] = {x, values, indices};
    for (int i = 0; i < 3; i++) {
        tsr_tensor_destroy(&all[i]);
        tsr_tensor_destroy(&parents[i]);
    }
}

START_TEST(random_views)
{
    gpu_random random = {(uint64_t)_i};
    for (int n = 0; n < 40; n++) {
        topk_case c = {
            .ndim = (int)gpu_random_between(&random, 1, 5), .dtype = floats[_i % 3], .views = true};
        c.dim = (int)gpu_random_between(&random, 0, c.ndim - 1);
        for (int d = 0; d < c.ndim; d++)
            c.shape[d] = gpu_random_between(&random, gpu_random_between(&random, 0, 30) > 0, 5);
        c.shape[c.dim] = gpu_random_between(&random, 1, gpu_random_between(&random, 1, 60));
        c.k = gpu_random_between(&random, 0, c.shape[c.dim]);
        check_case(&random, &c);
    }
}
END_TEST

/* One long row, a few long rows, many short rows, and k equal to all elements. */
START_TEST(shapes)
{
    static const topk_case cases[] = {
        {.ndim = 1, .shape = {50257}, .k = 50},
        {.ndim = 2, .dim = 1, .shape = {3, 10007}, .k = 40},
        {.ndim = 2, .dim = 0, .shape = {999, 5}, .k = 7},
        {.ndim = 2, .dim = 1, .shape = {700, 64}, .k = 8},
        {.ndim = 2, .dim = 1, .shape = {300, 300}, .k = 3},
        {.ndim = 2, .dim = 1, .shape = {2, 500}, .k = 500},
        {.ndim = 3, .dim = 1, .shape = {3, 40, 9}, .k = 1},
        {.ndim = 2, .dim = 1, .shape = {5, 1}, .k = 1},
        {.ndim = 2, .dim = 1, .shape = {260, 66000}, .k = 20},
    };
    gpu_random random = {17};
    topk_case c = cases[_i];
    c.dtype = floats[_i % 3];
    check_case(&random, &c);
}
END_TEST

/* There are so many outputs that they are divided among several dispatches. */
START_TEST(several_dispatches)
{
    gpu_random random = {18};
    const topk_case c = {.ndim = 2, .dim = 1, .shape = {256, 2100}, .k = 900, .dtype = TSR_F32};
    check_case(&random, &c);
}
END_TEST

/* Rows in which all elements are equal, and rows of NaN. */
START_TEST(equal_elements)
{
    int64_t shape[] = {4, 20}, few[] = {4, 5};
    double x[80], values[20], indices[20];
    for (int i = 0; i < 80; i++)
        x[i] = i < 20 ? NAN : i < 40 ? -INFINITY : i < 60 ? (i % 2 ? 0.0 : -0.0) : 7;
    tsr_tensor *tx = gpu_new(TSR_F32, 2, shape), *tv = gpu_new(TSR_F32, 2, few),
               *ti = gpu_new(TSR_I32, 2, few);
    gpu_put(tx, x);
    GPU_OK(tsr_topk(queue, tv, ti, tx, -1));
    gpu_get(tv, values);
    gpu_get(ti, indices);
    for (int i = 0; i < 20; i++) {
        ck_assert_double_eq(indices[i], i % 5);
        ck_assert(i < 5 ? isnan(values[i]) : values[i] == x[20 * (i / 5)]);
    }
    tsr_tensor_destroy(&ti);
    tsr_tensor_destroy(&tv);
    tsr_tensor_destroy(&tx);
}
END_TEST

START_TEST(refuses)
{
    int64_t shape[] = {2, 3}, more[] = {2, 4}, other[] = {3, 2};
    tsr_tensor *x = gpu_new(TSR_F32, 2, shape), *v = gpu_new(TSR_F32, 2, shape),
               *i = gpu_new(TSR_I32, 2, shape), *half = gpu_new(TSR_F16, 2, shape),
               *v4 = gpu_new(TSR_F32, 2, more), *i4 = gpu_new(TSR_I32, 2, more),
               *vo = gpu_new(TSR_F32, 2, other), *io = gpu_new(TSR_I32, 2, other);
    tsr_tensor *as_indices = gpu_as(x, TSR_I32);
    GPU_FAILS(tsr_topk(NULL, v, i, x, 0), TSR_ERR_INVALID, "topk: stream is NULL");
    GPU_FAILS(tsr_topk(queue, NULL, i, x, 0), TSR_ERR_INVALID, "topk: values is NULL");
    GPU_FAILS(tsr_topk(queue, v, NULL, x, 0), TSR_ERR_INVALID, "topk: indices is NULL");
    GPU_FAILS(tsr_topk(queue, v, i, NULL, 0), TSR_ERR_INVALID, "topk: x is NULL");
    GPU_FAILS(tsr_topk(queue, v, x, x, 0), TSR_ERR_INVALID, "topk: indices are f32; i32 is needed");
    GPU_FAILS(tsr_topk(queue, i, i, x, 0), TSR_ERR_INVALID, "topk: values is i32");
    GPU_FAILS(tsr_topk(queue, half, i, x, 0), TSR_ERR_INVALID,
              "topk: values are f16 and x is f32; they must be the same");
    GPU_FAILS(tsr_topk(queue, v, i, x, 2), TSR_ERR_INVALID,
              "topk: dim 2 is outside a tensor of 2 dimensions");
    GPU_FAILS(tsr_topk(queue, v4, i, x, 1), TSR_ERR_INVALID, "topk: values is [2,4]");
    GPU_FAILS(tsr_topk(queue, v4, i4, x, 1), TSR_ERR_INVALID,
              "topk: 4 elements are wanted, but x has 3 in dim 1");
    GPU_FAILS(tsr_topk(queue, vo, io, x, 1), TSR_ERR_INVALID,
              "topk: values are [3,2]; x is [2,3], and may differ along dim 1 only");
    GPU_FAILS(tsr_topk(queue, x, i, x, 1), TSR_ERR_INVALID, "topk: values [2,3] overlaps x [2,3]");
    GPU_FAILS(tsr_topk(queue, v, as_indices, x, 1), TSR_ERR_INVALID,
              "topk: indices [2,3] overlaps x [2,3]");
    tsr_tensor *all[] = {x, v, i, half, v4, i4, vo, io, as_indices};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        tsr_tensor_destroy(&all[n]);
}
END_TEST

TESTS(topk)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, random_views, 0, 3);
    tcase_add_loop_test(tests, shapes, 0, 8);
    tcase_add_test(tests, equal_elements);
    tcase_add_test(tests, refuses);
}

TESTS(topk_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, shapes, 8, 9);
    tcase_add_test(tests, several_dispatches);
}

TESTS(topk_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu_packed, gpu_teardown);
    tcase_add_loop_test(tests, random_views, 1, 2);
    tcase_add_loop_test(tests, shapes, 0, 8);
}
