/* A device for programs to read. Names follow tsr_device_info; once published, a name keeps its
 * meaning. */
#include "cli/devices.h"
#include "cli/json.h"

static void add_three(cJSON *object, const char *name, const uint32_t values[3])
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (int i = 0; i < 3; i++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber(values[i]));
}

static void add_heaps(cJSON *object, const tsr_device_info *info)
{
    cJSON *heaps = cJSON_AddArrayToObject(object, "heaps");
    for (int i = 0; i < info->heap_count; i++) {
        const tsr_heap_info *heap = &info->heaps[i];
        cJSON *entry = cJSON_CreateObject();
        cli_json_u64(entry, "size_bytes", heap->size_bytes);
        cli_json_u64(entry, "budget_bytes", heap->budget_bytes);
        cli_json_u64(entry, "usage_bytes", heap->usage_bytes);
        cJSON_AddBoolToObject(entry, "device_local", heap->device_local);
        cJSON_AddBoolToObject(entry, "host_visible", heap->host_visible);
        cJSON_AddItemToArray(heaps, entry);
    }
}

static void add_queues(cJSON *object, const tsr_device_info *info)
{
    cJSON *queues = cJSON_AddArrayToObject(object, "queue_families");
    for (int i = 0; i < info->queue_family_count; i++) {
        const tsr_queue_family_info *family = &info->queue_families[i];
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddNumberToObject(entry, "count", family->count);
        cJSON_AddBoolToObject(entry, "graphics", family->graphics);
        cJSON_AddBoolToObject(entry, "compute", family->compute);
        cJSON_AddBoolToObject(entry, "transfer", family->transfer);
        cJSON_AddNumberToObject(entry, "timestamp_bits", family->timestamp_bits);
        cJSON_AddItemToArray(queues, entry);
    }
}

static void add_coopmat(cJSON *object, const tsr_device_info *info)
{
    cJSON_AddBoolToObject(object, "coopmat", info->coopmat);
    cJSON_AddBoolToObject(object, "coopmat_built", info->coopmat_built);
    cJSON *shapes = cJSON_AddArrayToObject(object, "coopmat_shapes");
    for (int i = 0; i < info->coopmat_count; i++) {
        const tsr_coopmat_shape *shape = &info->coopmats[i];
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddNumberToObject(entry, "m", shape->m);
        cJSON_AddNumberToObject(entry, "n", shape->n);
        cJSON_AddNumberToObject(entry, "k", shape->k);
        cJSON_AddStringToObject(entry, "a", shape->a);
        cJSON_AddStringToObject(entry, "b", shape->b);
        cJSON_AddStringToObject(entry, "c", shape->c);
        cJSON_AddStringToObject(entry, "result", shape->result);
        cJSON_AddBoolToObject(entry, "saturating", shape->saturating);
        cJSON_AddBoolToObject(entry, "subgroup_scope", shape->subgroup_scope);
        cJSON_AddItemToArray(shapes, entry);
    }
}

cJSON *cli_json_device(const tsr_device_info *info)
{
    char version[CLI_VERSION_TEXT];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "index", info->index);
    cli_json_text(object, "name", info->name);
    cJSON_AddStringToObject(object, "type", cli_device_type(info->type));
    cJSON_AddBoolToObject(object, "usable", info->usable);
    if (info->usable)
        cJSON_AddNullToObject(object, "unusable_reason");
    else
        cli_json_text(object, "unusable_reason", info->unusable_reason);
    cJSON_AddStringToObject(object, "vendor", info->vendor);
    cJSON_AddNumberToObject(object, "vendor_id", info->vendor_id);
    cJSON_AddNumberToObject(object, "device_id", info->device_id);
    cli_json_text(object, "driver_name", info->driver_name);
    cli_json_text(object, "driver_info", info->driver_info);
    cJSON_AddNumberToObject(object, "driver_version", info->driver_version);
    cJSON_AddStringToObject(object, "api_version", cli_vulkan_version(info->api_version, version));
    cJSON_AddStringToObject(object, "uuid", info->uuid_text);
    add_heaps(object, info);
    add_queues(object, info);
    cJSON_AddNumberToObject(object, "subgroup_size", info->subgroup_size);
    cJSON_AddNumberToObject(object, "subgroup_size_min", info->subgroup_size_min);
    cJSON_AddNumberToObject(object, "subgroup_size_max", info->subgroup_size_max);
    cJSON_AddBoolToObject(object, "fp16", info->fp16);
    cJSON_AddBoolToObject(object, "int64", info->int64);
    cJSON_AddBoolToObject(object, "int8", info->int8);
    cJSON_AddBoolToObject(object, "storage16", info->storage16);
    cJSON_AddBoolToObject(object, "storage8", info->storage8);
    cJSON_AddBoolToObject(object, "unified_memory", info->unified_memory);
    cJSON_AddBoolToObject(object, "memory_budget", info->memory_budget);
    cJSON_AddBoolToObject(object, "external_memory_host", info->external_memory_host);
    cJSON_AddBoolToObject(object, "pipeline_statistics", info->pipeline_statistics);
    add_coopmat(object, info);
    add_three(object, "max_workgroup_count", info->max_workgroup_count);
    add_three(object, "max_workgroup_size", info->max_workgroup_size);
    cJSON_AddNumberToObject(object, "max_workgroup_invocations", info->max_workgroup_invocations);
    cJSON_AddNumberToObject(object, "max_shared_memory_bytes", info->max_shared_memory_bytes);
    cJSON_AddNumberToObject(object, "max_push_constant_bytes", info->max_push_constant_bytes);
    cli_json_u64(object, "max_allocation_bytes", info->max_allocation_bytes);
    cli_json_real(object, "timestamp_period_ns", (double)info->timestamp_period_ns);
    return object;
}
