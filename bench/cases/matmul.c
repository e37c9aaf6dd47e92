/* tessera bench matmul: the product of a linear layer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cases/openblas.h"
#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "bench/harness/reference.h"
#include "cli/lib/memory.h"

/* m, k and n: a square product; one token; a few tokens with a wide layer; a prompt; a batch with a
 * narrow layer. */
static const bench_shape default_shapes[] = {
    {1024, 1024, 1024}, {1, 4096, 4096}, {16, 4096, 11008}, {128, 4096, 4096}, {512, 1024, 4096},
};
/* Squares come first, because their rates are used to predict the time of larger products. */
static const bench_shape complete_shapes[] = {
    {256, 256, 256}, {512, 512, 512},  {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096},
    {1, 4096, 4096}, {1, 4096, 11008}, {16, 4096, 11008},  {128, 4096, 4096},  {512, 1024, 4096},
};

/* Batches of small products, as in attention: queries times keys, and weights times values. */
static const struct {
    int64_t batch;
    bench_shape shape;
} batches[] = {{32, {128, 64, 128}}, {32, {128, 128, 64}}, {32, {1, 128, 512}}};

typedef struct matmul {
    bench_context *context;
    int64_t batch; /* 0: there is no batch dimension */
    bench_shape shape;
    tsr_dtype dtype;
    float *x, *w, *y; /* on the host, in f32 */
    float *in_f32;    /* the expected y before it is rounded to the dtype; NULL if y is f32 */
    /* x, w and y in the dtype of the case; `again` is y after the timed runs */
    void *x_bytes, *w_bytes, *y_bytes, *again;
    tsr_tensor *device_x, *device_w, *device_y;
} matmul;

static const char *name_of(const matmul *test)
{
    return test->batch > 0 ? "batched" : "matmul";
}

static int64_t batch_of(const matmul *test)
{
    return test->batch > 0 ? test->batch : 1;
}

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

static uint64_t y_count_of(const matmul *test)
{
    return (uint64_t)batch_of(test) * (uint64_t)test->shape.m * (uint64_t)test->shape.n;
}

static bool create_tensor(matmul *test, int64_t rows, int64_t columns, tsr_tensor **tensor)
{
    int64_t shape[] = {test->batch, rows, columns};
    bool batched = test->batch > 0;
    BENCH_TRY(test->context, tsr_tensor_create(test->context->device, test->dtype, batched ? 3 : 2,
                                               batched ? shape : shape + 1, tensor));
    return true;
}

/* Creates random values: on the host in f32 and in the dtype, and the same values on the device. */
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

/* Allocates device memory first: if there is not enough, that fails with an error, whereas the
 * host's allocations might continue until the process is killed. */
static bool create(matmul *test)
{
    const bench_shape *shape = &test->shape;
    uint64_t y_count = y_count_of(test);
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

/* Downloads y to `bytes`, in the dtype. */
static bool download_y(matmul *test, void *bytes, uint64_t *size)
{
    *size = y_count_of(test) * tsr_dtype_size(test->dtype);
    BENCH_TRY(test->context,
              tsr_tensor_download(test->context->stream, test->device_y, bytes, *size));
    return true;
}

static bool verify(matmul *test, bench_row *row)
{
    uint64_t size, count = y_count_of(test);
    BENCH_TRY(test->context, run_device(test->context->stream, test));
    if (!download_y(test, test->y_bytes, &size))
        return false;
    bench_decode(test->dtype, test->y_bytes, count, test->y);
    BENCH_TRY(test->context,
              bench_product_in_f32(test->context, test->device_y, test->device_x, test->device_w,
                                   tsr_matmul_params(.transpose_b = true), &test->in_f32));
    /* Check one product of the batch after the other, up to the first one that is wrong. */
    const bench_shape *s = &test->shape;
    uint64_t checked = 0;
    double worst = 0;
    for (int64_t i = 0; i < batch_of(test); i++) {
        bench_check_matmul(&row->check, s, test->x + i * s->m * s->k, test->w + i * s->n * s->k,
                           test->y + i * s->m * s->n, test->dtype,
                           test->in_f32 != NULL ? test->in_f32 + i * s->m * s->n : NULL);
        if (!bench_verified(test->context, row))
            return false;
        checked += row->check.checked;
        worst = row->check.excess > worst ? row->check.excess : worst;
    }
    row->check.checked = checked;
    row->check.excess = worst;
    return true;
}

/* Checks that the last timed run gave the same bits as the run that was verified. */
static bool verify_again(matmul *test)
{
    uint64_t size;
    if (!download_y(test, test->again, &size))
        return false;
    if (memcmp(test->again, test->y_bytes, size) != 0)
        return bench_fail(test->context,
                          "matmul: the result changed between runs with the same operands");
    return true;
}

static bool measure_openblas(matmul *test, bench_row *row)
{
    /* The result of the peer is verified in the same way: it would be unfair to compare with
     * software whose result is wrong. */
    bench_check check;
    memset(test->y, 0xff, (size_t)(test->shape.m * test->shape.n) * sizeof *test->y);
    run_openblas(NULL, test);
    bench_check_matmul(&check, &test->shape, test->x, test->w, test->y, TSR_F32, NULL);
    char reason[512];
    if (!bench_check_passed(&check, reason, sizeof reason))
        return bench_fail(test->context, "OpenBLAS: %s", reason);
    return bench_measure_peer(test->context, row, bench_openblas_name(),
                              &(bench_task){.run = run_openblas, .user = test, .host_only = true});
}

/* Returns the number of bytes if each operand is read once and the result is written once. */
static double bytes_of(const matmul *test)
{
    double m = (double)test->shape.m, k = (double)test->shape.k, n = (double)test->shape.n;
    return (double)batch_of(test) * (m * k + n * k + m * n) * (double)tsr_dtype_size(test->dtype);
}

static double work_of(const matmul *test)
{
    return 2.0 * (double)batch_of(test) * (double)test->shape.m * (double)test->shape.k *
           (double)test->shape.n;
}

/* Returns the ceiling of arithmetic (ceilings.h) with which this case is compared. For f16 and bf16
 * products with cooperative matrices it is the ceiling of f16 cooperative matrices, because GPUs
 * multiply both dtypes at the same rate. For all other products it is the ceiling of f32
 * multiply-adds. */
static const bench_row *arithmetic_of(const matmul *test)
{
    const tsr_device_info *info = test->context->info;
    bool uses = test->dtype == TSR_F16 || (test->dtype == TSR_BF16 && info->coopmat_bf16_used >= 0);
    bool coopmat = uses && bench_has_coopmat(info);
    return coopmat ? bench_coopmat_peak(test->context) : bench_fma_peak(test->context);
}

static bool measure_matmul(matmul *test, double *rate)
{
    bench_context *context = test->context;
    const bench_shape *shape = &test->shape;
    const bench_row *arithmetic = arithmetic_of(test), *memory = bench_memory_peak(context);
    if (memory == NULL || arithmetic == NULL || !create(test))
        return false;
    bench_row *row = bench_add(context, name_of(test), BENCH_GFLOPS, work_of(test));
    row->bytes = bytes_of(test);
    bench_text(row, "dtype", "%s", tsr_dtype_name(test->dtype));
    if (test->batch > 0)
        bench_integer(row, "batch", test->batch);
    bench_integer(row, "m", shape->m);
    bench_integer(row, "k", shape->k);
    bench_integer(row, "n", shape->n);
    row->arithmetic = arithmetic;
    row->memory = memory;
    if (!verify(test, row) ||
        !bench_measure(context, row, &(bench_task){.run = run_device, .user = test}) ||
        !verify_again(test))
        return false;
    *rate = bench_median(row) > *rate ? bench_median(row) : *rate;
    bool peer = context->options->peer && test->dtype == TSR_F32 && test->batch == 0;
    return !peer || measure_openblas(test, row);
}

static void finish(matmul *test)
{
    tsr_tensor_destroy(&test->device_x);
    tsr_tensor_destroy(&test->device_w);
    tsr_tensor_destroy(&test->device_y);
    free(test->x);
    free(test->w);
    free(test->y);
    free(test->in_f32);
    free(test->x_bytes);
    free(test->w_bytes);
    free(test->y_bytes);
    free(test->again);
}

static bool run_case(matmul *test, double *rate)
{
    const bench_shape *s = &test->shape;
    char batch[32] = "";
    if (test->batch > 0)
        snprintf(batch, sizeof batch, "%lld of ", (long long)test->batch);
    /* *rate is the best rate of the products measured so far, which are smaller. It predicts the
     * time of this product, because a larger product rarely has more than twice this rate. */
    if (*rate > 0 && !bench_worthwhile(test->context, name_of(test), work_of(test) / *rate,
                                       "%s %s%lldx%lldx%lld", tsr_dtype_name(test->dtype), batch,
                                       (long long)s->m, (long long)s->k, (long long)s->n))
        return true;
    bool done = measure_matmul(test, rate);
    finish(test);
    return done;
}

static const tsr_dtype all_dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};

static bool run_matmul(bench_context *context)
{
    const bench_options *options = context->options;
    const bench_shape *shapes = options->complete ? complete_shapes : default_shapes;
    size_t shape_count = options->complete ? sizeof complete_shapes / sizeof *shapes
                                           : sizeof default_shapes / sizeof *shapes;
    if (options->shape_count > 0) {
        shapes = options->shapes;
        shape_count = (size_t)options->shape_count;
    }
    const tsr_dtype *dtypes = options->dtype_count > 0 ? options->dtypes : all_dtypes;
    int dtype_count = options->dtype_count > 0 ? options->dtype_count : options->complete ? 3 : 1;

    char problem[256];
    if (options->peer) {
        if (!bench_openblas_load(problem, sizeof problem))
            return bench_fail(context, "%s", problem);
        context->peer_warning = bench_openblas_warning();
    }
    for (int d = 0; d < dtype_count; d++) {
        double rate = 0;
        for (size_t s = 0; s < shape_count; s++)
            if (!run_case(&(matmul){.context = context, .shape = shapes[s], .dtype = dtypes[d]},
                          &rate))
                return false;
    }
    return true;
}

static bool run_batches(bench_context *context)
{
    const bench_options *options = context->options;
    const tsr_dtype *dtypes = options->dtype_count > 0 ? options->dtypes : all_dtypes;
    int dtype_count = options->dtype_count > 0 ? options->dtype_count : options->complete ? 3 : 1;
    double rate = 0;
    for (int d = 0; d < dtype_count; d++)
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
            if (!run_case(&(matmul){.context = context,
                                    .batch = batches[i].batch,
                                    .shape = batches[i].shape,
                                    .dtype = dtypes[d]},
                          &rate))
                return false;
    return true;
}

const bench bench_matmul = {
    .name = "matmul",
    .summary = "matrix products y[m,n] = x[m,k] · w[n,k]ᵀ; GFLOP/s",
    .help = "Multiplies random x[m,k] by random w[n,k]ᵀ, both contiguous, into y[m,n] of the same "
            "dtype; sums are in f32. A product has 2·m·k·n operations. The ceiling is what f32 "
            "multiply-adds in registers reach in the same run (for f16, cooperative matrices, if "
            "the library uses them), or the bandwidth of the memory if moving x, w and y once "
            "takes longer. --peer adds OpenBLAS's sgemm on the same f32 operands, with its default "
            "number of threads.\n",
    .takes = BENCH_SHAPES | BENCH_DTYPES | BENCH_PEER,
    .run = run_matmul,
};

const bench bench_batched = {
    .name = "batched",
    .summary = "many small matrix products in one call, as in attention; GFLOP/s",
    .help = "Like matmul, with a batch dimension before x, w and y: 32 heads of 128x128 queries by "
            "keys and weights by values, and of a single query.\n",
    .takes = BENCH_DTYPES,
    .run = run_batches,
};
