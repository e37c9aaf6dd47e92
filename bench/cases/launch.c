/* tessera bench launch: the cost of starting work, measured with kernels that do almost nothing. */
#include <stdio.h>

#include "bench/cases/fresh.h"
#include "bench/harness/bench.h"
#include "cli/lib/memory.h"

static const uint32_t code[] =
#include "bench/tick.inc"
    ;

#define BATCH 1000
#define COUNTERS 64

/* Counters to which kernels add 1, and their expected values. */
typedef struct ticks {
    bench_context *context;
    tsr_kernel *kernel;
    tsr_tensor *all, *one[COUNTERS];
    uint32_t expected[COUNTERS];
    int used; /* number of counters that kernels use, round-robin */
} ticks;

static tsr_status tick(tsr_stream *stream, ticks *test, int counter)
{
    test->expected[counter]++;
    return tsr_kernel_run(
        stream, test->kernel,
        (tsr_kernel_argument[]){tsr_kernel_argument(.tensor = test->one[counter], .written = true)},
        NULL, (uint32_t[]){1, 1, 1});
}

static tsr_status run_round_trip(tsr_stream *stream, void *user)
{
    tsr_status status = tick(stream, user, 0);
    return status == TSR_OK ? tsr_stream_wait(stream) : status;
}

static tsr_status run_batch(tsr_stream *stream, void *user)
{
    ticks *test = user;
    tsr_status status = TSR_OK;
    for (int i = 0; i < BATCH && status == TSR_OK; i++)
        status = tick(stream, test, i % test->used);
    return status;
}

static bool create(ticks *test)
{
    bench_context *context = test->context;
    BENCH_TRY(context,
              tsr_kernel_create(context->device,
                                tsr_kernel_params(.spirv = code,
                                                  .spirv_words = sizeof code / sizeof code[0],
                                                  .name = "tick", .tensor_count = 1),
                                &test->kernel));
    /* The counters are 256 bytes apart, so that no two share a cache line. */
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_U32, 2, (int64_t[]){COUNTERS, 64},
                                         &test->all));
    BENCH_TRY(context, tsr_fill(context->stream, test->all, 0));
    for (int i = 0; i < COUNTERS; i++)
        BENCH_TRY(context, tsr_tensor_select(test->all, 0, i, &test->one[i]));
    return true;
}

static bool verify(ticks *test, bench_row *row)
{
    bench_context *context = test->context;
    uint32_t counters[COUNTERS][64];
    BENCH_TRY(context, tsr_tensor_download(context->stream, test->all, counters, sizeof counters));
    bench_check_begin(&row->check, "every kernel's count of its runs");
    for (int i = 0; i < COUNTERS; i++)
        bench_check_value(&row->check, i, 0, counters[i][0], test->expected[i], 0);
    return bench_verified(context, row);
}

static bool measure_launches(bench_context *context, const char *name, double work, int used,
                             const bench_task *task)
{
    ticks test = {.context = context, .used = used};
    bench_task own = *task;
    own.user = &test;
    bench_row *row = bench_add(context, "launch", BENCH_TIME, work);
    bench_text(row, "what", "%s", name);
    bool done = create(&test) && bench_passed(context, own.run(context->stream, &test), name) &&
                verify(&test, row) && bench_measure(context, row, &own) && verify(&test, row);
    for (int i = 0; i < COUNTERS; i++)
        tsr_tensor_destroy(&test.one[i]);
    tsr_tensor_destroy(&test.all);
    tsr_kernel_destroy(&test.kernel);
    return done;
}

/* Opens the device a second time. It is selected by index, because two drivers of one GPU give it
 * the same UUID. */
static tsr_status open_again(const bench_context *context, tsr_device **out)
{
    char index[16];
    snprintf(index, sizeof index, "%d", context->info->index);
    return tsr_device_open(tsr_device_params(.device = index), out);
}

static tsr_status run_open(tsr_stream *stream, void *user)
{
    (void)stream;
    tsr_device *device = NULL;
    tsr_status status = open_again(user, &device);
    tsr_device_close(&device);
    return status;
}

static bool measure_open(bench_context *context)
{
    bench_row *row = bench_add(context, "launch", BENCH_TIME, 1);
    bench_text(row, "what", "device open and close, driver loaded");
    tsr_device *device = NULL;
    BENCH_TRY(context, open_again(context, &device));
    bench_check_begin(&row->check, "the opened device's UUID");
    const uint8_t *uuid = tsr_device_get_info(device)->uuid;
    for (int i = 0; i < TSR_UUID_SIZE; i++)
        bench_check_value(&row->check, 0, i, uuid[i], context->info->uuid[i], 0);
    tsr_device_close(&device);
    return bench_verified(context, row) &&
           bench_measure(context, row,
                         &(bench_task){.run = run_open, .user = context, .host_only = true});
}

static bool run_launches(bench_context *context)
{
    /* The device's timestamps do not cover a round trip, because the first one is taken only when
     * the batch starts on the device. */
    return measure_launches(context, "round trip: submit one kernel, wait", 1, 1,
                            &(bench_task){.run = run_round_trip, .no_device_clock = true}) &&
           measure_launches(context, "a dispatch among 1000, each needs the last", BATCH, 1,
                            &(bench_task){.run = run_batch}) &&
           measure_launches(context, "a dispatch among 1000, independent", BATCH, COUNTERS,
                            &(bench_task){.run = run_batch}) &&
           measure_open(context) && (context->options->complete || bench_fresh_processes(context));
}

const bench bench_launch = {
    .name = "launch",
    .summary = "round trip, cost of a dispatch, opening a device, the first matmul",
    .help = "Times a kernel that adds 1 to a counter: one submission with a wait; and 1000 "
            "recorded dispatches with one wait, with a barrier between each two or without any. "
            "Then the device is closed and opened again. Finally fresh processes ('tessera bench "
            "first') with a temporary XDG_CACHE_HOME: three or more that each start with an empty "
            "one, then as many that share a filled one. The folder holds tessera's pipeline cache, "
            "and those of drivers that use the variable, such as Mesa's.\n",
    .takes = 0,
    .run = run_launches,
};
