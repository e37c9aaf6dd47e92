#include "bench/document.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/format.h"
#include "bench/report.h"
#include "cli/json.h"
#include "cli/memory.h"
#include "cli/text.h"

/* More than any run has; what is far beyond was not written by us. */
#define MOST 100000

/* Where reading is, and what went wrong first. */
typedef struct reader {
    char where[64]; /* "results[7]" */
    char *problem;
    bool failed;
} reader;

CLI_PRINTF(2, 3) static void fail(reader *in, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (in->failed)
        return;
    in->failed = true;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(in->problem, BENCH_PROBLEM, "%s%s%s", in->where, in->where[0] != '\0' ? ": " : "",
             text);
}

static const json_t *member(reader *in, const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (value == NULL)
        fail(in, "there is no \"%s\"", name);
    return value;
}

static const char *text_of(reader *in, const json_t *object, const char *name)
{
    const json_t *value = member(in, object, name);
    if (value != NULL && !json_is_string(value))
        fail(in, "\"%s\" is no string", name);
    return json_is_string(value) ? json_string_value(value) : "";
}

static double number_of(reader *in, const json_t *object, const char *name, double low)
{
    const json_t *value = member(in, object, name);
    double number = json_number_value(value);
    if (value != NULL && (!json_is_number(value) || !isfinite(number) || number < low))
        fail(in, "\"%s\" is no number from %g on", name, low);
    return number;
}

static bool bool_of(reader *in, const json_t *object, const char *name)
{
    const json_t *value = member(in, object, name);
    if (value != NULL && !json_is_boolean(value))
        fail(in, "\"%s\" is neither true nor false", name);
    return json_is_true(value);
}

/* An object, or NULL for null where that is allowed. */
static const json_t *object_of(reader *in, const json_t *object, const char *name, bool or_null)
{
    const json_t *value = member(in, object, name);
    if (or_null && json_is_null(value))
        return NULL;
    if (value != NULL && !json_is_object(value))
        fail(in, "\"%s\" is no object", name);
    return value;
}

static const json_t *array_of(reader *in, const json_t *object, const char *name)
{
    const json_t *value = member(in, object, name);
    if (value != NULL && (!json_is_array(value) || json_array_size(value) > MOST))
        fail(in, "\"%s\" is no array of at most %d", name, MOST);
    return value;
}

/* A place among `count`, or -1 for null. */
static int place_of(reader *in, const json_t *object, const char *name, int count)
{
    const json_t *value = member(in, object, name);
    if (value == NULL || json_is_null(value))
        return -1;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= count) {
        fail(in, "\"%s\" is no place among the %d there are", name, count);
        return -1;
    }
    return (int)json_integer_value(value);
}

/* Texts as they are, sizes of a product together, other numbers with their names. */
static void write_label(reader *in, bench_figures *figures)
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
            fail(in, "\"%s\" of the case is neither a string nor an integer", name);
        else if (more || strcmp(name, "m") == 0)
            length = snprintf(at, size - used, "%s%" JSON_INTEGER_FORMAT, more ? "×" : gap,
                              json_integer_value(value));
        else
            length = snprintf(at, size - used, "%s%s %" JSON_INTEGER_FORMAT, gap,
                              strcmp(name, "row_bytes") == 0 ? "row bytes" : name,
                              json_integer_value(value));
        if (length < 0 || (size_t)length >= size - used) {
            fail(in, "the case has too many words");
            return;
        }
        used += (size_t)length;
    }
    cli_text_mend(figures->label); /* the names are the file's, too */
}

static void read_value(reader *in, const json_t *result, bench_figures *out)
{
    const json_t *value = object_of(in, result, "value", false);
    out->unit = text_of(in, value, "unit");
    out->is_time = strcmp(out->unit, "ns") == 0;
    if (!out->is_time && strcmp(out->unit, "GFLOP/s") != 0 && strcmp(out->unit, "GB/s") != 0)
        fail(in, "\"unit\" is '%.40s'", out->unit);
    out->median = number_of(in, value, "median", 0);
    out->low = number_of(in, value, "low", 0);
    out->high = number_of(in, value, "high", 0);
    out->best = number_of(in, value, "best", 0);
    out->noisy = bool_of(in, value, "noisy");
    if (out->low > out->median || out->median > out->high)
        fail(in, "the median does not lie between \"low\" and \"high\"");
}

static void read_ceiling(reader *in, const json_t *ceiling, int result_count, bench_figures *out)
{
    out->fraction = number_of(in, ceiling, "fraction", 0);
    out->ceiling = text_of(in, ceiling, "benchmark");
    out->ceiling_place = place_of(in, ceiling, "result", result_count);
    if (out->ceiling_place < 0)
        fail(in, "the ceiling is no result");
}

static void read_result(reader *in, const json_t *result, int device_count, int result_count,
                        bench_figures *out)
{
    out->benchmark = text_of(in, result, "benchmark");
    out->is_ceiling = bool_of(in, result, "is_ceiling");
    out->device = place_of(in, result, "device", device_count);
    out->which = object_of(in, result, "case", false);
    out->work = number_of(in, result, "work", 0);
    read_value(in, result, out);
    if (!json_is_null(member(in, result, "bytes")))
        out->bytes = number_of(in, result, "bytes", 0);
    const json_t *ceiling = object_of(in, result, "ceiling", true);
    if (ceiling != NULL)
        read_ceiling(in, ceiling, result_count, out);
    out->method = text_of(in, object_of(in, result, "verified", false), "method");
    const json_t *host = object_of(in, result, "host_ns", false);
    out->samples = (int)json_array_size(array_of(in, host, "samples"));
    out->repetitions = number_of(in, host, "repetitions", 1);
    const json_t *device = object_of(in, result, "device_ns", true);
    if (device != NULL)
        out->device_ns = number_of(in, device, "median", 0);
    const json_t *peer = object_of(in, result, "peer", true);
    if (peer != NULL) {
        out->peer = text_of(in, peer, "name");
        out->peer_median = number_of(in, peer, "median", 0);
    }
    if (!in->failed)
        write_label(in, out);
}

static void read_device(reader *in, const json_t *device, bench_device_figures *out)
{
    out->name = text_of(in, device, "name");
    out->type = text_of(in, device, "type");
    out->driver_name = text_of(in, device, "driver_name");
    out->driver_info = text_of(in, device, "driver_info");
    out->uuid = text_of(in, device, "uuid");
}

/* When all are known: a ceiling may stand behind what it limits. */
static void check_ceilings(reader *in, const bench_document *out)
{
    for (int i = 0; i < out->result_count && !in->failed; i++) {
        const bench_figures *one = &out->results[i];
        snprintf(in->where, sizeof in->where, "results[%d]", i);
        if (one->ceiling != NULL && !out->results[one->ceiling_place].is_ceiling)
            fail(in, "its ceiling, results[%d], is none", one->ceiling_place);
    }
}

static void read_lists(reader *in, const json_t *root, bench_document *out)
{
    const json_t *devices = array_of(in, root, "devices"), *results = array_of(in, root, "results");
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

static void read_notes(reader *in, const json_t *notes, const char *name, int device_count)
{
    const json_t *one;
    size_t i;
    json_array_foreach(notes, i, one)
    {
        snprintf(in->where, sizeof in->where, "%s[%zu]", name, i);
        text_of(in, one, "benchmark");
        text_of(in, one, "text");
        place_of(in, one, "device", device_count);
    }
    in->where[0] = '\0';
}

static void read_root(reader *in, const json_t *root, bench_document *out)
{
    const json_t *schema = json_object_get(root, "schema"), *one;
    size_t i;
    if (!json_is_string(schema) || strcmp(json_string_value(schema), BENCH_SCHEMA) != 0) {
        fail(in, "this is not what 'tessera bench --json' writes");
        return;
    }
    double version = number_of(in, root, "schema_version", 1);
    if (version != BENCH_SCHEMA_VERSION) {
        fail(in, "its schema has version %g; this tessera reads %d", version, BENCH_SCHEMA_VERSION);
        return;
    }
    const json_t *host = object_of(in, root, "host", false);
    out->tessera = text_of(in, root, "tessera");
    out->time = text_of(in, root, "time");
    out->duration_s = number_of(in, root, "duration_s", 0);
    out->cpu = text_of(in, host, "cpu");
    out->os = text_of(in, host, "os");
    double cpus = number_of(in, host, "cpus", 1);
    out->cpus = cpus < MOST ? (int)cpus : MOST;
    read_lists(in, root, out);
    out->warnings = array_of(in, object_of(in, root, "noise", false), "warnings");
    json_array_foreach(out->warnings, i, one) if (!json_is_string(one))
        fail(in, "\"warnings\" holds what is no string");
    out->left_out = array_of(in, root, "left_out");
    out->failures = array_of(in, root, "failures");
    read_notes(in, out->left_out, "left_out", out->device_count);
    read_notes(in, out->failures, "failures", out->device_count);
}

static void name_after(bench_document *document)
{
    const char *base = strrchr(document->path, '/');
    base = base != NULL ? base + 1 : document->path;
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, ".json") == 0)
        length -= 5;
    snprintf(document->name, sizeof document->name, "%.*s", (int)(length < 90 ? length : 90), base);
}

/* NULL when it cannot be read, or is no JSON. */
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
    json_t *root = json_loadf(file, 0, &error);
    fclose(file);
    if (root == NULL)
        snprintf(problem, BENCH_PROBLEM, "%.200s: line %d: %s", path, error.line, error.text);
    return root;
}

bool bench_document_read(const char *path, bench_document *document, char problem[BENCH_PROBLEM])
{
    bench_document out = {.path = path, .root = load(path, problem)};
    if (out.root == NULL)
        return false;
    char reason[BENCH_PROBLEM];
    reader in = {.problem = reason};
    cli_json_mend(out.root);
    read_root(&in, out.root, &out);
    name_after(&out);
    if (in.failed) {
        snprintf(problem, BENCH_PROBLEM, "%.200s: %.300s", path, reason);
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

char *bench_figures_text(const bench_figures *figures, double value, char text[BENCH_VALUE_TEXT])
{
    char number[BENCH_NUMBER];
    if (figures->is_time)
        snprintf(text, BENCH_VALUE_TEXT, "%s", bench_duration(value, number));
    else
        snprintf(text, BENCH_VALUE_TEXT, "%s %.12s", bench_number(value, number), figures->unit);
    return text;
}
