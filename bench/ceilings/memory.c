/* The bandwidth of the device's memory: a copy by the library, and kernels
 * that stream through it. */
#include <stdlib.h>
#include <string.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

static const uint32_t stream_code[] =
#include "bench/memory_stream.inc"
    ;

/* The size of the tensors. On GPUs it is larger than the caches. For CPU drivers a smaller size is
 * enough, because their ceiling is memcpy. */
#define GPU_BYTES ((uint64_t)256 << 20)
#define CPU_BYTES ((uint64_t)64 << 20)

/* The shader, memory_stream.comp, has the same numbers. */
#define THREADS 256
#define VECTOR_BYTES 16
#define ROW_OF_GROUPS                                                                              \
    1024 /* workgroups in x: their number in one dimension is limited to 65535                     \
          */
#define MAX_VECTORS 4

/* Moves all bytes of one tensor to another. */
typedef struct mover {
    bench_context *context;
    /* vectors per invocation of the kernel; 0: tsr_copy moves the bytes instead */
    uint32_t vectors;
    tsr_kernel *kernel;
    uint64_t bytes;
    tsr_tensor *from, *to;
    void *sent, *received;
} mover;

static tsr_status run_memory_stream(tsr_stream *stream, void *user)
{
    mover *test = user;
    if (test->vectors == 0)
        return tsr_copy(stream, test->to, test->from);
    uint64_t groups = test->bytes / VECTOR_BYTES / THREADS / test->vectors;
    return tsr_kernel_run(
        stream, test->kernel,
        (tsr_kernel_argument[]){tsr_kernel_argument(.tensor = test->from),
                                tsr_kernel_argument(.tensor = test->to, .written = true)},
        NULL, (uint32_t[]){ROW_OF_GROUPS, (uint32_t)(groups / ROW_OF_GROUPS), 1});
}

static bool create(mover *test)
{
    bench_context *context = test->context;
    test->bytes = context->info->type == TSR_DEVICE_CPU ? CPU_BYTES : GPU_BYTES;
    int64_t count = (int64_t)(test->bytes / sizeof(float));
    test->sent = cli_alloc(test->bytes, 1);
    test->received = cli_alloc(test->bytes, 1);
    bench_random_values(test->sent, (uint64_t)count, TSR_F32, 8);
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1, &count, &test->from));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1, &count, &test->to));
    BENCH_TRY(context, tsr_tensor_upload(context->stream, test->from, test->sent, test->bytes));
    if (test->vectors > 0)
        BENCH_TRY(context,
                  tsr_kernel_create(
                      context->device,
                      tsr_kernel_params(.spirv = stream_code,
                                        .spirv_words = sizeof stream_code / sizeof *stream_code,
                                        .name = "memory_stream", .tensor_count = 2,
                                        .constants = &test->vectors, .constant_count = 1),
                      &test->kernel));
    BENCH_TRY(context, run_memory_stream(context->stream, test));
    return true;
}

static bool verify(mover *test, bench_row *row)
{
    bench_context *context = test->context;
    BENCH_TRY(context, tsr_tensor_download(context->stream, test->to, test->received, test->bytes));
    bench_check_begin(&row->check, "every 16 bytes");
    const char *want = test->sent, *got = test->received;
    for (uint64_t i = 0; i < test->bytes; i += 16)
        bench_check_value(&row->check, 0, (int64_t)i, memcmp(got + i, want + i, 16) == 0, 1, 0);
    return bench_verified(context, row);
}

static void finish(mover *test)
{
    tsr_kernel_destroy(&test->kernel);
    tsr_tensor_destroy(&test->from);
    tsr_tensor_destroy(&test->to);
    free(test->sent);
    free(test->received);
}

static bool measure_again(bench_context *context, bench_row *row);

/* Measures the bandwidth and stores it in `row`, or in a new row of the results if `row` is NULL.
 * Returns the row, or NULL on failure. */
static bench_row *measure_memory_stream(bench_context *context, uint32_t vectors, bench_row *row)
{
    mover test = {.context = context, .vectors = vectors};
    bool done = create(&test);
    if (done && row == NULL) {
        row = bench_add(context, vectors > 0 ? "memory_stream" : "device_copy", BENCH_GBYTES,
                        2.0 * (double)test.bytes);
        row->is_ceiling = true;
        row->again = measure_again;
        bench_integer(row, "bytes", (int64_t)test.bytes);
        if (vectors > 0)
            bench_integer(row, "vectors", vectors);
    }
    done = done && verify(&test, row) &&
           bench_measure(context, row, &(bench_task){.run = run_memory_stream, .user = &test});
    finish(&test);
    return done ? row : NULL;
}

static bool measure_again(bench_context *context, bench_row *row)
{
    uint32_t vectors = row->param_count > 1 ? (uint32_t)atoi(row->params[1].text) : 0;
    return measure_memory_stream(context, vectors, row) != NULL;
}

const bench_row *bench_device_copy(bench_context *context)
{
    if (context->device_copy == NULL)
        context->device_copy = measure_memory_stream(context, 0, NULL);
    return context->device_copy;
}

const bench_row *bench_memory_stream(bench_context *context)
{
    if (context->memory_stream != NULL)
        return context->memory_stream;
    const bench_row *best = NULL;
    for (uint32_t vectors = 1; vectors <= MAX_VECTORS; vectors *= 2) {
        const bench_row *row = measure_memory_stream(context, vectors, NULL);
        if (row == NULL)
            return NULL;
        if (best == NULL || bench_median(row) > bench_median(best))
            best = row;
    }
    context->memory_stream = best;
    return best;
}

const bench_row *bench_memory_peak(bench_context *context)
{
    if (context->info->type == TSR_DEVICE_CPU)
        return bench_memcpy_peak(context);
    const bench_row *copy = bench_device_copy(context), *stream = bench_memory_stream(context);
    if (copy == NULL || stream == NULL)
        return NULL;
    return bench_median(copy) > bench_median(stream) ? copy : stream;
}
