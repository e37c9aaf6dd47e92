#include "cli/submitted_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/submit/submit.h"
#include "cli/made_run.h"
#include "support/check_main.h"

json_t *submitted_at(json_t *document, const char *place)
{
    char text[128], *rest = text;
    snprintf(text, sizeof text, "%s", place);
    for (char *part; (part = strtok_r(rest, "/", &rest)) != NULL;) {
        document = json_is_array(document) ? json_array_get(document, (size_t)atoi(part))
                                           : json_object_get(document, part);
        ck_assert_msg(document != NULL, "%s: no %s", place, part);
    }
    return document;
}

void submitted_set(json_t *document, const char *place, const char *name, json_t *value)
{
    ck_assert_int_eq(json_object_set_new(submitted_at(document, place), name, value), 0);
}

/* Adds the members that made_run() lacks, and sets the result's amount of work so that it
 * matches the rate. */
static void complete(json_t *result)
{
    json_t *value = json_object_get(result, "value");
    const double median = json_number_value(json_object_get(value, "median")), ns = 1e4;
    const char *unit = json_string_value(json_object_get(value, "unit"));
    json_object_set_new(result, "work",
                        json_real(strcmp(unit, "ns") == 0 ? ns / median : ns * median));
    json_object_set_new(result, "busbw", json_null());
    json_t *ceiling = json_object_get(result, "ceiling");
    if (json_is_object(ceiling))
        json_object_set_new(ceiling, "above", json_null());
}

static void complete_device(json_t *device)
{
    static const char *const whole[] = {"vendor_id",    "device_id",         "subgroup_size",
                                        "coopmat_used", "coopmat_bf16_used", "processor_count"};
    static const char *const flags[] = {"fp16",      "int64",    "int8",
                                        "storage16", "storage8", "unified_memory"};
    json_t *heap;
    size_t i;
    for (i = 0; i < sizeof whole / sizeof *whole; i++)
        json_object_set_new(device, whole[i], json_integer((json_int_t)i));
    for (i = 0; i < sizeof flags / sizeof *flags; i++)
        json_object_set_new(device, flags[i], json_true());
    json_object_set_new(device, "timestamp_period_ns", json_real(1.5));
    json_array_foreach(json_object_get(device, "heaps"), i, heap)
        json_object_set_new(heap, "host_visible", json_false());
}

static json_t *completed(json_t *run)
{
    json_t *one;
    size_t i;
    json_object_set_new(
        made_result(run, 1), "ceiling",
        json_pack("{s:i, s:s, s:f}", "result", 4, "benchmark", "memcpy", "fraction", 0.5));
    json_object_set_new(made_result(run, 3), "device_ns",
                        json_deep_copy(json_object_get(made_result(run, 2), "device_ns")));
    json_array_foreach(json_object_get(run, "results"), i, one) complete(one);
    json_array_foreach(json_object_get(run, "devices"), i, one) complete_device(one);
    submitted_set(run, "noise", "other_cpus", json_real(0.1));
    return run;
}

json_t *submitted_source(void)
{
    return completed(made_run());
}

json_t *submitted_source_on_twins(void)
{
    json_t *run = completed(made_run_on_twins());
    json_object_set(made_result(run, 6), "ceiling",
                    json_object_get(made_result(run, 1), "ceiling"));
    return run;
}

json_t *submitted_run(void)
{
    json_t *source = submitted_source(), *run = bench_submission(source, 0);
    json_decref(source);
    return run;
}
