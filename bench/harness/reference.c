#include "bench/harness/reference.h"

#include <math.h>
#include <stdlib.h>

#include "bench/harness/data.h"
#include "cli/lib/memory.h"

#define QUICK_PRODUCTS 2e8
#define SIGNS_SEED 77

/* Adds the products of a and b to four sums in turn, so that an addition does not have to wait for
 * the previous one. */
static double dot(const float *a, const float *b, int64_t count)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int j = 0; j < 4; j++)
            sum[j] += (double)a[i + j] * (double)b[i + j];
    for (; i < count; i++)
        sum[0] += (double)a[i] * (double)b[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* Returns the standard deviation of a sum of k products: the values are uniform in [-1, 1), each
 * with variance 1/3. */
static double spread_of(int64_t k)
{
    return sqrt((double)k) / 3;
}

double bench_matmul_tolerance(int64_t k)
{
    /* Adding k products one after another in f32 has an error of about 2^-24 · √(k/2) times the
     * sum's standard deviation. */
    return 8 * bench_rounding(TSR_F32) * sqrt((double)k) * spread_of(k);
}

static void check_row(bench_check *check, const bench_shape *shape, int64_t row, const float *x,
                      const float *w, const float *y, double rounding)
{
    double summing = bench_matmul_tolerance(shape->k);
    for (int64_t column = 0; column < shape->n; column++) {
        double want = dot(x + row * shape->k, w + column * shape->k, shape->k);
        bench_check_value(check, row, column, (double)y[row * shape->n + column], want,
                          summing + rounding * fabs(want) * 1.01);
    }
}

static void check_all_rows(bench_check *check, const bench_shape *shape, const float *x,
                           const float *w, const float *y)
{
    double *w_signed = cli_alloc((size_t)shape->k, sizeof *w_signed);
    double *signs = cli_alloc((size_t)shape->n, sizeof *signs);
    for (int64_t column = 0; column < shape->n; column++) {
        signs[column] = bench_random(SIGNS_SEED, (uint64_t)column) & 1 ? 1 : -1;
        for (int64_t i = 0; i < shape->k; i++)
            w_signed[i] += signs[column] * (double)w[column * shape->k + i];
    }
    /* Allows five standard deviations of the sum of the rounding errors of a row's n elements. */
    double element = bench_rounding(TSR_F32) * sqrt((double)shape->k);
    double tolerance = 5 * sqrt((double)shape->n) * spread_of(shape->k) * element;
    for (int64_t row = 0; row < shape->m; row++) {
        double want = 0, got = 0;
        for (int64_t i = 0; i < shape->k; i++)
            want += (double)x[row * shape->k + i] * w_signed[i];
        for (int64_t column = 0; column < shape->n; column++)
            got += signs[column] * (double)y[row * shape->n + column];
        bench_check_value(check, row, -1, got, want, tolerance);
    }
    free(w_signed);
    free(signs);
}

/* Compares 16-bit elements one by one with the product in f32. Sums of rows would not detect a
 * wrong element, because their rounding errors are larger than the error of one element. */
static void check_rounded(bench_check *check, const bench_shape *shape, const float *in_f32,
                          const float *y, double rounding)
{
    double summing = 2 * bench_matmul_tolerance(shape->k);
    for (int64_t i = 0; i < shape->m * shape->n; i++) {
        double want = (double)in_f32[i];
        bench_check_value(check, i / shape->n, i % shape->n, (double)y[i], want,
                          summing + rounding * fabs(want) * 1.01);
    }
}

void bench_check_matmul(bench_check *check, const bench_shape *shape, const float *x,
                        const float *w, const float *y, tsr_dtype y_dtype, const float *in_f32)
{
    const bool rounded = y_dtype != TSR_F32;
    double rounding = rounded ? bench_rounding(y_dtype) : 0;
    int64_t rows = (int64_t)(QUICK_PRODUCTS / ((double)shape->n * (double)shape->k + 1));
    if (rows < 2)
        rows = 2;
    if (rows >= shape->m) {
        bench_check_begin(check, "every element, and the rows' signed sums, in double precision");
        rows = shape->m;
    } else if (rounded) {
        bench_check_begin(check, "every element with the product in f32; elements of sampled rows, "
                                 "and every row's signed sum of the latter, in double precision");
    } else {
        bench_check_begin(
            check, "elements of sampled rows, and every row's signed sum, in double precision");
    }
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = rows > 1 ? i * (shape->m - 1) / (rows - 1) : 0;
        check_row(check, shape, row, x, w, y, rounding);
    }
    check_all_rows(check, shape, x, w, rounded ? in_f32 : y);
    if (rounded)
        check_rounded(check, shape, in_f32, y, rounding);
}

/* Products in f32 ------------------------------------------------------------------------------ */

/* The number of elements that are computed at a time, because the device may have no memory for an
 * f32 copy of all of y. They are whole slices y[i] of its first dimension; a slice with more
 * elements than this is computed alone. */
#define MAX_AT_ONCE ((int64_t)1 << 24)

typedef struct product {
    bench_context *context;
    const tsr_tensor *x, *w;
    const tsr_matmul_params *params;
    tsr_layout y;
} product;

/* Computes y[first], …, y[first + rows − 1]. */
static tsr_status compute(const product *all, int64_t first, int64_t rows, float *out)
{
    tsr_tensor *x = NULL, *w = NULL, *y = NULL;
    const bool batched = all->y.ndim > 2;
    tsr_layout shape = all->y;
    shape.shape[0] = rows;
    tsr_status status =
        tsr_tensor_create(all->context->device, TSR_F32, shape.ndim, shape.shape, &y);
    if (status == TSR_OK)
        status = tsr_tensor_slice(all->x, 0, first, first + rows, 1, &x);
    if (status == TSR_OK && batched)
        status = tsr_tensor_slice(all->w, 0, first, first + rows, 1, &w);
    if (status == TSR_OK)
        status = tsr_matmul(all->context->stream, y, x, batched ? w : all->w, all->params);
    if (status == TSR_OK)
        status = tsr_tensor_download(all->context->stream, y, out,
                                     (uint64_t)tsr_layout_count(&shape) * sizeof *out);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&w);
    tsr_tensor_destroy(&y);
    return status;
}

tsr_status bench_product_in_f32(bench_context *context, const tsr_tensor *y, const tsr_tensor *x,
                                const tsr_tensor *w, const tsr_matmul_params *params, float **out)
{
    const product all = {
        .context = context, .x = x, .w = w, .params = params, .y = *tsr_tensor_layout(y)};
    *out = NULL;
    if (all.y.dtype == TSR_F32)
        return TSR_OK;
    const int64_t count = tsr_layout_count(&all.y), rows = all.y.shape[0], row = count / rows;
    const int64_t most = row < MAX_AT_ONCE ? MAX_AT_ONCE / row : 1;
    float *values = cli_alloc((size_t)count, sizeof *values);
    tsr_status status = TSR_OK;
    for (int64_t first = 0; first < rows && status == TSR_OK; first += most)
        status =
            compute(&all, first, rows - first < most ? rows - first : most, values + first * row);
    if (status == TSR_OK)
        *out = values;
    else
        free(values);
    return status;
}
