/* tessera bench elementwise: the operations other than matrix products. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

#define COUNT ((uint64_t)1 << 22)
#define COLUMNS 2048
#define SHORT_ROW 512
#define EPSILON 1e-5F

/* Values that the expected results of normalising a row, and of its gradient, are computed from. */
typedef struct row_stats {
    double mean, factor; /* the mean that is subtracted, and the factor by which the difference is
                            multiplied */
    double incoming, slope; /* `incoming` is the mean of g = dy · weight, `slope` that of g times
                               the normalised row */
} row_stats;

typedef struct operands {
    bench_context *context;
    const struct op *op;
    float *a, *b, *y;
    void *bytes;
    tsr_tensor *device_a, *device_b, *device_y;
    tsr_tensor *device_labels; /* the labels, for cross-entropy */
    /* for normalisation; views of the first two rows of b */
    tsr_tensor *device_weight, *device_bias;
    row_stats *stats; /* [rows]; NULL until they are needed */
    double sum;       /* over the current row: exponentials for softmax, y · dy for its gradient */
} operands;

/* One operation, and its expected result in double precision. */
typedef struct op {
    const char *name;
    tsr_dtype dtype;
    int64_t columns;
    int reads, writes; /* numbers of complete tensors that it reads and writes; tensors with one
                          element per row do not count */
    bool per_row, labelled;
    tsr_status (*run)(tsr_stream *stream, operands *test);
    double (*want)(operands *test, uint64_t i); /* the expected value of element i, or of row i */
    /* the largest error that is accepted, in rounding errors of f32 relative to max(typical,
     * |want|) */
    double tolerance;
    double typical;
} op;

static tsr_status add_elementwise(tsr_stream *stream, operands *test)
{
    return tsr_binary(stream, test->device_y, test->device_a, test->device_b, TSR_BINARY_ADD);
}

static double want_add(operands *test, uint64_t i)
{
    return (double)test->a[i] + (double)test->b[i];
}

static tsr_status scale(tsr_stream *stream, operands *test)
{
    return tsr_scale(stream, test->device_y, test->device_a, 1.5f, 0.25f);
}

static double want_scale(operands *test, uint64_t i)
{
    return 1.5 * (double)test->a[i] + 0.25;
}

static tsr_status silu(tsr_stream *stream, operands *test)
{
    return tsr_activate(stream, test->device_y, test->device_a, NULL, TSR_ACT_SILU);
}

static double want_silu(operands *test, uint64_t i)
{
    double x = (double)test->a[i];
    return x / (1 + exp(-x));
}

static tsr_status gelu(tsr_stream *stream, operands *test)
{
    return tsr_activate(stream, test->device_y, test->device_a, NULL, TSR_ACT_GELU_ERF);
}

static double want_gelu(operands *test, uint64_t i)
{
    double x = (double)test->a[i];
    return x / 2 * (1 + erf(x / sqrt(2)));
}

static tsr_status softmax(tsr_stream *stream, operands *test)
{
    return tsr_softmax(stream, test->device_y, test->device_a, false);
}

/* The sum of a row's exponentials is computed at its first element, so the function must be called
 * for the elements of a row in ascending order. */
static double want_softmax(operands *test, uint64_t i)
{
    uint64_t columns = (uint64_t)test->op->columns;
    if (i % columns == 0) {
        test->sum = 0;
        for (uint64_t j = 0; j < columns; j++)
            test->sum += exp((double)test->a[i + j]);
    }
    return exp((double)test->a[i]) / test->sum;
}

static tsr_status silu_grad(tsr_stream *stream, operands *test)
{
    return tsr_activate_grad(stream, test->device_y, test->device_a, test->device_b, TSR_ACT_SILU);
}

static double want_silu_grad(operands *test, uint64_t i)
{
    double x = (double)test->a[i], sigmoid = 1 / (1 + exp(-x));
    return (double)test->b[i] * sigmoid * (1 + x * (1 - sigmoid));
}

/* The formula of the gradient can be checked with any y, so y is not computed by softmax. */
static tsr_status softmax_grad(tsr_stream *stream, operands *test)
{
    return tsr_softmax_grad(stream, test->device_y, test->device_a, test->device_b, false);
}

static double want_softmax_grad(operands *test, uint64_t i)
{
    uint64_t columns = (uint64_t)test->op->columns;
    if (i % columns == 0) {
        test->sum = 0;
        for (uint64_t j = 0; j < columns; j++)
            test->sum += (double)test->a[i + j] * (double)test->b[i + j];
    }
    return (double)test->a[i] * ((double)test->b[i] - test->sum);
}

static row_stats stats_of_row(const operands *test, const float *x, const float *dy, bool centred)
{
    row_stats stats = {0};
    uint64_t columns = (uint64_t)test->op->columns;
    double each = 1 / (double)columns, squares = 0;
    for (uint64_t j = 0; j < columns && centred; j++)
        stats.mean += (double)x[j] * each;
    for (uint64_t j = 0; j < columns; j++)
        squares += ((double)x[j] - stats.mean) * ((double)x[j] - stats.mean) * each;
    stats.factor = 1 / sqrt(squares + (double)EPSILON);
    for (uint64_t j = 0; j < columns; j++) {
        double g = (double)dy[j] * (double)test->b[j] * each;
        stats.incoming += g;
        stats.slope += g * ((double)x[j] - stats.mean) * stats.factor;
    }
    return stats;
}

/* Returns the statistics of a row. The first call computes them for all rows. */
static const row_stats *stats_of(operands *test, uint64_t row, bool centred)
{
    uint64_t columns = (uint64_t)test->op->columns, rows = COUNT / columns;
    if (!test->stats) {
        test->stats = cli_alloc(rows, sizeof *test->stats);
        for (uint64_t r = 0; r < rows; r++)
            test->stats[r] =
                stats_of_row(test, test->a + r * columns, test->b + r * columns, centred);
    }
    return &test->stats[row];
}

static tsr_status layer_norm(tsr_stream *stream, operands *test)
{
    return tsr_norm(stream, test->device_y, test->device_a, test->device_weight, test->device_bias,
                    TSR_NORM_LAYER, EPSILON);
}

static double want_layer_norm(operands *test, uint64_t i)
{
    uint64_t columns = (uint64_t)test->op->columns;
    const row_stats *row = stats_of(test, i / columns, true);
    return ((double)test->a[i] - row->mean) * row->factor * (double)test->b[i % columns] +
           (double)test->b[columns + i % columns];
}

static tsr_status rms_norm(tsr_stream *stream, operands *test)
{
    return tsr_norm(stream, test->device_y, test->device_a, test->device_weight, NULL, TSR_NORM_RMS,
                    EPSILON);
}

static double want_rms_norm(operands *test, uint64_t i)
{
    uint64_t columns = (uint64_t)test->op->columns;
    return (double)test->a[i] * stats_of(test, i / columns, false)->factor *
           (double)test->b[i % columns];
}

static tsr_status layer_norm_grad(tsr_stream *stream, operands *test)
{
    return tsr_norm_grad(stream, test->device_y, NULL, NULL, test->device_a, test->device_b,
                         test->device_weight, TSR_NORM_LAYER, EPSILON, false);
}

static double want_layer_norm_grad(operands *test, uint64_t i)
{
    uint64_t columns = (uint64_t)test->op->columns;
    const row_stats *row = stats_of(test, i / columns, true);
    double g = (double)test->b[i] * (double)test->b[i % columns];
    double normalised = ((double)test->a[i] - row->mean) * row->factor;
    return row->factor * (g - row->incoming - normalised * row->slope);
}

static tsr_status weight_grad(tsr_stream *stream, operands *test)
{
    return tsr_norm_grad(stream, NULL, test->device_y, NULL, test->device_a, test->device_b, NULL,
                         TSR_NORM_LAYER, EPSILON, false);
}

static double want_weight_grad(operands *test, uint64_t column)
{
    double sum = 0;
    for (uint64_t r = 0; r < COUNT / COLUMNS; r++) {
        const row_stats *row = stats_of(test, r, true);
        sum += (double)test->b[r * COLUMNS + column] *
               ((double)test->a[r * COLUMNS + column] - row->mean) * row->factor;
    }
    return sum;
}

static int32_t label_of(const operands *test, uint64_t row)
{
    return (int32_t)(row * 7 % (uint64_t)test->op->columns);
}

static tsr_status cross_entropy(tsr_stream *stream, operands *test)
{
    return tsr_cross_entropy(stream, NULL, test->device_y, test->device_a, test->device_labels, 1);
}

static double want_cross_entropy(operands *test, uint64_t i)
{
    uint64_t row = i / (uint64_t)test->op->columns, column = i % (uint64_t)test->op->columns;
    return want_softmax(test, i) - (column == (uint64_t)label_of(test, row) ? 1 : 0);
}

static tsr_status row_sum(tsr_stream *stream, operands *test)
{
    return tsr_reduce(stream, test->device_y, test->device_a, 1, TSR_REDUCE_SUM, false);
}

static double want_row_sum(operands *test, uint64_t row)
{
    double sum = 0;
    for (uint64_t j = 0; j < COLUMNS; j++)
        sum += (double)test->a[row * COLUMNS + j];
    return sum;
}

static tsr_status column_sum(tsr_stream *stream, operands *test)
{
    return tsr_reduce(stream, test->device_y, test->device_a, 0, TSR_REDUCE_SUM, false);
}

static double want_column_sum(operands *test, uint64_t column)
{
    double sum = 0;
    for (uint64_t j = 0; j < COUNT / COLUMNS; j++)
        sum += (double)test->a[j * COLUMNS + column];
    return sum;
}

/* clang-format off */
static const op ops[] = {
    {"a + b", TSR_F32, COLUMNS, 2, 1, false, false, add_elementwise, want_add, 1, 1},
    {"a + b", TSR_F16, COLUMNS, 2, 1, false, false, add_elementwise, want_add, 1, 1},
    {"a + b", TSR_BF16, COLUMNS, 2, 1, false, false, add_elementwise, want_add, 1, 1},
    {"1.5 a + 0.25", TSR_F32, COLUMNS, 1, 1, false, false, scale, want_scale, 2, 1},
    {"silu", TSR_F32, COLUMNS, 1, 1, false, false, silu, want_silu, 32, 1},
    {"silu, gradient", TSR_F32, COLUMNS, 2, 1, false, false, silu_grad, want_silu_grad, 32, 1},
    {"gelu (erf)", TSR_F32, COLUMNS, 1, 1, false, false, gelu, want_gelu, 32, 1},
    {"softmax of rows", TSR_F32, SHORT_ROW, 1, 1, false, false, softmax, want_softmax, 32, 1.0 / SHORT_ROW},
    {"softmax of rows", TSR_F32, COLUMNS, 1, 1, false, false, softmax, want_softmax, 32, 1.0 / COLUMNS},
    {"softmax, gradient", TSR_F32, COLUMNS, 2, 1, false, false, softmax_grad, want_softmax_grad, 512, 8},
    {"layer norm", TSR_F32, COLUMNS, 1, 1, false, false, layer_norm, want_layer_norm, 32, 1},
    {"layer norm, gradient", TSR_F32, COLUMNS, 2, 1, false, false, layer_norm_grad, want_layer_norm_grad, 64, 1},
    {"layer norm, weight's gradient", TSR_F32, COLUMNS, 2, 0, true, false, weight_grad, want_weight_grad, 512, 1},
    {"rms norm", TSR_F32, COLUMNS, 1, 1, false, false, rms_norm, want_rms_norm, 32, 1},
    {"cross-entropy, gradient", TSR_F32, COLUMNS, 1, 1, false, true, cross_entropy, want_cross_entropy, 32, 1.0 / COLUMNS},
    {"sum of rows", TSR_F32, COLUMNS, 1, 0, true, false, row_sum, want_row_sum, 256, 1},
    {"sum of columns", TSR_F32, COLUMNS, 1, 0, true, false, column_sum, want_column_sum, 256, 1},
};
/* clang-format on */

static tsr_status run_op(tsr_stream *stream, void *user)
{
    operands *test = user;
    return test->op->run(stream, test);
}

static int64_t rows_of(const op *which)
{
    return (int64_t)COUNT / which->columns;
}

static uint64_t results_of(const operands *test)
{
    return test->op->per_row ? (uint64_t)rows_of(test->op) : COUNT;
}

static bool create_input(operands *test, uint64_t seed, float **values, tsr_tensor **tensor)
{
    bench_context *context = test->context;
    tsr_dtype dtype = test->op->dtype;
    *values = cli_alloc(COUNT, sizeof **values);
    bench_random_values(*values, COUNT, dtype, seed);
    bench_encode(dtype, *values, COUNT, test->bytes);
    const int64_t shape[] = {rows_of(test->op), test->op->columns};
    BENCH_TRY(context, tsr_tensor_create(context->device, dtype, 2, shape, tensor));
    BENCH_TRY(context, tsr_tensor_upload(context->stream, *tensor, test->bytes,
                                         COUNT * tsr_dtype_size(dtype)));
    return true;
}

static bool create_labels(operands *test)
{
    bench_context *context = test->context;
    int64_t rows = rows_of(test->op);
    int32_t *labels = test->bytes;
    for (int64_t r = 0; r < rows; r++)
        labels[r] = label_of(test, (uint64_t)r);
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_I32, 1, &rows, &test->device_labels));
    BENCH_TRY(context, tsr_tensor_upload(context->stream, test->device_labels, labels,
                                         (uint64_t)rows * sizeof *labels));
    return true;
}

static bool create(operands *test)
{
    bench_context *context = test->context;
    const int64_t shape[] = {rows_of(test->op), test->op->columns};
    test->bytes = cli_alloc(COUNT, sizeof(float));
    test->y = cli_alloc(COUNT, sizeof *test->y);
    if (!create_input(test, 21, &test->a, &test->device_a) ||
        !create_input(test, 22, &test->b, &test->device_b) ||
        (test->op->labelled && !create_labels(test)))
        return false;
    BENCH_TRY(context, tsr_tensor_select(test->device_b, 0, 0, &test->device_weight));
    BENCH_TRY(context, tsr_tensor_select(test->device_b, 0, 1, &test->device_bias));
    BENCH_TRY(context, tsr_tensor_create(context->device, test->op->dtype,
                                         test->op->per_row ? 1 : 2, shape, &test->device_y));
    return true;
}

static void finish(operands *test)
{
    tsr_tensor_destroy(&test->device_a);
    tsr_tensor_destroy(&test->device_b);
    tsr_tensor_destroy(&test->device_y);
    tsr_tensor_destroy(&test->device_labels);
    tsr_tensor_destroy(&test->device_weight);
    tsr_tensor_destroy(&test->device_bias);
    free(test->stats);
    free(test->a);
    free(test->b);
    free(test->y);
    free(test->bytes);
}

/* Compares the results with the expected values. Must be called after one or more runs of the
 * operation. */
static bool verify(operands *test, bench_row *row)
{
    bench_context *context = test->context;
    const op *which = test->op;
    uint64_t count = results_of(test), width = which->per_row ? 1 : (uint64_t)which->columns;
    BENCH_TRY(context, tsr_tensor_download(context->stream, test->device_y, test->bytes,
                                           count * tsr_dtype_size(which->dtype)));
    bench_decode(which->dtype, test->bytes, count, test->y);
    bench_check_begin(&row->check, "every element in double precision");
    double rounding = which->dtype == TSR_F32 ? 0 : bench_rounding(which->dtype);
    for (uint64_t i = 0; i < count; i++) {
        double want = which->want(test, i), size = fmax(which->typical, fabs(want));
        bench_check_value(&row->check, (int64_t)(i / width), (int64_t)(i % width),
                          (double)test->y[i], want,
                          size * (which->tolerance * bench_rounding(TSR_F32) + rounding * 1.01));
    }
    return bench_verified(context, row);
}

static bool measure_elementwise(operands *test)
{
    bench_context *context = test->context;
    const op *which = test->op;
    const bench_row *ceiling = bench_memory_peak(context);
    if (ceiling == NULL || !create(test))
        return false;
    double bytes = (double)(COUNT * tsr_dtype_size(which->dtype)) * (which->reads + which->writes);
    if (which->per_row)
        bytes += (double)((uint64_t)rows_of(which) * tsr_dtype_size(which->dtype));
    bench_row *row = bench_add(context, "elementwise", BENCH_GBYTES, bytes);
    bench_text(row, "what", "%s", which->name);
    bench_text(row, "dtype", "%s", tsr_dtype_name(which->dtype));
    bench_text(row, "shape", "[%lld,%lld]", (long long)rows_of(which), (long long)which->columns);
    row->memory = ceiling;
    BENCH_TRY(context, run_op(context->stream, test));
    return verify(test, row) &&
           bench_measure(context, row, &(bench_task){.run = run_op, .user = test}) &&
           verify(test, row);
}

static bool run_elementwise(bench_context *context)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        operands test = {.context = context, .op = &ops[i]};
        bool done = measure_elementwise(&test);
        finish(&test);
        if (!done)
            return false;
    }
    return true;
}

const bench bench_elementwise = {
    .name = "elementwise",
    .summary = "sums, activations, softmax, norms, cross-entropy, gradients, reductions; GB/s",
    .help = "Operations on random matrices [2048,2048] and [8192,512]. GB/s count each operand "
            "read once and the result written once. The matrices have 16 MiB each in f32, so that "
            "caches may hold them.\n",
    .run = run_elementwise,
};
