#include "cli/lib/device.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/lib/json.h"
#include "cli/lib/numbers.h"

const char *cli_device_type(tsr_device_type type)
{
    switch (type) {
    case TSR_DEVICE_INTEGRATED:
        return "integrated";
    case TSR_DEVICE_DISCRETE:
        return "discrete";
    case TSR_DEVICE_VIRTUAL:
        return "virtual";
    case TSR_DEVICE_CPU:
        return "cpu";
    case TSR_DEVICE_OTHER:
        break;
    }
    return "other";
}

char *cli_vulkan_version(uint32_t version, char text[CLI_VERSION_TEXT])
{
    snprintf(text, CLI_VERSION_TEXT, "%" PRIu32 ".%" PRIu32 ".%" PRIu32, (version >> 22) & 0x7f,
             (version >> 12) & 0x3ff, version & 0xfff);
    return text;
}

const char *cli_tuning_state(tsr__tuning_state state)
{
    switch (state) {
    case TSR__TUNING_NONE:
        break;
    case TSR__TUNING_USED:
        return "used";
    case TSR__TUNING_IGNORED:
        return "ignored";
    case TSR__TUNING_REFUSED:
        return "refused";
    }
    return "none";
}

static void add_three(json_t *object, const char *name, const uint32_t values[3])
{
    json_t *array = cli_json_add_array(object, name);
    for (int i = 0; i < 3; i++)
        cli_json_append(array, json_integer(values[i]));
}

static void add_heaps(json_t *object, const tsr_device_info *info)
{
    json_t *heaps = cli_json_add_array(object, "heaps");
    for (int i = 0; i < info->heap_count; i++) {
        const tsr_heap_info *heap = tsr_device_heap(info, i);
        json_t *entry = cli_json_append_object(heaps);
        cli_json_u64(entry, "size_bytes", heap->size_bytes);
        cli_json_u64(entry, "budget_bytes", heap->budget_bytes);
        cli_json_u64(entry, "usage_bytes", heap->usage_bytes);
        cli_json_bool(entry, "device_local", heap->device_local);
        cli_json_bool(entry, "host_visible", heap->host_visible);
    }
}

static void add_queues(json_t *object, const tsr_device_info *info)
{
    const tsr__device_facts *facts = tsr__facts_of(info);
    json_t *queues = cli_json_add_array(object, "queue_families");
    for (int i = 0; i < facts->queue_family_count; i++) {
        const tsr__queue_family_info *family = &facts->queue_families[i];
        json_t *entry = cli_json_append_object(queues);
        cli_json_u64(entry, "count", family->count);
        cli_json_bool(entry, "graphics", family->graphics);
        cli_json_bool(entry, "compute", family->compute);
        cli_json_bool(entry, "transfer", family->transfer);
        cli_json_u64(entry, "timestamp_bits", family->timestamp_bits);
    }
    cli_json_add(object, "compute_queue_family", json_integer(facts->compute_queue_family));
    cli_json_add(object, "transfer_queue_family", json_integer(facts->transfer_queue_family));
}

static void add_coopmat(json_t *object, const tsr_device_info *info)
{
    cli_json_bool(object, "coopmat", info->coopmat);
    cli_json_bool(object, "coopmat_bf16", info->coopmat_bf16);
    cli_json_add(object, "coopmat_used", json_integer(info->coopmat_used));
    cli_json_add(object, "coopmat_bf16_used", json_integer(info->coopmat_bf16_used));
    cli_json_u64(object, "coopmat_subgroup_size", info->coopmat_subgroup_size);
    cli_json_bool(object, "coopmat2", info->coopmat2);
    cli_json_bool(object, "coopmat2_bf16", info->coopmat2_bf16);
    cli_json_bool(object, "int8_dot", info->int8_dot);
    json_t *shapes = cli_json_add_array(object, "coopmat_shapes");
    for (int i = 0; i < info->coopmat_count; i++) {
        const tsr_coopmat_shape *shape = tsr_device_coopmat_shape(info, i);
        json_t *entry = cli_json_append_object(shapes);
        cli_json_u64(entry, "m", shape->m);
        cli_json_u64(entry, "n", shape->n);
        cli_json_u64(entry, "k", shape->k);
        cli_json_text(entry, "a", shape->a);
        cli_json_text(entry, "b", shape->b);
        cli_json_text(entry, "c", shape->c);
        cli_json_text(entry, "result", shape->result);
        cli_json_bool(entry, "saturating", shape->saturating);
        cli_json_bool(entry, "subgroup_scope", shape->subgroup_scope);
    }
}

static void add_known_faults(json_t *object, const tsr_device_info *info)
{
    const tsr__device_facts *facts = tsr__facts_of(info);
    json_t *faults = cli_json_add_array(object, "known_faults");
    for (int i = 0; i < facts->known_fault_count; i++) {
        const tsr__fault_info *fault = &facts->known_faults[i];
        json_t *entry = cli_json_append_object(faults);
        cli_json_text(entry, "name", fault->name);
        cli_json_text(entry, "description", fault->description);
        cli_json_text(entry, "effect", fault->effect);
        cli_json_text(entry, "source", fault->source);
    }
}

/* Adds the stored results of self-tests: the number of kernels and dtypes that passed, and those
 * that failed. They are null if the results cannot be read. */
static void add_self_tests(json_t *object, const tsr_device_info *info)
{
    tsr__self_tests tests;
    if (tsr__self_tests_find(info, &tests) != TSR_OK) {
        cli_json_null(object, "self_tests");
        return;
    }
    uint64_t passed = 0;
    json_t *entry = cli_json_add_object(object, "self_tests");
    json_t *failed = cli_json_add_array(entry, "failed");
    for (int i = 0; i < tests.count; i++) {
        if (tests.tests[i].right) {
            passed++;
            continue;
        }
        json_t *kernel = cli_json_append_object(failed);
        cli_json_text(kernel, "kernel", tests.tests[i].kernel);
        cli_json_text(kernel, "dtype", tsr_dtype_name(tests.tests[i].dtype));
    }
    cli_json_u64(entry, "passed", passed);
}

static void add_text_or_null(json_t *object, const char *name, const char *text)
{
    if (text[0] != '\0')
        cli_json_text(object, name, text);
    else
        cli_json_null(object, name);
}

/* Adds the tuning. It is null if the device cannot be used or its tuning cannot be read. */
static void add_tuning(json_t *object, const tsr_device_info *info)
{
    char time[CLI_UTC_TEXT] = "";
    tsr__tuning_stored stored;
    if (!info->usable || tsr__tuning_find(info, &stored) != TSR_OK) {
        cli_json_null(object, "tuning");
        return;
    }
    if (stored.state != TSR__TUNING_NONE)
        cli_utc(stored.written_s, time);
    json_t *entry = cli_json_add_object(object, "tuning");
    cli_json_text(entry, "state", cli_tuning_state(stored.state));
    cli_json_u64(entry, "classes", (uint64_t)stored.classes);
    add_text_or_null(entry, "written", time);
    add_text_or_null(entry, "path", stored.path);
    add_text_or_null(entry, "reason", stored.reason);
}

/* The names of the members follow tsr_device_info. Once a name has been published, its meaning must
 * not change. */
json_t *cli_json_device(const tsr_device_info *info)
{
    char version[CLI_VERSION_TEXT];
    json_t *object = json_object();
    cli_json_u64(object, "index", (uint64_t)info->index);
    cli_json_text(object, "name", info->name);
    cli_json_text(object, "type", cli_device_type(info->type));
    cli_json_bool(object, "usable", info->usable);
    if (info->usable)
        cli_json_null(object, "unusable_reason");
    else
        cli_json_text(object, "unusable_reason", info->unusable_reason);
    cli_json_text(object, "vendor", info->vendor);
    cli_json_u64(object, "vendor_id", info->vendor_id);
    cli_json_u64(object, "device_id", info->device_id);
    cli_json_text(object, "driver_name", info->driver_name);
    cli_json_text(object, "driver_info", info->driver_info);
    cli_json_u64(object, "driver_version", info->driver_version);
    cli_json_text(object, "api_version", cli_vulkan_version(info->api_version, version));
    cli_json_text(object, "uuid", info->uuid_text);
    add_heaps(object, info);
    add_queues(object, info);
    cli_json_u64(object, "subgroup_size", info->subgroup_size);
    cli_json_u64(object, "subgroup_size_min", info->subgroup_size_min);
    cli_json_u64(object, "subgroup_size_max", info->subgroup_size_max);
    cli_json_bool(object, "fp16", info->fp16);
    cli_json_bool(object, "int64", info->int64);
    cli_json_bool(object, "int8", info->int8);
    cli_json_bool(object, "storage16", info->storage16);
    cli_json_bool(object, "storage8", info->storage8);
    cli_json_bool(object, "unified_memory", info->unified_memory);
    cli_json_bool(object, "direct_uploads", info->direct_uploads);
    cli_json_bool(object, "memory_budget", info->memory_budget);
    cli_json_bool(object, "external_memory_host", info->external_memory_host);
    cli_json_bool(object, "pipeline_statistics", info->pipeline_statistics);
    add_coopmat(object, info);
    add_known_faults(object, info);
    add_self_tests(object, info);
    cli_json_u64(object, "processor_count", info->processor_count);
    add_three(object, "max_workgroup_count", info->max_workgroup_count);
    add_three(object, "max_workgroup_size", info->max_workgroup_size);
    cli_json_u64(object, "max_workgroup_invocations", info->max_workgroup_invocations);
    cli_json_u64(object, "max_shared_memory_bytes", info->max_shared_memory_bytes);
    cli_json_u64(object, "max_push_constant_bytes", info->max_push_constant_bytes);
    cli_json_u64(object, "max_allocation_bytes", info->max_allocation_bytes);
    cli_json_real(object, "timestamp_period_ns", (double)info->timestamp_period_ns);
    add_tuning(object, info);
    return object;
}
