/* Compares tsr_reduce and tsr_argmax with references in double precision, and with the documented
 * tree of additions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "support/check_main.h"
#include "support/close.h"
#include "support/gpu.h"

/* Functions that the tests share */

static double *doubles(int64_t count)
{
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

static int64_t product(int ndim, const int64_t *shape)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    return count;
}

/* A row-major array as seen along dimension `dim`: element (o, i, j) is at (o·count + j)·inner +
 * i. */
typedef struct walk {
    int64_t outer, count, inner;
} walk;

static walk walk_of(int ndim, const int64_t *shape, int dim)
{
    return (walk){product(dim, shape), shape[dim], product(ndim - dim - 1, shape + dim + 1)};
}

static int result_shape(int ndim, const int64_t *shape, int dim, bool keep, int64_t *out)
{
    int out_ndim = 0;
    for (int d = 0; d < ndim; d++)
        if (d != dim || keep)
            out[out_ndim++] = d == dim ? 1 : shape[d];
    return out_ndim;
}

/* Reduces `count` doubles, `step` apart. *magnitude is the sum of absolute values, for error
 * bounds. */
static double reduced(const double *x, int64_t count, int64_t step, tsr_reduction how,
                      double *magnitude)
{
    double sum = 0, largest = -INFINITY, smallest = INFINITY;
    bool nan = false;
    *magnitude = 0;
    for (int64_t j = 0; j < count; j++) {
        double value = x[j * step];
        sum += value;
        *magnitude += fabs(value);
        nan = nan || isnan(value);
        largest = value > largest ? value : largest;
        smallest = value < smallest ? value : smallest;
    }
    if (how == TSR_REDUCE_SUM || how == TSR_REDUCE_MEAN) {
        *magnitude /= how == TSR_REDUCE_MEAN ? (double)count : 1;
        return how == TSR_REDUCE_MEAN ? sum / (double)count : sum;
    }
    *magnitude = 0;
    return nan ? NAN : how == TSR_REDUCE_MAX ? largest : smallest;
}

/* Any shapes, dtypes and strides */

static void random_case(gpu_random *random)
{
    static const tsr_dtype x_dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const tsr_dtype y_dtypes[] = {TSR_F32, TSR_F32, TSR_F16};
    int dtypes = (int)gpu_random_between(random, 0, 2);
    tsr_dtype x_dtype = x_dtypes[dtypes], y_dtype = y_dtypes[dtypes];
    int ndim = (int)gpu_random_between(random, 1, 4);
    int dim = (int)gpu_random_between(random, 0, ndim - 1);
    int64_t shape[TSR_MAX_DIMS], y_shape[TSR_MAX_DIMS];
    for (int d = 0; d < ndim; d++) {
        int64_t most = gpu_random_between(random, 0, 3) == 0 ? (ndim == 1 ? 3000 : 70) : 9;
        shape[d] = gpu_random_between(random, 0, 15) == 0 ? 0 : gpu_random_between(random, 1, most);
    }
    tsr_reduction how = (tsr_reduction)gpu_random_between(random, 1, 4);
    if (shape[dim] == 0)
        how = TSR_REDUCE_SUM;
    bool accumulate =
        (how == TSR_REDUCE_SUM || how == TSR_REDUCE_MEAN) && gpu_random_between(random, 0, 2) == 0;
    bool keep = gpu_random_between(random, 0, 1) == 1;
    int y_ndim = result_shape(ndim, shape, dim, keep, y_shape);

    tsr_tensor *x_parent, *y_parent;
    tsr_tensor *x = gpu_random_view(random, x_dtype, ndim, shape, &x_parent);
    tsr_tensor *y = gpu_random_view(random, y_dtype, y_ndim, y_shape, &y_parent);
    int64_t x_count = product(ndim, shape), y_count = product(y_ndim, y_shape);
    double *x_values = doubles(x_count), *y_values = doubles(y_count), *got = doubles(y_count);
    for (int64_t i = 0; i < x_count; i++)
        x_values[i] = gpu_rounded(gpu_random_unit(random) * 4, x_dtype);
    for (int64_t i = 0; i < y_count; i++)
        y_values[i] = gpu_rounded(gpu_random_unit(random), y_dtype);
    gpu_put(x, x_values);
    if (accumulate)
        gpu_put(y, y_values);

    GPU_OK(tsr_reduce(queue, y, x, gpu_random_between(random, 0, 1) ? dim : dim - ndim, how,
                      accumulate));
    gpu_get(y, got);
    walk at = walk_of(ndim, shape, dim);
    for (int64_t o = 0; o < at.outer; o++)
        for (int64_t i = 0; i < at.inner; i++) {
            double magnitude, start = accumulate ? y_values[o * at.inner + i] : 0;
            double want = start + reduced(x_values + o * at.count * at.inner + i, at.count,
                                          at.inner, how, &magnitude);
            assert_close(got[o * at.inner + i], want,
                         2e-6 * (magnitude + fabs(start)) + storage_error(want, y_dtype), "reduce",
                         o * at.inner + i);
        }

    free(x_values);
    free(y_values);
    free(got);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x_parent);
    tsr_tensor_destroy(&y_parent);
}

START_TEST(reduces_random_views)
{
    gpu_random random = {11};
    for (int i = 0; i < 100; i++)
        random_case(&random);
}
END_TEST

/* The order of additions, which is a tree */

/* Reduces one chunk in f32 in the documented order: lane j % 32, halved over j / 4 % 8, then over
 * j % 4. */
static float chunk_sum(const float *x, int64_t count, int64_t step)
{
    float lanes[8][4] = {{0}};
    for (int64_t j = 0; j < count; j++)
        lanes[j / 4 % 8][j % 4] += x[j * step];
    for (int other = 4; other > 0; other /= 2)
        for (int i = 0; i < other; i++)
            for (int k = 0; k < 4; k++)
                lanes[i][k] += lanes[i + other][k];
    return (lanes[0][0] + lanes[0][2]) + (lanes[0][1] + lanes[0][3]);
}

static float tree_sum(const float *x, int64_t rows, int64_t count, int64_t step)
{
    int64_t chunk = rows >= 4096 / (count / 1024 + 1) ? 1024 : 256;
    if (count <= chunk)
        return chunk_sum(x, count, step);
    int64_t chunks = (count + chunk - 1) / chunk;
    float *partial = malloc((size_t)chunks * sizeof *partial);
    ck_assert_ptr_nonnull(partial);
    for (int64_t c = 0; c < chunks; c++) {
        int64_t length = c + 1 < chunks ? chunk : count - c * chunk;
        partial[c] = chunk_sum(x + c * chunk * step, length, step);
    }
    float sum = tree_sum(partial, rows, chunks, 1);
    free(partial);
    return sum;
}

/* Sums [rows, count] along its last dimension and compares the bits with those of the tree on
 * the host. */
static void assert_tree(tsr_tensor *x, const float *values, int64_t rows, int64_t count)
{
    tsr_tensor *y = gpu_new(TSR_F32, 1, &rows);
    float *got = malloc((size_t)rows * sizeof *got);
    ck_assert_ptr_nonnull(got);
    for (int run = 0; run < 2; run++) {
        gpu_poison(y);
        GPU_OK(tsr_reduce(queue, y, x, 1, TSR_REDUCE_SUM, false));
        GPU_OK(tsr_tensor_download(queue, y, got, (uint64_t)rows * sizeof *got));
        for (int64_t r = 0; r < rows; r++) {
            float want = tree_sum(values + r * count, rows, count, 1);
            if (memcmp(&got[r], &want, sizeof want) != 0)
                ck_abort_msg("run %d: row %lld of [%lld,%lld] sums to %a, not %a", run,
                             (long long)r, (long long)rows, (long long)count, (double)got[r],
                             (double)want);
        }
    }
    free(got);
    tsr_tensor_destroy(&y);
}

/* Sums the rows of a matrix in three layouts: contiguous, transposed (the kernel then sums
 * columns), and with gaps. The layouts use different kernels, but must give the same bits. */
static void tree_case(gpu_random *random, int64_t rows, int64_t count)
{
    float *values = malloc((size_t)(rows * count) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < rows * count; i++)
        values[i] =
            (float)(gpu_random_unit(random) * ldexp(1, (int)gpu_random_between(random, -8, 8)));
    uint64_t bytes = (uint64_t)(rows * count) * sizeof *values;

    tsr_tensor *dense = gpu_new(TSR_F32, 2, (int64_t[]){rows, count});
    GPU_OK(tsr_tensor_upload(queue, dense, values, bytes));
    assert_tree(dense, values, rows, count);
    tsr_tensor_destroy(&dense);

    tsr_tensor *columns = gpu_new(TSR_F32, 2, (int64_t[]){count, rows}), *transposed;
    GPU_OK(tsr_tensor_transpose(columns, 0, 1, &transposed));
    GPU_OK(tsr_tensor_upload(queue, transposed, values, bytes));
    assert_tree(transposed, values, rows, count);
    tsr_tensor_destroy(&transposed);
    tsr_tensor_destroy(&columns);

    tsr_tensor *wide = gpu_new(TSR_F32, 2, (int64_t[]){rows, 2 * count}), *gaps;
    gpu_poison(wide);
    GPU_OK(tsr_tensor_slice(wide, 1, 1, TSR_END, 2, &gaps));
    GPU_OK(tsr_tensor_upload(queue, gaps, values, bytes));
    assert_tree(gaps, values, rows, count);
    tsr_tensor_destroy(&gaps);
    tsr_tensor_destroy(&wide);
    free(values);
}

START_TEST(tree_depends_on_the_shape_only)
{
    static const int64_t shapes[][2] = {{1, 1},     {3, 31},   {7, 32},     {5, 33},    {2, 256},
                                        {4, 257},   {9, 1000}, {6, 1025},   {1, 70000}, {3, 66000},
                                        {4097, 40}, {4100, 9}, {1366, 2050}};
    gpu_random random = {12};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        tree_case(&random, shapes[i][0], shapes[i][1]);
}
END_TEST

/* On GPUs, the number of processors decides how many invocations share columns, and whether one
 * dispatch reduces both the chunks of a row and their results. The bits must not depend on it. */
START_TEST(tree_does_not_depend_on_the_gpu)
{
    static const int64_t shapes[][2] = {
        {7, 32},     {5, 33},   {2, 256},   {64, 300},  {66, 512}, {9, 1000},    {6, 1025},
        {260, 2000}, {4, 8000}, {1, 70000}, {4097, 40}, {3, 9000}, {1366, 2050}, {1028, 4096}};
    static const uint32_t processors[] = {0, 1, 132};
    const uint32_t usual = gpu->info.processor_count;
    gpu_random random = {14};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gpu->info.processor_count = processors[i % 3];
        tree_case(&random, shapes[i][0], shapes[i][1]);
        gpu->info.processor_count = processors[(i + 1) % 3];
        tree_case(&random, shapes[i][0], shapes[i][1]);
    }
    gpu->info.processor_count = usual;
}
END_TEST

/* Positive values of different magnitudes, for which a running sum in f32 has an error in the
 * fourth digit. */
START_TEST(long_sums_are_accurate)
{
    static const int64_t shapes[][2] = {{1, 3000001}, {1500000, 3}, {1200003, 1}};
    gpu_random random = {13};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int64_t count = product(2, shapes[s]), dim = shapes[s][0] == 1;
        float *values = malloc((size_t)count * sizeof *values);
        double *wide = doubles(count);
        for (int64_t i = 0; i < count; i++)
            wide[i] = values[i] = (float)pow(gpu_random_unit(&random), 4);
        tsr_tensor *x = gpu_new(TSR_F32, 2, shapes[s]);
        tsr_tensor *y = gpu_new(TSR_F32, 1, &shapes[s][1 - dim]);
        GPU_OK(tsr_tensor_upload(queue, x, values, (uint64_t)count * sizeof *values));
        walk at = walk_of(2, shapes[s], (int)dim);
        for (int how = TSR_REDUCE_SUM; how <= TSR_REDUCE_MEAN; how++) {
            double got[3];
            gpu_poison(y);
            GPU_OK(tsr_reduce(queue, y, x, (int)dim, (tsr_reduction)how, false));
            gpu_get(y, got);
            for (int64_t i = 0; i < at.outer * at.inner; i++) {
                double magnitude;
                double want = reduced(wide + i, at.count, at.inner, (tsr_reduction)how, &magnitude);
                assert_close(got[i], want, 5e-7 * magnitude, "long sum", i);
            }
        }
        free(values);
        free(wide);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

/* Reduces a dimension of stride 0, and then the other dimension. */
START_TEST(reduces_broadcast_views)
{
    double values[5] = {1, 2, 3, 4, 5}, got[5];
    tsr_tensor *x = gpu_new(TSR_F32, 1, (int64_t[]){5}), *wide;
    gpu_put(x, values);
    GPU_OK(tsr_tensor_broadcast(x, 2, (int64_t[]){2001, 5}, &wide));
    tsr_tensor *columns = gpu_new(TSR_F32, 1, (int64_t[]){5});
    GPU_OK(tsr_reduce(queue, columns, wide, 0, TSR_REDUCE_SUM, false));
    gpu_get(columns, got);
    for (int i = 0; i < 5; i++)
        ck_assert_double_eq(got[i], 2001 * values[i]);

    double rows[2001];
    tsr_tensor *y = gpu_new(TSR_F32, 1, (int64_t[]){2001});
    gpu_poison(y);
    GPU_OK(tsr_reduce(queue, y, wide, 1, TSR_REDUCE_MAX, false));
    gpu_get(y, rows);
    for (int i = 0; i < 2001; i++)
        ck_assert_double_eq(rows[i], 5);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&columns);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Values that are not numbers */

/* Row r has a NaN at element r, and the last row has none; the same holds for columns. */
START_TEST(nan_anywhere_gives_nan)
{
    enum { COUNT = 70, ROWS = COUNT + 1 };
    double values[ROWS * COUNT], got[ROWS];
    for (int i = 0; i < ROWS * COUNT; i++)
        values[i] = i % COUNT == i / COUNT ? NAN : i % 2 ? -1.5 : 2.5;
    tsr_tensor *rows = gpu_new(TSR_F32, 2, (int64_t[]){ROWS, COUNT});
    tsr_tensor *columns = gpu_new(TSR_F32, 2, (int64_t[]){COUNT, ROWS}), *turned;
    GPU_OK(tsr_tensor_transpose(columns, 0, 1, &turned));
    gpu_put(rows, values);
    gpu_put(turned, values);
    tsr_tensor *y = gpu_new(TSR_F32, 1, (int64_t[]){ROWS});
    for (int how = TSR_REDUCE_SUM; how <= TSR_REDUCE_MIN; how++)
        for (int k = 0; k < 2; k++) {
            GPU_OK(tsr_tensor_upload(queue, y, (float[ROWS]){0}, ROWS * sizeof(float)));
            GPU_OK(tsr_reduce(queue, y, k ? turned : rows, 1, (tsr_reduction)how, false));
            gpu_get(y, got);
            for (int r = 0; r < COUNT; r++)
                if (!isnan(got[r]))
                    ck_abort_msg("reduction %d: the NaN at %d got lost: %g", how, r, got[r]);
            ck_assert(!isnan(got[COUNT]));
        }
    tsr_tensor_destroy(&rows);
    tsr_tensor_destroy(&turned);
    tsr_tensor_destroy(&columns);
    tsr_tensor_destroy(&y);
}
END_TEST

START_TEST(infinities_are_ordinary)
{
    double values[3][3] = {
        {-INFINITY, -INFINITY, -INFINITY}, {INFINITY, 1, -INFINITY}, {1, INFINITY, 2}};
    double got[3];
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){3, 3}),
               *y = gpu_new(TSR_F32, 1, (int64_t[]){3});
    gpu_put(x, &values[0][0]);
    GPU_OK(tsr_reduce(queue, y, x, 1, TSR_REDUCE_MAX, false));
    gpu_get(y, got);
    ck_assert(got[0] == -INFINITY && got[1] == INFINITY && got[2] == INFINITY);
    GPU_OK(tsr_reduce(queue, y, x, 1, TSR_REDUCE_MIN, false));
    gpu_get(y, got);
    ck_assert(got[0] == -INFINITY && got[1] == -INFINITY && got[2] == 1);
    GPU_OK(tsr_reduce(queue, y, x, 1, TSR_REDUCE_SUM, false));
    gpu_get(y, got);
    ck_assert(got[0] == -INFINITY && isnan(got[1]) && got[2] == INFINITY);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

START_TEST(sum_over_nothing_is_zero)
{
    double got[3];
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){3, 0}),
               *y = gpu_new(TSR_F32, 1, (int64_t[]){3});
    gpu_poison(y);
    GPU_OK(tsr_reduce(queue, y, x, 1, TSR_REDUCE_SUM, false));
    gpu_get(y, got);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(got[i], 0);
    gpu_put(y, (double[]){1, 2, 3});
    GPU_OK(tsr_reduce(queue, y, x, 1, TSR_REDUCE_SUM, true));
    gpu_get(y, got);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(got[i], i + 1);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);

    x = gpu_new(TSR_F32, 2, (int64_t[]){0, 3});
    y = gpu_new(TSR_F32, 1, (int64_t[]){0});
    for (int how = TSR_REDUCE_SUM; how <= TSR_REDUCE_MIN; how++)
        GPU_OK(tsr_reduce(queue, y, x, 1, (tsr_reduction)how, false));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

/* argmax */

static int64_t argmax_of(const double *x, int64_t count, int64_t step)
{
    int64_t best = 0;
    for (int64_t j = 0; j < count; j++) {
        if (isnan(x[j * step]))
            return j;
        if (x[j * step] > x[best * step])
            best = j;
    }
    return best;
}

/* Returns one of few distinct values, so that ties are common, and sometimes a NaN, a negative zero
 * or an infinity. */
static double argmax_value(gpu_random *random, int64_t count)
{
    static const double odd[] = {0.0, -0.0, -INFINITY, INFINITY, NAN};
    if (gpu_random_between(random, 0, 4 * count) == 0)
        return odd[gpu_random_between(random, 0, 4)];
    return (double)gpu_random_between(random, -3, 3) / 2;
}

static void argmax_case(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape,
                        int dim)
{
    int64_t y_shape[TSR_MAX_DIMS];
    int y_ndim = result_shape(ndim, shape, dim, gpu_random_between(random, 0, 1) == 1, y_shape);
    tsr_tensor *x_parent, *y_parent;
    tsr_tensor *x = gpu_random_view(random, dtype, ndim, shape, &x_parent);
    tsr_tensor *y = gpu_random_view(random, TSR_I32, y_ndim, y_shape, &y_parent);
    walk at = walk_of(ndim, shape, dim);
    double *values = doubles(product(ndim, shape)), *got = doubles(at.outer * at.inner);
    for (int64_t i = 0; i < product(ndim, shape); i++)
        values[i] = argmax_value(random, at.count);
    gpu_put(x, values);
    GPU_OK(tsr_argmax(queue, y, x, dim));
    gpu_get(y, got);
    for (int64_t o = 0; o < at.outer; o++)
        for (int64_t i = 0; i < at.inner; i++) {
            int64_t want = argmax_of(values + o * at.count * at.inner + i, at.count, at.inner);
            assert_close(got[o * at.inner + i], (double)want, 0, "argmax", o * at.inner + i);
        }
    free(values);
    free(got);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x_parent);
    tsr_tensor_destroy(&y_parent);
}

START_TEST(argmax_finds_the_first_largest)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {14};
    for (int i = 0; i < 80; i++) {
        int ndim = (int)gpu_random_between(&random, 1, 4);
        int64_t shape[TSR_MAX_DIMS];
        for (int d = 0; d < ndim; d++)
            shape[d] = gpu_random_between(&random, 1, gpu_random_between(&random, 0, 2) ? 8 : 60);
        argmax_case(&random, dtypes[i % 3], ndim, shape,
                    (int)gpu_random_between(&random, 0, ndim - 1));
    }
    argmax_case(&random, TSR_F32, 2, (int64_t[]){0, 4}, 1);
    argmax_case(&random, TSR_F32, 2, (int64_t[]){3, 100000}, 1);
    argmax_case(&random, TSR_F32, 2, (int64_t[]){100000, 3}, 0);
    argmax_case(&random, TSR_F32, 2, (int64_t[]){9000, 2}, 1);
}
END_TEST

/* A long row, which is reduced in several passes. The first of its equal largest elements moves
 * from near the end to the start. */
START_TEST(argmax_of_a_long_row)
{
    int64_t count = 1 << 20;
    float *values = calloc((size_t)count, sizeof *values);
    ck_assert_ptr_nonnull(values);
    tsr_tensor *x = gpu_new(TSR_F32, 1, &count), *y = gpu_new(TSR_I32, 0, NULL);
    for (int64_t at = count - 3; at >= 0; at = at > 5 ? at / 7 : at - 1) {
        values[at] = 1;
        GPU_OK(tsr_tensor_upload(queue, x, values, (uint64_t)count * sizeof *values));
        double got;
        GPU_OK(tsr_argmax(queue, y, x, 0));
        gpu_get(y, &got);
        ck_assert_double_eq(got, (double)at);
    }
    free(values);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Tests the same kernels with 16-bit floats packed in words. If the device has no 16-bit storage,
 * the tests above have already used them. */
START_TEST(packed_float16)
{
    static const tsr_dtype dtypes[] = {TSR_F16, TSR_BF16};
    if (!tsr_device_get_info(gpu)->storage16)
        return;
    gpu_random random = {15};
    for (int i = 0; i < 24; i++)
        random_case(&random);
    for (int i = 0; i < 10; i++)
        argmax_case(&random, dtypes[i % 2], 2, (int64_t[]){1 + i, 60 - i}, i % 2);
}
END_TEST

/* Refused calls */

START_TEST(mistakes_are_named)
{
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){3, 4}),
               *y = gpu_new(TSR_F32, 1, (int64_t[]){3});
    tsr_tensor *index = gpu_new(TSR_I32, 1, (int64_t[]){3}),
               *none = gpu_new(TSR_F32, 2, (int64_t[]){3, 0});
    tsr_tensor *repeated, *part;
    GPU_OK(tsr_tensor_broadcast(y, 2, (int64_t[]){4, 3}, &repeated));
    GPU_OK(tsr_tensor_select(x, 1, 0, &part));
    double before[3] = {7, 8, 9}, after[3];
    gpu_put(y, before);

    GPU_FAILS(tsr_reduce(NULL, y, x, 1, TSR_REDUCE_SUM, false), TSR_ERR_INVALID, "stream is NULL");
    GPU_FAILS(tsr_reduce(queue, NULL, x, 1, TSR_REDUCE_SUM, false), TSR_ERR_INVALID, "y is NULL");
    GPU_FAILS(tsr_reduce(queue, y, NULL, 1, TSR_REDUCE_SUM, false), TSR_ERR_INVALID, "x is NULL");
    GPU_FAILS(tsr_reduce(queue, index, x, 1, TSR_REDUCE_SUM, false), TSR_ERR_INVALID,
              "reduce: y is i32; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_reduce(queue, y, index, 0, TSR_REDUCE_SUM, false), TSR_ERR_INVALID, "x is i32");
    GPU_FAILS(tsr_reduce(queue, y, x, 2, TSR_REDUCE_SUM, false), TSR_ERR_INVALID,
              "reduce: dim 2 is outside a tensor of 2 dimensions");
    GPU_FAILS(tsr_reduce(queue, y, x, -3, TSR_REDUCE_SUM, false), TSR_ERR_INVALID, "dim -3");
    GPU_FAILS(tsr_reduce(queue, y, x, 0, TSR_REDUCE_SUM, false), TSR_ERR_INVALID,
              "reduce: y is [3]; x [3,4] without dim 0 is [4]");
    GPU_FAILS(tsr_reduce(queue, y, x, 1, (tsr_reduction)9, false), TSR_ERR_INVALID,
              "unknown reduction 9");
    GPU_FAILS(tsr_reduce(queue, y, x, 1, (tsr_reduction)0, false), TSR_ERR_INVALID,
              "unknown reduction 0");
    GPU_FAILS(tsr_reduce(queue, y, x, 1, TSR_REDUCE_MAX, true), TSR_ERR_INVALID,
              "accumulate is not supported for max");
    GPU_FAILS(tsr_reduce(queue, y, x, 1, TSR_REDUCE_MIN, true), TSR_ERR_INVALID,
              "accumulate is not supported for min");
    GPU_FAILS(tsr_reduce(queue, y, none, 1, TSR_REDUCE_MEAN, false), TSR_ERR_INVALID,
              "dim 1 of x [3,0] has no elements to take the mean of");
    GPU_FAILS(tsr_reduce(queue, y, none, 1, TSR_REDUCE_MAX, false), TSR_ERR_INVALID, "the max of");
    GPU_FAILS(tsr_reduce(queue, y, none, 1, TSR_REDUCE_MIN, false), TSR_ERR_INVALID, "the min of");
    GPU_FAILS(tsr_reduce(queue, part, x, 1, TSR_REDUCE_SUM, false), TSR_ERR_INVALID,
              "reduce: y [3] overlaps x [3,4]");
    tsr_tensor *cube = gpu_new(TSR_F32, 3, (int64_t[]){4, 3, 2});
    GPU_FAILS(tsr_reduce(queue, repeated, cube, 2, TSR_REDUCE_SUM, false), TSR_ERR_INVALID,
              "names an element more than once");

    GPU_FAILS(tsr_argmax(queue, NULL, x, 1), TSR_ERR_INVALID, "argmax: y is NULL");
    GPU_FAILS(tsr_argmax(queue, y, x, 1), TSR_ERR_INVALID, "argmax: y is f32; indices are i32");
    GPU_FAILS(tsr_argmax(queue, index, index, 0), TSR_ERR_INVALID, "argmax: x is i32");
    GPU_FAILS(tsr_argmax(queue, index, x, 7), TSR_ERR_INVALID, "argmax: dim 7");
    GPU_FAILS(tsr_argmax(queue, index, x, 0), TSR_ERR_INVALID,
              "argmax: y is [3]; x [3,4] without dim 0 is [4]");
    GPU_FAILS(tsr_argmax(queue, index, none, 1), TSR_ERR_INVALID,
              "argmax: dim 1 of x [3,0] has no elements");
    tsr_tensor *scalar = gpu_new(TSR_F32, 0, NULL);
    GPU_FAILS(tsr_argmax(queue, index, scalar, 0), TSR_ERR_INVALID, "0 dimensions");

    gpu_get(y, after);
    ck_assert_mem_eq(before, after, sizeof before);
    tsr_tensor_destroy(&scalar);
    tsr_tensor_destroy(&cube);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&repeated);
    tsr_tensor_destroy(&none);
    tsr_tensor_destroy(&index);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
}
END_TEST

TESTS(reduce)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, reduces_random_views);
    tcase_add_test(tests, tree_depends_on_the_shape_only);
    tcase_add_test(tests, long_sums_are_accurate);
    tcase_add_test(tests, reduces_broadcast_views);
    tcase_add_test(tests, nan_anywhere_gives_nan);
    tcase_add_test(tests, infinities_are_ordinary);
    tcase_add_test(tests, sum_over_nothing_is_zero);
    tcase_add_test(tests, argmax_finds_the_first_largest);
    tcase_add_test(tests, argmax_of_a_long_row);
    tcase_add_test(tests, mistakes_are_named);
}

TESTS(reduce_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_test(tests, reduces_random_views);
    tcase_add_test(tests, tree_does_not_depend_on_the_gpu);
    tcase_add_test(tests, nan_anywhere_gives_nan);
}

TESTS(reduce_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, packed_float16);
}
