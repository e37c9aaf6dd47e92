/* tessera bench elementwise: everything between the matrix products. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/data.h"
#include "cli/memory.h"

#define ROWS 2048
#define COLUMNS 2048
#define COUNT ((uint64_t)ROWS * COLUMNS)

typedef struct operands {
    bench_context *context;
    const struct op *op;
    float *a, *b, *y;
    void *bytes;
    tsr_tensor *device_a, *device_b, *device_y;
    double sum; /* of the current row's exponentials */
} operands;

/* One operation, and what it should have done in double precision. */
typedef struct op {
    const char *name;
    tsr_dtype dtype;
    int reads, writes; /* whole tensors; a result per row counts nothing */
    bool per_row;
    tsr_status (*run)(tsr_stream *stream, operands *test);
    double (*want)(operands *test, uint64_t i); /* of element i, or row i */
    double tolerance; /* in roundings of f32, relative to max(typical, |want|) */
    double typical;
} op;

static tsr_status add(tsr_stream *stream, operands *test)
{
    return tsr_add(stream, test->device_y, test->device_a, test->device_b);
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
    return tsr_activate(stream, test->device_y, test->device_a, TSR_ACT_SILU);
}

static double want_silu(operands *test, uint64_t i)
{
    double x = (double)test->a[i];
    return x / (1 + exp(-x));
}

static tsr_status gelu(tsr_stream *stream, operands *test)
{
    return tsr_activate(stream, test->device_y, test->device_a, TSR_ACT_GELU_ERF);
}

static double want_gelu(operands *test, uint64_t i)
{
    double x = (double)test->a[i];
    return x / 2 * (1 + erf(x / sqrt(2)));
}

static tsr_status softmax(tsr_stream *stream, operands *test)
{
    return tsr_softmax(stream, test->device_y, test->device_a);
}

/* The elements of a row are asked for one after another. */
static double want_softmax(operands *test, uint64_t i)
{
    if (i % COLUMNS == 0) {
        test->sum = 0;
        for (uint64_t j = 0; j < COLUMNS; j++)
            test->sum += exp((double)test->a[i + j]);
    }
    return exp((double)test->a[i]) / test->sum;
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
    for (uint64_t j = 0; j < ROWS; j++)
        sum += (double)test->a[j * COLUMNS + column];
    return sum;
}

static const op ops[] = {
    {"a + b", TSR_F32, 2, 1, false, add, want_add, 1, 1},
    {"a + b", TSR_F16, 2, 1, false, add, want_add, 1, 1},
    {"a + b", TSR_BF16, 2, 1, false, add, want_add, 1, 1},
    {"1.5 a + 0.25", TSR_F32, 1, 1, false, scale, want_scale, 2, 1},
    {"silu", TSR_F32, 1, 1, false, silu, want_silu, 32, 1},
    {"gelu (erf)", TSR_F32, 1, 1, false, gelu, want_gelu, 32, 1},
    {"softmax of rows", TSR_F32, 1, 1, false, softmax, want_softmax, 32, 1.0 / COLUMNS},
    {"sum of rows", TSR_F32, 1, 0, true, row_sum, want_row_sum, 256, 1},
    {"sum of columns", TSR_F32, 1, 0, true, column_sum, want_column_sum, 256, 1},
};

static tsr_status run_op(tsr_stream *stream, void *user)
{
    operands *test = user;
    return test->op->run(stream, test);
}

static uint64_t results_of(const operands *test)
{
    return test->op->per_row ? ROWS : COUNT;
}

static bool create_input(operands *test, uint64_t seed, float **values, tsr_tensor **tensor)
{
    bench_context *context = test->context;
    tsr_dtype dtype = test->op->dtype;
    *values = cli_alloc(COUNT, sizeof **values);
    bench_random_values(*values, COUNT, dtype, seed);
    bench_encode(dtype, *values, COUNT, test->bytes);
    BENCH_TRY(context,
              tsr_tensor_create(context->device, dtype, 2, (int64_t[]){ROWS, COLUMNS}, tensor));
    BENCH_TRY(context, tsr_tensor_upload(context->stream, *tensor, test->bytes,
                                         COUNT * tsr_dtype_size(dtype)));
    return true;
}

static bool create(operands *test)
{
    bench_context *context = test->context;
    test->bytes = cli_alloc(COUNT, sizeof(float));
    test->y = cli_alloc(COUNT, sizeof *test->y);
    if (!create_input(test, 21, &test->a, &test->device_a) ||
        !create_input(test, 22, &test->b, &test->device_b))
        return false;
    BENCH_TRY(context,
              tsr_tensor_create(context->device, test->op->dtype, test->op->per_row ? 1 : 2,
                                (int64_t[]){ROWS, COLUMNS}, &test->device_y));
    return true;
}

static void finish(operands *test)
{
    tsr_tensor_destroy(&test->device_a);
    tsr_tensor_destroy(&test->device_b);
    tsr_tensor_destroy(&test->device_y);
    free(test->a);
    free(test->b);
    free(test->y);
    free(test->bytes);
}

/* What is there after one run, or many. */
static bool verify(operands *test, bench_row *row)
{
    bench_context *context = test->context;
    const op *which = test->op;
    uint64_t count = results_of(test), width = which->per_row ? 1 : COLUMNS;
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

static bool measure(operands *test)
{
    bench_context *context = test->context;
    const op *which = test->op;
    const bench_row *ceiling = bench_memory_peak(context);
    if (ceiling == NULL || !create(test))
        return false;
    double bytes = (double)(COUNT * tsr_dtype_size(which->dtype)) * (which->reads + which->writes);
    if (which->per_row)
        bytes += (double)(ROWS * tsr_dtype_size(which->dtype));
    bench_row *row = bench_add(context, "elementwise", BENCH_GBYTES, bytes);
    bench_text(row, "what", "%s", which->name);
    bench_text(row, "dtype", "%s", tsr_dtype_name(which->dtype));
    bench_text(row, "shape", "[%d,%d]", ROWS, COLUMNS);
    row->ceiling = ceiling;
    BENCH_TRY(context, run_op(context->stream, test));
    return verify(test, row) &&
           bench_measure(context, row, &(bench_task){.run = run_op, .user = test}) &&
           verify(test, row);
}

static bool run(bench_context *context)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        operands test = {.context = context, .op = &ops[i]};
        bool done = measure(&test);
        finish(&test);
        if (!done)
            return false;
    }
    return true;
}

const bench bench_elementwise = {
    .name = "elementwise",
    .summary = "sums, activations, softmax and reductions, GB/s against memory's own speed",
    .help = "Operations on random [2048,2048] matrices: GB/s count each operand read and the "
            "result written once. Caches\n"
            "may hold them: 16 MiB each in f32.\n",
    .run = run,
};
