/* How fast memory is, and which of two ceilings a piece of work meets first. */
#include <stdlib.h>
#include <string.h>

#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

/* Beyond the caches of GPUs; CPU drivers have their ceiling from memcpy. */
#define GPU_BYTES ((uint64_t)256 << 20)
#define CPU_BYTES ((uint64_t)64 << 20)

typedef struct pair {
    bench_context *context;
    uint64_t bytes;
    tsr_tensor *from, *to;
    void *sent, *received;
} pair;

static tsr_status run_copy(tsr_stream *stream, void *user)
{
    pair *test = user;
    return tsr_copy(stream, test->to, test->from);
}

static bool create(pair *test)
{
    bench_context *context = test->context;
    int64_t count = (int64_t)(test->bytes / sizeof(float));
    test->sent = cli_alloc(test->bytes, 1);
    test->received = cli_alloc(test->bytes, 1);
    bench_random_values(test->sent, (uint64_t)count, TSR_F32, 8);
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1, &count, &test->from));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1, &count, &test->to));
    BENCH_TRY(context, tsr_tensor_upload(context->stream, test->from, test->sent, test->bytes));
    BENCH_TRY(context, run_copy(context->stream, test));
    return true;
}

static bool verify(pair *test, bench_row *row)
{
    bench_context *context = test->context;
    BENCH_TRY(context, tsr_tensor_download(context->stream, test->to, test->received, test->bytes));
    bench_check_begin(&row->check, "every 16 bytes");
    const char *want = test->sent, *got = test->received;
    for (uint64_t i = 0; i < test->bytes; i += 16)
        bench_check_value(&row->check, 0, (int64_t)i, memcmp(got + i, want + i, 16) == 0, 1, 0);
    return bench_verified(context, row);
}

const bench_row *bench_device_copy(bench_context *context)
{
    if (context->device_copy != NULL)
        return context->device_copy;
    bool is_cpu = context->info->type == TSR_DEVICE_CPU;
    pair test = {.context = context, .bytes = is_cpu ? CPU_BYTES : GPU_BYTES};
    bench_row *row = bench_add(context, "device_copy", BENCH_GBYTES, 2.0 * (double)test.bytes);
    row->is_ceiling = true;
    bench_integer(row, "bytes", (int64_t)test.bytes);
    if (create(&test) && verify(&test, row) &&
        bench_measure(context, row, &(bench_task){.run = run_copy, .user = &test}))
        context->device_copy = row;
    tsr_tensor_destroy(&test.from);
    tsr_tensor_destroy(&test.to);
    free(test.sent);
    free(test.received);
    return context->device_copy;
}

const bench_row *bench_memory_peak(bench_context *context)
{
    return context->info->type == TSR_DEVICE_CPU ? bench_memcpy_peak(context)
                                                 : bench_device_copy(context);
}

const bench_row *bench_roof(bench_context *context, const bench_row *arithmetic, double work,
                            double bytes)
{
    const bench_row *memory = bench_memory_peak(context);
    if (arithmetic == NULL || memory == NULL)
        return NULL;
    return work / bench_median(arithmetic) >= bytes / bench_median(memory) ? arithmetic : memory;
}
