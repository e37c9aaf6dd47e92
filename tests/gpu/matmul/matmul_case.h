/* A matmul that is described by values. It runs on the device, and each element of its result is
 * compared with double precision. The elements around the result are checked as well. The directed
 * tests and the fuzz tests use it. */
#ifndef TESTS_GPU_MATMUL_CASE_H
#define TESTS_GPU_MATMUL_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/matmul/matmul_force.h"
#include "support/check_main.h"
#include "support/close.h"
#include "support/gpu.h"

typedef struct batch_shape {
    int ndim;
    int64_t size[TSR_MAX_DIMS];
} batch_shape;

typedef struct matmul_case {
    int64_t m, n, k;
    batch_shape batch;            /* the batch dimensions of y */
    batch_shape a_batch, b_batch; /* those of a and b */
    tsr_dtype a, b, y;
    bool transpose_a, transpose_b;
    bool views;   /* tensors are random slices of larger ones; otherwise they are row-major */
    bool pitched; /* rows of a and b start at multiples of 8 elements, and NaN is between them */
    float alpha;
    bool accumulate;
    tsr_activation activation;
    tsr_precision precision;
    tsr_dtype bias; /* the dtype of the bias; 0: no bias */
    batch_shape bias_shape;
} matmul_case;

/* Returns the default case: [m,k] · [k,n] in f32. */
static inline matmul_case plain_case(int64_t m, int64_t k, int64_t n)
{
    return (matmul_case){.m = m, .k = k, .n = n, .a = TSR_F32, .b = TSR_F32, .y = TSR_F32};
}

static inline char *case_text(const matmul_case *c)
{
    static char text[512];

    snprintf(text, sizeof text,
             "m %lld k %lld n %lld, batch dims %d (a %d, b %d), %s%s × %s%s -> %s, views %d%s, "
             "alpha %g, "
             "accumulate %d, activation %d, precision %d, bias %s",
             (long long)c->m, (long long)c->k, (long long)c->n, c->batch.ndim, c->a_batch.ndim,
             c->b_batch.ndim, tsr_dtype_name(c->a), c->transpose_a ? "ᵀ" : "", tsr_dtype_name(c->b),
             c->transpose_b ? "ᵀ" : "", tsr_dtype_name(c->y), c->views,
             c->pitched ? ", pitched" : "", (double)c->alpha, c->accumulate, (int)c->activation,
             (int)c->precision, c->bias ? tsr_dtype_name(c->bias) : "none");
    return text;
}

static inline int64_t count_of(const batch_shape *shape)
{
    int64_t count = 1;

    for (int i = 0; i < shape->ndim; i++)
        count *= shape->size[i];
    return count;
}

static inline batch_shape with_matrix(batch_shape batch, int64_t rows, int64_t cols)
{
    batch.size[batch.ndim++] = rows;
    batch.size[batch.ndim++] = cols;
    return batch;
}

/* A tensor of a case: the view, the tensor that it is a view of, and its elements rounded to its
 * dtype. */
typedef struct operand {
    batch_shape shape;
    tsr_dtype dtype;
    tsr_tensor *parent, *view;
    double *values;
} operand;

static inline operand operand_new(gpu_random *random, const matmul_case *c, bool pitched,
                                  tsr_dtype dtype, batch_shape shape)
{
    operand o = {.shape = shape, .dtype = dtype};
    int64_t count = count_of(&shape);

    if (c->views) {
        o.view = gpu_random_view(random, dtype, shape.ndim, shape.size, &o.parent);
    } else if (pitched) {
        o.view = gpu_pitched_view(dtype, shape.ndim, shape.size, &o.parent);
    } else {
        o.parent = gpu_new(dtype, shape.ndim, shape.size);
        gpu_poison(o.parent);
        GPU_OK(tsr_tensor_view(o.parent, tsr_tensor_layout(o.parent), &o.view));
    }
    o.values = malloc((size_t)(count + 1) * sizeof *o.values);
    ck_assert_ptr_nonnull(o.values);
    for (int64_t i = 0; i < count; i++)
        o.values[i] = gpu_rounded(gpu_random_unit(random), dtype);
    return o;
}

static inline void operand_free(operand *o)
{
    tsr_tensor_destroy(&o->view);
    tsr_tensor_destroy(&o->parent);
    free(o->values);
}

/* Returns the index of the element that corresponds to y's index by NumPy's rules: dimensions are
 * matched from the right, and sizes of 1 repeat. The caller handles the last `skip` dimensions. */
static inline int64_t broadcast_index(const batch_shape *shape, int skip, const batch_shape *y,
                                      int64_t y_batch, int y_skip)
{
    int64_t index = 0, step = 1;

    for (int i = shape->ndim - 1 - skip, j = y->ndim - 1 - y_skip; j >= 0; i--, j--) {
        int64_t at = y_batch % y->size[j];
        y_batch /= y->size[j];
        if (i < 0)
            continue;
        index += (shape->size[i] == 1 ? 0 : at) * step;
        step *= shape->size[i];
    }
    return index;
}

static inline double activated(double x, tsr_activation activation)
{
    switch (activation) {
    case TSR_ACT_RELU:
        return x > 0 ? x : 0;
    case TSR_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case TSR_ACT_GELU_ERF:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case TSR_ACT_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

/* What rounding an operand may add to an element (tsr_precision): a part of its own absolute value,
 * and a part of the largest in its row or column. */
typedef struct rounding {
    double own, largest;
} rounding;

static inline rounding rounding_of(const matmul_case *c, tsr_dtype narrow, tsr_dtype other)
{
    const bool narrowed =
        c->precision == TSR_PRECISION_HIGH || c->precision == TSR_PRECISION_MEDIUM;
    if (!narrowed || narrow != TSR_F32)
        return (rounding){0};
    return (rounding){c->precision == TSR_PRECISION_HIGH ? 0x1p-22
                      : other == TSR_BF16                ? 0x1p-8
                                                         : 0x1p-11,
                      0x1p-28};
}

/* Compares element (row, col) of matrix number `batch` of y with double precision. */
static inline void check_element(const matmul_case *c, const operand *a, const operand *b,
                                 const operand *y, const operand *bias, const double *got,
                                 int64_t batch, int64_t row, int64_t col)
{
    int64_t a_at = broadcast_index(&a->shape, 2, &y->shape, batch, 2) * c->m * c->k;
    int64_t b_at = broadcast_index(&b->shape, 2, &y->shape, batch, 2) * c->k * c->n;
    int64_t y_at = (batch * c->m + row) * c->n + col;
    double alpha = c->alpha != 0 ? (double)c->alpha : signbit(c->alpha) ? 0 : 1;
    double sum = 0, magnitude = 0, rounded = 0, a_most = 0, b_most = 0;
    const rounding of_a = rounding_of(c, c->a, c->b), of_b = rounding_of(c, c->b, c->a);

    for (int64_t k = 0; k < c->k; k++) {
        a_most = fmax(a_most,
                      fabs(a->values[a_at + (c->transpose_a ? k * c->m + row : row * c->k + k)]));
        b_most = fmax(b_most,
                      fabs(b->values[b_at + (c->transpose_b ? col * c->k + k : k * c->n + col)]));
    }
    for (int64_t k = 0; k < c->k; k++) {
        double x = a->values[a_at + (c->transpose_a ? k * c->m + row : row * c->k + k)];
        double w = b->values[b_at + (c->transpose_b ? col * c->k + k : k * c->n + col)];
        sum += x * w;
        magnitude += fabs(x * w);
        rounded += (of_a.own * fabs(x) + of_a.largest * a_most) * fabs(w) +
                   (of_b.own * fabs(w) + of_b.largest * b_most) * fabs(x);
        if (of_a.own > 0 && of_b.own > 0 && c->precision == TSR_PRECISION_HIGH)
            rounded += 0x1p-22 * fabs(x * w);
    }
    double want = alpha * sum;
    magnitude *= fabs(alpha);
    if (c->accumulate) {
        want += y->values[y_at];
        magnitude += fabs(y->values[y_at]);
    }
    if (c->bias) {
        double value = bias->values[broadcast_index(&bias->shape, 0, &y->shape, y_at, 0)];
        want += value;
        magnitude += fabs(value);
    }
    /* Each of k products and sums rounds once; no activation has a slope above 1.13. */
    double tolerance = 1.2 * (double)(c->k + 4) * 0x1p-24 * magnitude + fabs(alpha) * rounded;
    want = activated(want, c->activation);
    if (c->activation != TSR_ACT_NONE)
        tolerance += 1e-6 * fabs(want) + 1e-7;
    tolerance += storage_error(fabs(want) + tolerance, c->y);
    if (!(fabs(got[y_at] - want) <= tolerance))
        ck_abort_msg("%s: element [%lld; %lld,%lld] is %.9g, not %.9g ± %.2g", case_text(c),
                     (long long)batch, (long long)row, (long long)col, got[y_at], want, tolerance);
}

/* Checks that all bytes of y's parent are 0xff, except those of y. */
static inline void check_surroundings(const matmul_case *c, const operand *y)
{
    const tsr_layout *layout = tsr_tensor_layout(y->parent);
    int64_t count = tsr_layout_count(layout), untouched = 0;
    size_t size = tsr_dtype_size(layout->dtype);
    unsigned char *bytes = malloc((size_t)count * size + 1);

    ck_assert_ptr_nonnull(bytes);
    GPU_OK(tsr_tensor_download(queue, y->parent, bytes, (uint64_t)count * size));
    for (int64_t i = 0; i < count; i++) {
        bool poison = true;
        for (size_t j = 0; j < size; j++)
            poison = poison && bytes[(size_t)i * size + j] == 0xff;
        untouched += poison;
    }
    free(bytes);
    if (untouched != count - count_of(&y->shape))
        ck_abort_msg("%s: %lld of the %lld elements around y are unchanged", case_text(c),
                     (long long)untouched, (long long)(count - count_of(&y->shape)));
}

/* Returns the status of the call. If it is TSR_OK, the result has been checked. */
static inline tsr_status try_case(gpu_random *random, const matmul_case *c)
{
    operand a = operand_new(random, c, c->pitched, c->a,
                            c->transpose_a ? with_matrix(c->a_batch, c->k, c->m)
                                           : with_matrix(c->a_batch, c->m, c->k));
    operand b = operand_new(random, c, c->pitched, c->b,
                            c->transpose_b ? with_matrix(c->b_batch, c->n, c->k)
                                           : with_matrix(c->b_batch, c->k, c->n));
    operand y = operand_new(random, c, false, c->y, with_matrix(c->batch, c->m, c->n));
    operand bias = {0};
    int64_t count = count_of(&y.shape);
    double *got = malloc((size_t)(count + 1) * sizeof *got);

    ck_assert_ptr_nonnull(got);
    gpu_put(a.view, a.values);
    gpu_put(b.view, b.values);
    if (c->accumulate)
        gpu_put(y.view, y.values);
    if (c->bias) {
        bias = operand_new(random, c, false, c->bias, c->bias_shape);
        gpu_put(bias.view, bias.values);
    }
    tsr_status status =
        forced_matmul(queue, y.view, a.view, b.view,
                      tsr_matmul_params(.transpose_a = c->transpose_a,
                                        .transpose_b = c->transpose_b, .alpha = c->alpha,
                                        .accumulate = c->accumulate, .activation = c->activation,
                                        .precision = c->precision, .bias = bias.view));
    if (status == TSR_OK) {
        gpu_get(y.view, got);
        for (int64_t batch = 0; batch < count_of(&c->batch); batch++)
            for (int64_t row = 0; row < c->m; row++)
                for (int64_t col = 0; col < c->n; col++)
                    check_element(c, &a, &b, &y, &bias, got, batch, row, col);
        check_surroundings(c, &y);
    }
    operand_free(&a);
    operand_free(&b);
    operand_free(&y);
    operand_free(&bias);
    free(got);
    return status;
}

static inline void run_case(gpu_random *random, const matmul_case *c)
{
    if (try_case(random, c) != TSR_OK)
        ck_abort_msg("%s: %s", case_text(c), tsr_last_error());
}

#endif
