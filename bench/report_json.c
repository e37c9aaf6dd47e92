/* Rows as JSON, with every sample. docs/benchmarks.md describes the schema. */
#include <stdlib.h>
#include <string.h>

#include "bench/host.h"
#include "bench/report.h"
#include "cli/json.h"

static const char *json_unit(bench_unit unit)
{
    return unit == BENCH_TIME ? "ns" : bench_unit_name(unit);
}

static void add_samples(cJSON *object, const char *name, const bench_samples *samples)
{
    if (samples->count == 0) {
        cJSON_AddNullToObject(object, name);
        return;
    }
    bench_summary summary = bench_summarize(samples);
    cJSON *entry = cJSON_AddObjectToObject(object, name);
    cJSON_AddNumberToObject(entry, "repetitions", (double)samples->repetitions);
    cli_json_real(entry, "median", summary.median);
    cli_json_real(entry, "p10", summary.p10);
    cli_json_real(entry, "p90", summary.p90);
    cli_json_real(entry, "min", summary.min);
    cli_json_real(entry, "max", summary.max);
    cJSON_AddItemToObject(entry, "samples", cJSON_CreateDoubleArray(samples->ns, samples->count));
}

/* In the row's unit; "low" and "high" are the ends of the middle 80 %. */
static void add_value(cJSON *object, const bench_row *row)
{
    bench_summary summary = bench_summarize(&row->host);
    bool rate = row->unit != BENCH_TIME;
    cJSON *entry = cJSON_AddObjectToObject(object, "value");
    cJSON_AddStringToObject(entry, "unit", json_unit(row->unit));
    cli_json_real(entry, "median", bench_value(row, summary.median));
    cli_json_real(entry, "low", bench_value(row, rate ? summary.p90 : summary.p10));
    cli_json_real(entry, "high", bench_value(row, rate ? summary.p10 : summary.p90));
    cli_json_real(entry, "best", bench_value(row, summary.min));
    cJSON_AddBoolToObject(entry, "noisy", bench_is_noisy(&summary));
}

static void add_case(cJSON *object, const bench_row *row)
{
    cJSON *params = cJSON_AddObjectToObject(object, "case");
    for (int i = 0; i < row->param_count; i++) {
        if (row->params[i].is_number)
            cJSON_AddRawToObject(params, row->params[i].name, row->params[i].text);
        else
            cli_json_text(params, row->params[i].name, row->params[i].text);
    }
}

static void add_check(cJSON *object, const bench_check *check)
{
    cJSON *entry = cJSON_AddObjectToObject(object, "verified");
    cJSON_AddStringToObject(entry, "method", check->method);
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

static cJSON *row_json(const bench_context *context, const bench_row *row)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "benchmark", row->benchmark);
    cJSON_AddBoolToObject(object, "is_ceiling", row->is_ceiling);
    add_case(object, row);
    cli_json_real(object, "work", row->work);
    add_value(object, row);
    if (row->ceiling != NULL) {
        cJSON *ceiling = cJSON_AddObjectToObject(object, "ceiling");
        cJSON_AddNumberToObject(ceiling, "result", index_of(context, row->ceiling));
        cJSON_AddStringToObject(ceiling, "benchmark", row->ceiling->benchmark);
        cli_json_real(ceiling, "fraction", bench_median(row) / bench_median(row->ceiling));
    } else {
        cJSON_AddNullToObject(object, "ceiling");
    }
    add_check(object, &row->check);
    add_samples(object, "host_ns", &row->host);
    add_samples(object, "device_ns", &row->device);
    if (row->peer.count > 0) {
        cJSON *peer = cJSON_AddObjectToObject(object, "peer");
        bench_summary summary = bench_summarize(&row->peer);
        cli_json_text(peer, "name", row->peer_name);
        cli_json_real(peer, "median", bench_value(row, summary.median));
        add_samples(peer, "host_ns", &row->peer);
    } else {
        cJSON_AddNullToObject(object, "peer");
    }
    return object;
}

void bench_report_json(const bench_context *context, const bench *what)
{
    bench_host host;
    bench_host_read(&host);
    cJSON *document = cli_json_document(BENCH_SCHEMA, BENCH_SCHEMA_VERSION);
    cJSON_AddStringToObject(document, "benchmark", what->name);
    cJSON_AddStringToObject(document, "time", host.time);
    cJSON *machine = cJSON_AddObjectToObject(document, "host");
    cli_json_text(machine, "cpu", host.cpu);
    cJSON_AddNumberToObject(machine, "cpus", host.cpus);
    cli_json_text(machine, "os", host.os);
    cJSON_AddNumberToObject(document, "seconds_per_result", context->options->seconds);
    cJSON_AddItemToObject(document, "device", cli_json_device(context->info));
    cJSON *results = cJSON_AddArrayToObject(document, "results");
    for (int i = 0; i < context->row_count; i++)
        cJSON_AddItemToArray(results, row_json(context, context->rows[i]));
    cli_json_print(document);
}
