/* Rows, failures and timing, which all benchmarks share. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/harness/bench.h"
#include "bench/harness/clock.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

/* One sample takes 1/SAMPLES_WANTED of the time for a row, but at least SHORTEST_SAMPLE_NS. */
#define SAMPLES_WANTED 30
#define SHORTEST_SAMPLE_NS 1e6
#define MIN_SAMPLES 5
#define MAX_SAMPLES 300
#define WARM_UP_SHARE 0.1
/* GPUs lower their clocks while they have little to do, for example while the host verifies a
 * result. They raise their clocks only after some tenths of a second with work. */
#define GPU_WARM_UP_NS 2e8

/* A result up to this many times its ceiling counts as within it, because two measurements of the
 * same work differ by a few per cent. */
#define CEILING_TOLERANCE 1.05
/* Data of up to this size may be in caches: the largest last-level caches have 256 MiB. */
#define LARGEST_CACHE (256.0 * (1 << 20))

bench_row *bench_add(bench_context *context, const char *benchmark, bench_unit unit, double work)
{
    bench_row *row = cli_alloc(1, sizeof *row);
    row->benchmark = benchmark;
    row->device_place = context->info != NULL ? context->device_count - 1 : -1;
    row->unit = unit;
    row->work = work;
    context->rows = cli_resize(context->rows, (size_t)context->row_count + 1, sizeof(bench_row *));
    context->rows[context->row_count++] = row;
    return row;
}

static bench_param *add_param(bench_row *row, const char *name)
{
    /* The first parameter too many is kept for the error text of bench_verified; any further one
     * overwrites it. */
    if (row->param_count <= BENCH_MAX_PARAMS)
        row->param_count++;
    bench_param *param = &row->params[row->param_count - 1];
    *param = (bench_param){.name = name};
    return param;
}

void bench_text(bench_row *row, const char *name, const char *format, ...)
{
    bench_param *param = add_param(row, name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(param->text, sizeof param->text, format, arguments);
    va_end(arguments);
}

void bench_integer(bench_row *row, const char *name, int64_t value)
{
    bench_param *param = add_param(row, name);
    param->is_number = true;
    snprintf(param->text, sizeof param->text, "%" PRId64, value);
}

double bench_value(const bench_row *row, double ns)
{
    if (row->unit == BENCH_TIME)
        return ns / row->work;
    return ns > 0 ? row->work / ns : 0; /* work per nanosecond equals giga-work per second */
}

double bench_median(const bench_row *row)
{
    return bench_value(row, bench_summarize(&row->host).median);
}

const bench_row *bench_ceiling(const bench_row *row)
{
    if (row->arithmetic == NULL || row->memory == NULL)
        return row->arithmetic != NULL ? row->arithmetic : row->memory;
    double computing = row->work / bench_median(row->arithmetic);
    double moving = row->bytes / bench_median(row->memory);
    return computing >= moving ? row->arithmetic : row->memory;
}

/* Returns the bytes that one repetition reads and writes. */
static double bytes_of(const bench_row *row)
{
    return row->unit == BENCH_GBYTES ? row->work : row->bytes;
}

double bench_fraction(const bench_row *row)
{
    const bench_row *ceiling = bench_ceiling(row);
    if (ceiling == NULL)
        return 0;
    double own = ceiling->unit == BENCH_GBYTES ? bytes_of(row) : row->work;
    return own / bench_summarize(&row->host).median / bench_median(ceiling);
}

bench_standing bench_compare_with_ceiling(double fraction, bool by_memory, double bytes)
{
    if (fraction <= CEILING_TOLERANCE)
        return BENCH_WITHIN;
    return by_memory && bytes <= LARGEST_CACHE ? BENCH_CACHED : BENCH_ABOVE;
}

bench_standing bench_stands(const bench_row *row)
{
    const bench_row *ceiling = bench_ceiling(row);
    return ceiling == NULL ? BENCH_WITHIN
                           : bench_compare_with_ceiling(
                                 bench_fraction(row), ceiling->unit == BENCH_GBYTES, bytes_of(row));
}

bool bench_fail(bench_context *context, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context->error, sizeof context->error, format, arguments);
    va_end(arguments);
    return false;
}

bool bench_passed(bench_context *context, tsr_status status, const char *what)
{
    if (status == TSR_OK)
        return true;
    const char *reason = tsr_last_error();
    return bench_fail(context, "%s", reason[0] != '\0' ? cli_without_module(reason) : what);
}

void bench_describe(const bench_row *row, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s", row->benchmark);
    for (int i = 0; i < row->param_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, " %s %s", row->params[i].name,
                                 row->params[i].text);
}

bool bench_verified(bench_context *context, const bench_row *row)
{
    char reason[512], name[256];
    if (row->param_count > BENCH_MAX_PARAMS)
        return bench_fail(context,
                          "bench %s: a row may have %d parameters (BENCH_MAX_PARAMS), and '%s' is "
                          "one too many",
                          row->benchmark, BENCH_MAX_PARAMS, row->params[BENCH_MAX_PARAMS].name);
    if (bench_check_passed(&row->check, reason, sizeof reason))
        return true;
    bench_describe(row, name, sizeof name);
    return bench_fail(context, "%s: %s", name, reason);
}

static bool run_sample(bench_context *context, const bench_task *task, uint64_t repetitions,
                       bool device_clock, double *host_ns, double *device_ns)
{
    double start = bench_now_ns();
    if (device_clock)
        BENCH_TRY(context, tsr_stream_timer_begin(context->stream));
    for (uint64_t i = 0; i < repetitions; i++)
        BENCH_TRY(context, task->run(context->stream, task->user));
    if (device_clock)
        BENCH_TRY(context, tsr_stream_timer_end(context->stream));
    if (!task->host_only)
        BENCH_TRY(context, tsr_stream_wait(context->stream));
    *host_ns = (bench_now_ns() - start) / (double)repetitions;
    if (device_clock) {
        uint64_t ns;
        BENCH_TRY(context, tsr_stream_timer_read(context->stream, &ns));
        *device_ns = (double)ns / (double)repetitions;
    }
    return true;
}

static double warm_up_ns(const bench_context *context, const bench_task *task)
{
    const double share = context->options->seconds * 1e9 * WARM_UP_SHARE;
    const bool gpu = !task->host_only && context->info->type != TSR_DEVICE_CPU;
    return gpu && share < GPU_WARM_UP_NS ? GPU_WARM_UP_NS : share;
}

/* Returns the number of repetitions in a sample, if one takes `ns`. */
static uint64_t repetitions_for(double budget_ns, double ns)
{
    double sample_ns = budget_ns / SAMPLES_WANTED;
    if (sample_ns < SHORTEST_SAMPLE_NS)
        sample_ns = SHORTEST_SAMPLE_NS;
    return bench_repetitions(sample_ns, ns);
}

static bool measure_task(bench_context *context, const bench_task *task, bench_samples *host,
                         bench_samples *device)
{
    double budget = context->options->seconds * 1e9, host_ns = 0, device_ns = 0;
    bool device_clock = device != NULL && !task->host_only && !task->no_device_clock &&
                        context->info->timestamp_period_ns > 0;

    /* Runs at least twice, so that the number of repetitions is computed from a run that builds no
     * pipelines. */
    uint64_t repetitions = 1;
    double start = bench_now_ns(), warm_up = warm_up_ns(context, task);
    for (int runs = 0; runs < 2 || bench_now_ns() - start < warm_up; runs++) {
        if (!run_sample(context, task, repetitions, device_clock, &host_ns, &device_ns))
            return false;
        if (runs > 0)
            repetitions = repetitions_for(budget, host_ns);
    }

    host->repetitions = repetitions;
    start = bench_now_ns();
    while (host->count < MIN_SAMPLES ||
           (host->count < MAX_SAMPLES && bench_now_ns() - start < budget)) {
        if (!run_sample(context, task, repetitions, device_clock, &host_ns, &device_ns))
            return false;
        bench_samples_add(host, host_ns);
        if (device_clock) {
            device->repetitions = repetitions;
            bench_samples_add(device, device_ns);
        }
    }
    return true;
}

static void progress(bench_context *context, const bench_row *row, const char *peer_name)
{
    char name[256], text[512];
    bench_describe(row, name, sizeof name);
    snprintf(text, sizeof text, "measuring %s%s%s", name, peer_name != NULL ? " with " : "",
             peer_name != NULL ? peer_name : "");
    bench_progress_show(&context->progress, text);
}

bool bench_measure(bench_context *context, bench_row *row, const bench_task *task)
{
    bench_samples host = {0}, device = {0};
    progress(context, row, NULL);
    bool done = bench_verified(context, row) && measure_task(context, task, &host, &device);
    /* If a ceiling is measured again, the faster samples are kept. */
    if (done && (row->host.count == 0 ||
                 bench_summarize(&host).median < bench_summarize(&row->host).median)) {
        bench_samples old_host = row->host, old_device = row->device;
        row->host = host;
        row->device = device;
        host = old_host;
        device = old_device;
    }
    bench_samples_free(&host);
    bench_samples_free(&device);
    return done;
}

bool bench_measure_peer(bench_context *context, bench_row *row, const char *peer_name,
                        const bench_task *task)
{
    progress(context, row, peer_name);
    snprintf(row->peer_name, sizeof row->peer_name, "%s", peer_name);
    return measure_task(context, task, &row->peer, NULL);
}

bool bench_lengthen(bench_context *context, const bench_task *task, uint32_t *rounds, uint32_t most)
{
    const double long_enough_ns = 5e6;
    for (;;) {
        double start = bench_now_ns();
        BENCH_TRY(context, task->run(context->stream, task->user));
        BENCH_TRY(context, tsr_stream_wait(context->stream));
        if (bench_now_ns() - start >= long_enough_ns || *rounds >= most)
            return true;
        *rounds *= 2;
    }
}

void bench_sample(bench_row *row, double ns)
{
    row->host.repetitions = 1;
    bench_samples_add(&row->host, ns);
}
