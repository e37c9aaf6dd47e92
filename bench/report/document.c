#include "bench/report/document.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/report/fields.h"
#include "bench/report/report.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/text.h"

/* Writes the label of a result from the parameters of its case: texts are copied, the sizes of a
 * product become m×k×n, and other numbers follow their names. */
static void write_label(bench_fields *in, bench_figures *figures)
{
    const char *name;
    json_t *value;
    size_t used = 0, size = sizeof figures->label;
    json_object_foreach((json_t *)figures->which, name, value)
    {
        char *at = figures->label + used;
        const char *gap = used > 0 ? " " : "";
        int length = 0;
        bool more = strcmp(name, "k") == 0 || strcmp(name, "n") == 0;
        if (json_is_string(value))
            length = snprintf(at, size - used, "%s%s", gap, json_string_value(value));
        else if (!json_is_integer(value))
            bench_field_fail(in, "\"%s\" of the case is neither a string nor an integer", name);
        else if (more || strcmp(name, "m") == 0)
            length = snprintf(at, size - used, "%s%" JSON_INTEGER_FORMAT, more ? "×" : gap,
                              json_integer_value(value));
        else
            length = snprintf(at, size - used, "%s%s %" JSON_INTEGER_FORMAT, gap,
                              strcmp(name, "row_bytes") == 0 ? "row bytes" : name,
                              json_integer_value(value));
        if (length < 0 || (size_t)length >= size - used) {
            bench_field_fail(in, "the case is too long");
            return;
        }
        used += (size_t)length;
    }
    cli_text_mend(figures->label); /* the parameters' names come from the file as well, so they may
                                      contain control characters */
}

static void read_value(bench_fields *in, const json_t *result, bench_figures *out)
{
    const json_t *value = bench_field_object(in, result, "value", false);
    out->unit = bench_field_text(in, value, "unit");
    out->is_time = strcmp(out->unit, "ns") == 0;
    if (!out->is_time && strcmp(out->unit, "GFLOP/s") != 0 && strcmp(out->unit, "GB/s") != 0)
        bench_field_fail(in, "\"unit\" is '%.40s'", out->unit);
    out->median = bench_field_positive(in, value, "median");
    out->low = bench_field_positive(in, value, "low");
    out->high = bench_field_positive(in, value, "high");
    out->best = bench_field_positive(in, value, "best");
    out->noisy = bench_field_bool(in, value, "noisy");
    if (out->low > out->median || out->median > out->high)
        bench_field_fail(in, "the median does not lie between \"low\" and \"high\"");
}

static void read_ceiling(bench_fields *in, const json_t *ceiling, int result_count,
                         bench_figures *out)
{
    out->fraction = bench_field_positive(in, ceiling, "fraction");
    out->ceiling = bench_field_text(in, ceiling, "benchmark");
    out->ceiling_place = bench_field_place(in, ceiling, "result", result_count);
    if (out->ceiling_place < 0)
        bench_field_fail(in, "the ceiling's \"result\" is null");
}

/* Returns the number of samples in an object such as host_ns or device_ns. */
static int count_samples(bench_fields *in, const json_t *times)
{
    const json_t *all = bench_field_array(in, times, "samples"), *one;
    size_t i;
    if (json_array_size(all) == 0)
        bench_field_fail(in, "\"samples\" is empty");
    json_array_foreach(all, i, one) if (!json_is_number(one) || json_number_value(one) < 0)
        bench_field_fail(in, "\"samples\"[%zu] is not a number of at least 0", i);
    return (int)json_array_size(all);
}

static void read_times(bench_fields *in, const json_t *result, bench_figures *out)
{
    const json_t *host = bench_field_object(in, result, "host_ns", false);
    out->samples = count_samples(in, host);
    out->repetitions = bench_field_whole(in, host, "repetitions", 1);
    const json_t *device = bench_field_object(in, result, "device_ns", true);
    if (device != NULL) {
        out->device_ns = bench_field_number(in, device, "median", 0);
        count_samples(in, device);
    }
    const json_t *peer = bench_field_object(in, result, "peer", true);
    if (peer != NULL) {
        out->peer = bench_field_text(in, peer, "name");
        out->peer_median = bench_field_positive(in, peer, "median");
        count_samples(in, bench_field_object(in, peer, "host_ns", false));
    }
}

static void read_result(bench_fields *in, const json_t *result, int device_count, int result_count,
                        bench_figures *out)
{
    out->benchmark = bench_field_text(in, result, "benchmark");
    out->is_ceiling = bench_field_bool(in, result, "is_ceiling");
    out->device = bench_field_place(in, result, "device", device_count);
    out->which = bench_field_object(in, result, "case", false);
    out->work = bench_field_positive(in, result, "work");
    read_value(in, result, out);
    if (!json_is_null(bench_field(in, result, "bytes")))
        out->bytes = bench_field_positive(in, result, "bytes");
    const json_t *busbw = json_object_get(result, "busbw"); /* absent from older files */
    if (busbw != NULL && !json_is_null(busbw))
        out->busbw = bench_field_positive(in, result, "busbw");
    const json_t *ceiling = bench_field_object(in, result, "ceiling", true);
    if (ceiling != NULL)
        read_ceiling(in, ceiling, result_count, out);
    out->method = bench_field_text(in, bench_field_object(in, result, "verified", false), "method");
    read_times(in, result, out);
    if (!in->failed)
        write_label(in, out);
}

static void read_device(bench_fields *in, const json_t *device, bench_device_figures *out)
{
    out->name = bench_field_text(in, device, "name");
    out->type = bench_field_text(in, device, "type");
    out->driver_name = bench_field_text(in, device, "driver_name");
    out->driver_info = bench_field_text(in, device, "driver_info");
    out->uuid = bench_field_text(in, device, "uuid");
    const json_t *heap;
    size_t i;
    json_array_foreach(json_object_get(device, "heaps"), i, heap)
    {
        double size = json_number_value(json_object_get(heap, "size_bytes"));
        if (json_is_true(json_object_get(heap, "device_local")) && size > out->memory_bytes &&
            size < 0x1p63)
            out->memory_bytes = size;
    }
}

/* Renames the second device with the same name to "NAME (2)", and so on. Starts with the last
 * device, because a device's number is the number of devices before it with the same name, so their
 * names must not have changed yet. */
static void number_devices(const json_t *devices, bench_document *out)
{
    for (int i = out->device_count - 1; i > 0; i--) {
        int before = 0;
        for (int j = 0; j < i; j++)
            before += strcmp(out->devices[j].name, out->devices[i].name) == 0;
        if (before == 0)
            continue;
        json_t *device = json_array_get(devices, (size_t)i);
        cli_json_add(device, "name", json_sprintf("%s (%d)", out->devices[i].name, before + 1));
        out->devices[i].name = json_string_value(json_object_get(device, "name"));
    }
}

/* Checks the references to ceilings. Must be called after all results have been read, because a
 * ceiling may come after the results that refer to it. */
static void check_ceilings(bench_fields *in, const bench_document *out)
{
    for (int i = 0; i < out->result_count && !in->failed; i++) {
        bench_figures *one = &out->results[i];
        const bench_figures *ceiling = &out->results[one->ceiling_place];
        snprintf(in->where, sizeof in->where, "results[%d]", i);
        if (one->ceiling == NULL)
            continue;
        one->standing =
            bench_compare_with_ceiling(one->fraction, strcmp(ceiling->unit, "GB/s") == 0,
                                       strcmp(one->unit, "GB/s") == 0 ? one->work : one->bytes);
        if (!ceiling->is_ceiling)
            bench_field_fail(in, "its ceiling, results[%d], is not a ceiling", one->ceiling_place);
    }
}

static void read_lists(bench_fields *in, const json_t *root, bench_document *out)
{
    const json_t *devices = bench_field_array(in, root, "devices"),
                 *results = bench_field_array(in, root, "results");
    const json_t *one;
    size_t i;
    if (in->failed)
        return;
    out->devices = cli_alloc(json_array_size(devices), sizeof *out->devices);
    out->results = cli_alloc(json_array_size(results), sizeof *out->results);
    json_array_foreach(devices, i, one)
    {
        snprintf(in->where, sizeof in->where, "devices[%zu]", i);
        read_device(in, one, &out->devices[out->device_count++]);
    }
    if (!in->failed)
        number_devices(devices, out);
    json_array_foreach(results, i, one)
    {
        snprintf(in->where, sizeof in->where, "results[%zu]", i);
        if (!in->failed)
            read_result(in, one, out->device_count, (int)json_array_size(results),
                        &out->results[out->result_count++]);
    }
    check_ceilings(in, out);
    in->where[0] = '\0';
}

static void read_notes(bench_fields *in, const json_t *notes, const char *name, int device_count)
{
    const json_t *one;
    size_t i;
    json_array_foreach(notes, i, one)
    {
        snprintf(in->where, sizeof in->where, "%s[%zu]", name, i);
        bench_field_text(in, one, "benchmark");
        bench_field_text(in, one, "text");
        bench_field_place(in, one, "device", device_count);
    }
    in->where[0] = '\0';
}

static void read_root(bench_fields *in, const json_t *root, bench_document *out)
{
    const json_t *schema = json_object_get(root, "schema"), *one;
    size_t i;
    if (!json_is_string(schema) || strcmp(json_string_value(schema), BENCH_SCHEMA) != 0) {
        bench_field_fail(in, "this is not what 'tessera bench --json' writes");
        return;
    }
    double version = bench_field_number(in, root, "schema_version", 1);
    if (version != BENCH_SCHEMA_VERSION) {
        bench_field_fail(in, "its schema has version %g; this tessera reads %d", version,
                         BENCH_SCHEMA_VERSION);
        return;
    }
    const json_t *host = bench_field_object(in, root, "host", false);
    out->tessera = bench_field_text(in, root, "tessera");
    out->time = bench_field_text(in, root, "time");
    if (!json_is_null(json_object_get(root, "benchmark")))
        out->alone = bench_field_text(in, root, "benchmark");
    out->duration_s = bench_field_number(in, root, "duration_s", 0);
    out->cpu = bench_field_text(in, host, "cpu");
    out->os = bench_field_text(in, host, "os");
    double cpus = bench_field_whole(in, host, "cpus", 1);
    out->cpus = cpus < BENCH_MAX_FIELDS ? (int)cpus : BENCH_MAX_FIELDS;
    read_lists(in, root, out);
    out->warnings = bench_field_array(in, bench_field_object(in, root, "noise", false), "warnings");
    json_array_foreach(out->warnings, i, one) if (!json_is_string(one))
        bench_field_fail(in, "\"warnings\" holds what is not a string");
    out->left_out = bench_field_array(in, root, "left_out");
    out->failures = bench_field_array(in, root, "failures");
    read_notes(in, out->left_out, "left_out", out->device_count);
    read_notes(in, out->failures, "failures", out->device_count);
}

/* Returns NULL if the file cannot be read or is not JSON. */
static json_t *load(const char *path, char problem[BENCH_PROBLEM])
{
    json_error_t error;
    struct stat status;
    FILE *file = fopen(path, "r");
    if (file == NULL || fstat(fileno(file), &status) != 0 || S_ISDIR(status.st_mode)) {
        snprintf(problem, BENCH_PROBLEM, "cannot read '%.200s': %s", path,
                 strerror(file != NULL ? EISDIR : errno));
        if (file != NULL)
            fclose(file);
        return NULL;
    }
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (root == NULL)
        snprintf(problem, BENCH_PROBLEM, "%.200s cannot be read as JSON: line %d: %s", path,
                 error.line, error.text);
    return root;
}

bool bench_document_read(const char *path, bench_document *document, char problem[BENCH_PROBLEM])
{
    json_t *root = load(path, problem);
    return root != NULL && bench_document_take(root, path, document, problem);
}

bool bench_document_take(json_t *root, const char *path, bench_document *document,
                         char problem[BENCH_PROBLEM])
{
    bench_document out = {.path = path, .root = root};
    bench_fields in = {0};
    cli_json_mend(out.root);
    read_root(&in, out.root, &out);
    bench_documents_name(&out, 1);
    if (in.failed) {
        snprintf(problem, BENCH_PROBLEM, "%.200s: %.300s", path, in.problem);
        bench_document_free(&out);
        return false;
    }
    *document = out;
    return true;
}

void bench_document_free(bench_document *document)
{
    json_decref(document->root);
    free(document->devices);
    free(document->results);
    *document = (bench_document){0};
}

const char *bench_driver_text(const bench_device_figures *device)
{
    return device->driver_info[0] != '\0' ? device->driver_info : device->driver_name;
}

char *bench_figures_text(const bench_figures *figures, double value, char text[BENCH_VALUE_TEXT])
{
    char number[CLI_NUMBER_TEXT];
    if (figures->is_time)
        snprintf(text, BENCH_VALUE_TEXT, "%s", cli_duration(value, number));
    else if (value >= 1e4 && figures->unit[0] == 'G')
        snprintf(text, BENCH_VALUE_TEXT, "%s T%.12s", cli_number(value / 1e3, number),
                 figures->unit + 1);
    else
        snprintf(text, BENCH_VALUE_TEXT, "%s %.12s", cli_number(value, number), figures->unit);
    return text;
}
