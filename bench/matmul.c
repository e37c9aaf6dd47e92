/* tessera bench matmul: a linear layer's product. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/data.h"
#include "bench/openblas.h"
#include "bench/reference.h"
#include "cli/memory.h"

/* A square, a token, a few tokens through a wide layer, a prompt, and a batch through a narrow one.
 */
static const bench_shape default_shapes[] = {
    {1024, 1024, 1024}, {1, 4096, 4096}, {16, 4096, 11008}, {128, 4096, 4096}, {512, 1024, 4096},
};

typedef struct matmul {
    bench_context *context;
    bench_shape shape;
    tsr_dtype dtype;
    float *x, *w, *y;                          /* on the host, as f32 */
    void *x_bytes, *w_bytes, *y_bytes, *again; /* in the dtype */
    tsr_tensor *device_x, *device_w, *device_y;
} matmul;

static tsr_status run_device(tsr_stream *stream, void *user)
{
    matmul *test = user;
    return tsr_matmul(stream, test->device_y, test->device_x, test->device_w,
                      tsr_matmul_params(.transpose_b = true));
}

static tsr_status run_openblas(tsr_stream *stream, void *user)
{
    (void)stream;
    matmul *test = user;
    bench_openblas_matmul(&test->shape, test->x, test->w, test->y);
    return TSR_OK;
}

static bool create_tensor(matmul *test, int64_t rows, int64_t columns, tsr_tensor **tensor)
{
    BENCH_TRY(test->context, tsr_tensor_create(test->context->device, test->dtype, 2,
                                               (int64_t[]){rows, columns}, tensor));
    return true;
}

/* On the host, the same numbers as f32 and as bytes of the dtype; and on the device. */
static bool create_values(matmul *test, uint64_t seed, float **values, void **bytes,
                          tsr_tensor *tensor)
{
    uint64_t count = (uint64_t)tsr_layout_count(tsr_tensor_layout(tensor));
    uint64_t size = count * tsr_dtype_size(test->dtype);
    *values = cli_alloc(count, sizeof **values);
    *bytes = cli_alloc(size, 1);
    bench_random_values(*values, count, test->dtype, seed);
    bench_encode(test->dtype, *values, count, *bytes);
    BENCH_TRY(test->context, tsr_tensor_upload(test->context->stream, tensor, *bytes, size));
    return true;
}

/* The device's memory first: it refuses what is too much, where the host may try until it is
 * killed. */
static bool create(matmul *test)
{
    const bench_shape *shape = &test->shape;
    uint64_t y_count = (uint64_t)shape->m * (uint64_t)shape->n;
    if (!create_tensor(test, shape->m, shape->k, &test->device_x) ||
        !create_tensor(test, shape->n, shape->k, &test->device_w) ||
        !create_tensor(test, shape->m, shape->n, &test->device_y) ||
        !create_values(test, 1, &test->x, &test->x_bytes, test->device_x) ||
        !create_values(test, 2, &test->w, &test->w_bytes, test->device_w) ||
        !create_values(test, 3, &test->y, &test->y_bytes, test->device_y))
        return false;
    test->again = cli_alloc(y_count, tsr_dtype_size(test->dtype));
    return true;
}

/* Into `bytes`, in the dtype. */
static bool download_y(matmul *test, void *bytes, uint64_t *size)
{
    uint64_t count = (uint64_t)test->shape.m * (uint64_t)test->shape.n;
    *size = count * tsr_dtype_size(test->dtype);
    BENCH_TRY(test->context,
              tsr_tensor_download(test->context->stream, test->device_y, bytes, *size));
    return true;
}

static bool verify(matmul *test, bench_row *row)
{
    uint64_t size, count = (uint64_t)test->shape.m * (uint64_t)test->shape.n;
    BENCH_TRY(test->context, run_device(test->context->stream, test));
    if (!download_y(test, test->y_bytes, &size))
        return false;
    bench_decode(test->dtype, test->y_bytes, count, test->y);
    bench_check_matmul(&row->check, &test->shape, test->x, test->w, test->y, test->dtype);
    return bench_verified(test->context, row);
}

/* What was timed gave the very result that was verified. */
static bool verify_again(matmul *test)
{
    uint64_t size;
    if (!download_y(test, test->again, &size))
        return false;
    if (memcmp(test->again, test->y_bytes, size) != 0)
        return bench_fail(
            test->context,
            "matmul: the result changed from run to run, though the operands are the same");
    return true;
}

static bool measure_openblas(matmul *test, bench_row *row)
{
    /* Verified like the rest: a peer that computes something else would be an unfair one. */
    bench_check check;
    memset(test->y, 0xff, (size_t)(test->shape.m * test->shape.n) * sizeof *test->y);
    run_openblas(NULL, test);
    bench_check_matmul(&check, &test->shape, test->x, test->w, test->y, TSR_F32);
    char reason[512];
    if (!bench_check_passed(&check, reason, sizeof reason))
        return bench_fail(test->context, "OpenBLAS: %s", reason);
    return bench_measure_peer(test->context, row, bench_openblas_name(),
                              &(bench_task){.run = run_openblas, .user = test, .host_only = true});
}

static bool measure(matmul *test)
{
    bench_context *context = test->context;
    const bench_shape *shape = &test->shape;
    const bench_row *ceiling = bench_fma_peak(context);
    if (ceiling == NULL || !create(test))
        return false;
    bench_row *row = bench_add(context, "matmul", BENCH_GFLOPS,
                               2.0 * (double)shape->m * (double)shape->k * (double)shape->n);
    bench_text(row, "dtype", "%s", tsr_dtype_name(test->dtype));
    bench_integer(row, "m", shape->m);
    bench_integer(row, "k", shape->k);
    bench_integer(row, "n", shape->n);
    row->ceiling = ceiling;
    if (!verify(test, row) ||
        !bench_measure(context, row, &(bench_task){.run = run_device, .user = test}) ||
        !verify_again(test))
        return false;
    return !context->options->peer || test->dtype != TSR_F32 || measure_openblas(test, row);
}

static void finish(matmul *test)
{
    tsr_tensor_destroy(&test->device_x);
    tsr_tensor_destroy(&test->device_w);
    tsr_tensor_destroy(&test->device_y);
    free(test->x);
    free(test->w);
    free(test->y);
    free(test->x_bytes);
    free(test->w_bytes);
    free(test->y_bytes);
    free(test->again);
}

static bool run(bench_context *context)
{
    const bench_options *options = context->options;
    const bench_shape *shapes = default_shapes;
    int shape_count = (int)(sizeof default_shapes / sizeof default_shapes[0]);
    if (options->shape_count > 0) {
        shapes = options->shapes;
        shape_count = options->shape_count;
    }
    static const tsr_dtype default_dtypes[] = {TSR_F32};
    const tsr_dtype *dtypes = options->dtype_count > 0 ? options->dtypes : default_dtypes;
    int dtype_count = options->dtype_count > 0 ? options->dtype_count : 1;

    char problem[256];
    if (options->peer && !bench_openblas_load(problem, sizeof problem))
        return bench_fail(context, "%s", problem);
    for (int d = 0; d < dtype_count; d++)
        for (int s = 0; s < shape_count; s++) {
            matmul test = {.context = context, .shape = shapes[s], .dtype = dtypes[d]};
            bool done = measure(&test);
            finish(&test);
            if (!done)
                return false;
        }
    return true;
}

const bench bench_matmul = {
    .name = "matmul",
    .summary = "y[m,n] = x[m,k] · w[n,k]ᵀ, GFLOP/s against the multiply-add peak",
    .help = "Multiplies random x[m,k] by random w[n,k]ᵀ, both contiguous, into y[m,n] of the same "
            "dtype, with\n"
            "sums in f32. 2·m·k·n operations. The ceiling is what f32 multiply-adds reach in "
            "registers in the\n"
            "same run. --peer adds OpenBLAS' sgemm on the same f32 operands, with as many threads "
            "as it likes.\n",
    .takes = BENCH_SHAPES | BENCH_DTYPES | BENCH_PEER,
    .run = run,
};
