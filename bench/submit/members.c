/* Defines the members of a submission: what is published, and what a file must have. */
#include "bench/submit/members.h"

#include <stdio.h>
#include <string.h>

#include "bench/report/fields.h"
#include "cli/lib/json.h"

typedef enum kind {
    TEXT,
    NUMBER,   /* a number of at least 0 */
    POSITIVE, /* a normal number above 0 */
    WHOLE,    /* an integer of at least 0 */
    INTEGER,
    TRUTH,
    OBJECT, /* an object whose members another table lists */
    OBJECTS,
    NUMBERS,
    TEXTS,
    CASE, /* the parameters of a case: texts and integers, whose names differ between benchmarks */
    NOTHING /* null: bench.schema.json requires the member, but its value is not published */
} kind;

typedef struct member {
    const char *name;
    kind kind;
    bool or_null;
    const struct member *members;
} member;

#define END                                                                                        \
    {                                                                                              \
        .name = NULL                                                                               \
    }

static const member of_host[] = {
    {"cpu", .kind = TEXT}, {"cpus", .kind = WHOLE}, {"os", .kind = TEXT}, END};
static const member of_noise[] = {{"other_cpus", .kind = NUMBER, .or_null = true},
                                  {"load_average", .kind = NUMBER, .or_null = true},
                                  {"noisy_results", .kind = WHOLE},
                                  {"warnings", .kind = TEXTS},
                                  END};
static const member of_heap[] = {{"size_bytes", .kind = WHOLE},
                                 {"device_local", .kind = TRUTH},
                                 {"host_visible", .kind = TRUTH},
                                 END};
static const member of_device[] = {{"index", .kind = WHOLE},
                                   {"name", .kind = TEXT},
                                   {"type", .kind = TEXT},
                                   {"vendor", .kind = TEXT},
                                   {"vendor_id", .kind = WHOLE},
                                   {"device_id", .kind = WHOLE},
                                   {"driver_name", .kind = TEXT},
                                   {"driver_info", .kind = TEXT},
                                   {"driver_version", .kind = WHOLE},
                                   {"api_version", .kind = TEXT},
                                   {"uuid", .kind = TEXT},
                                   {"heaps", .kind = OBJECTS, .members = of_heap},
                                   {"subgroup_size", .kind = WHOLE},
                                   {"fp16", .kind = TRUTH},
                                   {"int64", .kind = TRUTH},
                                   {"int8", .kind = TRUTH},
                                   {"storage16", .kind = TRUTH},
                                   {"storage8", .kind = TRUTH},
                                   {"coopmat_used", .kind = INTEGER},
                                   {"coopmat_bf16_used", .kind = INTEGER},
                                   {"unified_memory", .kind = TRUTH},
                                   {"processor_count", .kind = WHOLE},
                                   {"timestamp_period_ns", .kind = NUMBER},
                                   END};
static const member of_value[] = {{"unit", .kind = TEXT},
                                  {"median", .kind = POSITIVE},
                                  {"low", .kind = POSITIVE},
                                  {"high", .kind = POSITIVE},
                                  {"best", .kind = POSITIVE},
                                  {"noisy", .kind = TRUTH},
                                  END};
static const member of_ceiling[] = {{"result", .kind = WHOLE},
                                    {"benchmark", .kind = TEXT},
                                    {"fraction", .kind = POSITIVE},
                                    {"above", .kind = TEXT, .or_null = true},
                                    END};
static const member of_check[] = {{"method", .kind = TEXT},
                                  {"values", .kind = WHOLE},
                                  {"worst_error_over_tolerance", .kind = NUMBER},
                                  END};
static const member of_samples[] = {{"repetitions", .kind = WHOLE}, {"median", .kind = NUMBER},
                                    {"p10", .kind = NUMBER},        {"p90", .kind = NUMBER},
                                    {"min", .kind = NUMBER},        {"max", .kind = NUMBER},
                                    {"samples", .kind = NUMBERS},   END};
static const member of_result[] = {
    {"benchmark", .kind = TEXT},
    {"is_ceiling", .kind = TRUTH},
    {"case", .kind = CASE},
    {"device", .kind = WHOLE, .or_null = true},
    {"work", .kind = POSITIVE},
    {"bytes", .kind = POSITIVE, .or_null = true},
    {"value", .kind = OBJECT, .members = of_value},
    {"ceiling", .kind = OBJECT, .or_null = true, .members = of_ceiling},
    {"verified", .kind = OBJECT, .members = of_check},
    {"host_ns", .kind = OBJECT, .members = of_samples},
    {"device_ns", .kind = OBJECT, .or_null = true, .members = of_samples},
    {"peer", .kind = NOTHING},
    {"busbw", .kind = POSITIVE, .or_null = true},
    {"peak_bytes", .kind = WHOLE, .or_null = true},
    {"elsewhere", .kind = TEXT, .or_null = true},
    END};
static const member of_note[] = {{"benchmark", .kind = TEXT},
                                 {"device", .kind = WHOLE, .or_null = true},
                                 {"text", .kind = TEXT},
                                 END};
static const member of_document[] = {{"schema", .kind = TEXT},
                                     {"schema_version", .kind = WHOLE},
                                     {"tessera", .kind = TEXT},
                                     {"benchmark", .kind = TEXT, .or_null = true},
                                     {"time", .kind = TEXT},
                                     {"duration_s", .kind = NUMBER},
                                     {"host", .kind = OBJECT, .members = of_host},
                                     {"noise", .kind = OBJECT, .members = of_noise},
                                     {"seconds_per_result", .kind = POSITIVE},
                                     {"devices", .kind = OBJECTS, .members = of_device},
                                     {"results", .kind = OBJECTS, .members = of_result},
                                     {"left_out", .kind = OBJECTS, .members = of_note},
                                     {"failures", .kind = OBJECTS, .members = of_note},
                                     END};

/* Selection ------------------------------------------------------------------------------------ */

static json_t *select_members(const json_t *from, const member *members);

static json_t *select_value(const json_t *from, const member *as)
{
    const json_t *element;
    size_t i;
    if (as->kind == NOTHING)
        return json_null();
    if (as->members == NULL || json_is_null(from))
        return json_deep_copy(from);
    if (as->kind == OBJECT)
        return select_members(from, as->members);
    json_t *array = json_array();
    json_array_foreach(from, i, element)
        cli_json_append(array, select_members(element, as->members));
    return array;
}

static json_t *select_members(const json_t *from, const member *members)
{
    json_t *object = json_object();
    for (; members->name != NULL; members++) {
        const json_t *value = json_object_get(from, members->name);
        if (value != NULL)
            cli_json_add(object, members->name, select_value(value, members));
    }
    return object;
}

json_t *bench_members_select(const json_t *run)
{
    return select_members(run, of_document);
}

/* Checks --------------------------------------------------------------------------------------- */

static void check_members(bench_fields *in, const json_t *object, const member *members);

static void check_whole(bench_fields *in, const json_t *object, const member *as)
{
    const json_t *value = json_object_get(object, as->name);
    if (!json_is_integer(value) || (as->kind == WHOLE && json_integer_value(value) < 0))
        bench_field_fail(in, "\"%s\" is not an integer%s", as->name,
                         as->kind == WHOLE ? " of at least 0" : "");
}

/* Appends the name to the path of the current member, for example "results[7]" and then
 * "results[7].value". */
static void enter(bench_fields *in, const char *name, size_t index, bool is_array)
{
    const size_t used = strlen(in->where);
    const size_t room = sizeof in->where - used;
    if (is_array)
        snprintf(in->where + used, room, "%s%.24s[%zu]", used > 0 ? "." : "", name, index);
    else
        snprintf(in->where + used, room, "%s%.24s", used > 0 ? "." : "", name);
}

static void check_list(bench_fields *in, const json_t *array, const member *as)
{
    const size_t used = strlen(in->where);
    const json_t *element;
    size_t i;
    json_array_foreach(array, i, element)
    {
        if (in->failed)
            return;
        if (as->kind == OBJECTS) {
            enter(in, as->name, i, true);
            if (json_is_object(element))
                check_members(in, element, as->members);
            else
                bench_field_fail(in, "not an object");
            in->where[used] = '\0';
        } else if (as->kind == TEXTS ? !json_is_string(element)
                                     : !json_is_number(element) || json_number_value(element) < 0) {
            bench_field_fail(in, "\"%s\"[%zu] is not a %s", as->name, i,
                             as->kind == TEXTS ? "string" : "number of at least 0");
        }
    }
}

static void check_case(bench_fields *in, const json_t *which, const char *name)
{
    const char *part;
    json_t *value;
    json_object_foreach((json_t *)which, part,
                        value) if (!json_is_string(value) && !json_is_integer(value))
        bench_field_fail(in, "\"%.40s\" of the %s is neither a string nor an integer", part, name);
}

static void check_object(bench_fields *in, const json_t *object, const member *as)
{
    const size_t used = strlen(in->where);
    enter(in, as->name, 0, false);
    check_members(in, object, as->members);
    in->where[used] = '\0';
}

static void check_value(bench_fields *in, const json_t *object, const member *as)
{
    const json_t *value = bench_field(in, object, as->name);
    if (value == NULL || (as->or_null && json_is_null(value)))
        return;
    switch (as->kind) {
    case TEXT:
        bench_field_text(in, object, as->name);
        break;
    case NUMBER:
        bench_field_number(in, object, as->name, 0);
        break;
    case POSITIVE:
        bench_field_positive(in, object, as->name);
        break;
    case WHOLE:
    case INTEGER:
        check_whole(in, object, as);
        break;
    case TRUTH:
        bench_field_bool(in, object, as->name);
        break;
    case OBJECT:
    case CASE:
        bench_field_object(in, object, as->name, false);
        if (json_is_object(value) && as->kind == CASE)
            check_case(in, value, as->name);
        else if (json_is_object(value))
            check_object(in, value, as);
        break;
    case NOTHING:
        if (!json_is_null(value))
            bench_field_fail(in, "\"%s\" is not null", as->name);
        break;
    case OBJECTS:
    case NUMBERS:
    case TEXTS:
        bench_field_array(in, object, as->name);
        check_list(in, value, as);
        break;
    }
}

static bool is_listed(const char *name, const member *members)
{
    for (; members->name != NULL; members++)
        if (strcmp(name, members->name) == 0)
            return true;
    return false;
}

static void check_members(bench_fields *in, const json_t *object, const member *members)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) if (!is_listed(name, members))
        bench_field_fail(in, "\"%.40s\" is not published", name);
    for (; members->name != NULL && !in->failed; members++)
        check_value(in, object, members);
}

bool bench_members_check(const json_t *submission, char *problem, size_t size)
{
    bench_fields in = {0};
    check_members(&in, submission, of_document);
    snprintf(problem, size, "%s", in.problem);
    return !in.failed;
}
