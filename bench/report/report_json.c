/* Writes the results of a run as JSON, with every sample. docs/bench.schema.json is the schema. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/clock.h"
#include "bench/harness/machine.h"
#include "bench/report/report.h"
#include "cli/lib/device.h"
#include "cli/lib/json.h"

static const char *json_unit(bench_unit unit)
{
    return unit == BENCH_TIME ? "ns" : bench_unit_name(unit);
}

static void add_samples(json_t *object, const char *name, const bench_samples *samples)
{
    if (samples->count == 0) {
        cli_json_null(object, name);
        return;
    }
    bench_summary summary = bench_summarize(samples);
    json_t *entry = cli_json_add_object(object, name);
    cli_json_u64(entry, "repetitions", samples->repetitions);
    cli_json_real(entry, "median", summary.median);
    cli_json_real(entry, "p10", summary.p10);
    cli_json_real(entry, "p90", summary.p90);
    cli_json_real(entry, "min", summary.min);
    cli_json_real(entry, "max", summary.max);
    json_t *all = cli_json_add_array(entry, "samples");
    for (int i = 0; i < samples->count; i++)
        cli_json_append_real(all, samples->ns[i]);
}

/* Adds the median of a row's samples and the range around it, in the row's unit. "low" and "high"
 * are the ends of the middle 80 % of the samples. */
static void add_value(json_t *object, const bench_row *row)
{
    bench_summary summary = bench_summarize(&row->host);
    bool rate = row->unit != BENCH_TIME;
    json_t *entry = cli_json_add_object(object, "value");
    cli_json_text(entry, "unit", json_unit(row->unit));
    cli_json_real(entry, "median", bench_value(row, summary.median));
    cli_json_real(entry, "low", bench_value(row, rate ? summary.p90 : summary.p10));
    cli_json_real(entry, "high", bench_value(row, rate ? summary.p10 : summary.p90));
    cli_json_real(entry, "best", bench_value(row, summary.min));
    cli_json_bool(entry, "noisy", bench_is_noisy(&summary));
}

static void add_case(json_t *object, const bench_row *row)
{
    json_t *params = cli_json_add_object(object, "case");
    for (int i = 0; i < row->param_count; i++) {
        if (row->params[i].is_number)
            cli_json_add(params, row->params[i].name, json_integer(atoll(row->params[i].text)));
        else
            cli_json_text(params, row->params[i].name, row->params[i].text);
    }
}

static void add_check(json_t *object, const bench_check *check)
{
    json_t *entry = cli_json_add_object(object, "verified");
    cli_json_text(entry, "method", check->method);
    cli_json_u64(entry, "values", check->checked);
    cli_json_real(entry, "worst_error_over_tolerance", check->excess < 0 ? 0 : check->excess);
}

static int index_of(const bench_context *context, const bench_row *row)
{
    for (int i = 0; i < context->row_count; i++)
        if (context->rows[i] == row)
            return i;
    return -1;
}

static void add_place(json_t *object, int device_place)
{
    if (device_place >= 0)
        cli_json_u64(object, "device", (uint64_t)device_place);
    else
        cli_json_null(object, "device");
}

/* Why a result is above its ceiling. */
static const char *const standings[] = {
    [BENCH_WITHIN] = NULL, [BENCH_CACHED] = "caches", [BENCH_ABOVE] = "slower_moment"};

static json_t *row_json(const bench_context *context, const bench_row *row)
{
    json_t *object = json_object();
    cli_json_text(object, "benchmark", row->benchmark);
    cli_json_bool(object, "is_ceiling", row->is_ceiling);
    add_case(object, row);
    add_place(object, row->device_place);
    cli_json_real(object, "work", row->work);
    if (row->bytes > 0)
        cli_json_real(object, "bytes", row->bytes);
    else
        cli_json_null(object, "bytes");
    add_value(object, row);
    const bench_row *limit = bench_ceiling(row);
    if (limit != NULL) {
        json_t *ceiling = cli_json_add_object(object, "ceiling");
        cli_json_u64(ceiling, "result", (uint64_t)index_of(context, limit));
        cli_json_text(ceiling, "benchmark", limit->benchmark);
        cli_json_real(ceiling, "fraction", bench_fraction(row));
        if (standings[bench_stands(row)] != NULL)
            cli_json_text(ceiling, "above", standings[bench_stands(row)]);
        else
            cli_json_null(ceiling, "above");
    } else {
        cli_json_null(object, "ceiling");
    }
    add_check(object, &row->check);
    add_samples(object, "host_ns", &row->host);
    add_samples(object, "device_ns", &row->device);
    if (row->peer.count > 0) {
        json_t *peer = cli_json_add_object(object, "peer");
        bench_summary summary = bench_summarize(&row->peer);
        cli_json_text(peer, "name", row->peer_name);
        cli_json_real(peer, "median", bench_value(row, summary.median));
        add_samples(peer, "host_ns", &row->peer);
    } else {
        cli_json_null(object, "peer");
    }
    if (row->bus_factor > 0)
        cli_json_real(object, "busbw", bench_median(row) * row->bus_factor);
    else
        cli_json_null(object, "busbw");
    if (row->peak_bytes > 0)
        cli_json_u64(object, "peak_bytes", (uint64_t)row->peak_bytes);
    else
        cli_json_null(object, "peak_bytes");
    if (row->elsewhere != NULL)
        cli_json_text(object, "elsewhere", row->elsewhere);
    else
        cli_json_null(object, "elsewhere");
    return object;
}

static void add_notes(json_t *document, const char *name, const bench_notes *notes)
{
    json_t *array = cli_json_add_array(document, name);
    for (int i = 0; i < notes->count; i++) {
        json_t *entry = cli_json_append_object(array);
        cli_json_text(entry, "benchmark", notes->all[i].benchmark);
        add_place(entry, notes->all[i].device_place);
        cli_json_text(entry, "text", notes->all[i].text);
    }
}

static void add_noise(json_t *document, const bench_context *context)
{
    char warnings[BENCH_WARNINGS][BENCH_WARNING_SIZE];
    json_t *noise = cli_json_add_object(document, "noise");
    double other_cpus = context->noise.other_cpus, load = context->noise.load_average;
    cli_json_real(noise, "other_cpus", other_cpus < 0 ? NAN : other_cpus);
    cli_json_real(noise, "load_average", load < 0 ? NAN : load);
    cli_json_u64(noise, "noisy_results", (uint64_t)bench_noisy_rows(context));
    json_t *array = cli_json_add_array(noise, "warnings");
    int count = bench_warnings(context, warnings);
    for (int i = 0; i < count; i++)
        cli_json_append(array, json_string(warnings[i]));
}

json_t *bench_report_document(const bench_context *context, const bench *what)
{
    bench_host host;
    bench_host_read(&host);
    json_t *document = cli_json_document(BENCH_SCHEMA, BENCH_SCHEMA_VERSION);
    if (what != NULL)
        cli_json_text(document, "benchmark", what->name);
    else
        cli_json_null(document, "benchmark");
    cli_json_text(document, "time", host.time);
    cli_json_real(document, "duration_s", (bench_now_ns() - context->noise.start_ns) / 1e9);
    json_t *machine = cli_json_add_object(document, "host");
    cli_json_text(machine, "cpu", host.cpu);
    cli_json_u64(machine, "cpus", (uint64_t)host.cpus);
    cli_json_text(machine, "os", host.os);
    add_noise(document, context);
    cli_json_real(document, "seconds_per_result", context->options->seconds);
    json_t *devices = cli_json_add_array(document, "devices");
    for (int i = 0; i < context->device_count; i++)
        cli_json_append(devices, cli_json_device(context->devices[i]));
    json_t *results = cli_json_add_array(document, "results");
    for (int i = 0; i < context->row_count; i++)
        cli_json_append(results, row_json(context, context->rows[i]));
    add_notes(document, "left_out", &context->left_out);
    add_notes(document, "failures", &context->failures);
    return document;
}
