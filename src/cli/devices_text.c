/* A device for people to read. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "cli/command.h"
#include "cli/devices.h"

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

char *cli_bytes(uint64_t bytes, char text[CLI_BYTES_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    uint64_t scale = 1;
    while (unit + 1 < sizeof units / sizeof units[0] && bytes / scale >= 1024) {
        scale *= 1024;
        unit++;
    }
    if (bytes % scale == 0)
        snprintf(text, CLI_BYTES_TEXT, "%" PRIu64 " %s", bytes / scale, units[unit]);
    else
        snprintf(text, CLI_BYTES_TEXT, "%.1f %s", (double)bytes / (double)scale, units[unit]);
    return text;
}

static void line(FILE *out, const char *label, const char *format, ...) CLI_PRINTF(3, 4);
static void line(FILE *out, const char *label, const char *format, ...)
{
    fprintf(out, "   %-16s", label);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(out, format, arguments);
    va_end(arguments);
    fputc('\n', out);
}

static const char *yes(bool is)
{
    return is ? "yes" : "no";
}

static void print_heaps(FILE *out, const tsr_device_info *info)
{
    char size[CLI_BYTES_TEXT], budget[CLI_BYTES_TEXT], usage[CLI_BYTES_TEXT],
        more[2 * CLI_BYTES_TEXT + 48] = "";
    for (int i = 0; i < info->heap_count; i++) {
        const tsr_heap_info *heap = &info->heaps[i];
        if (info->memory_budget)
            snprintf(more, sizeof more, "; %s for this process, %s of it in use",
                     cli_bytes(heap->budget_bytes, budget), cli_bytes(heap->usage_bytes, usage));
        line(out, i == 0 ? "memory" : "", "heap %d: %s%s%s%s", i, cli_bytes(heap->size_bytes, size),
             heap->device_local ? ", on the device" : "",
             heap->host_visible ? ", visible to the host" : "", more);
    }
}

static bool same_family(const tsr_queue_family_info *a, const tsr_queue_family_info *b)
{
    return a->count == b->count && a->graphics == b->graphics && a->compute == b->compute &&
           a->transfer == b->transfer && a->timestamp_bits == b->timestamp_bits;
}

/* Families that are alike share a line: SwiftShader has sixteen of them. */
static void print_queues(FILE *out, const tsr_device_info *info)
{
    const tsr_queue_family_info *families = info->queue_families;
    for (int first = 0, last; first < info->queue_family_count; first = last + 1) {
        last = first;
        while (last + 1 < info->queue_family_count &&
               same_family(&families[first], &families[last + 1]))
            last++;
        char to[16] = "";
        if (last > first)
            snprintf(to, sizeof to, " to %d", last);
        const tsr_queue_family_info *family = &families[first];
        line(out, first == 0 ? "queues" : "",
             "family %d%s: %" PRIu32 " queue%s%s%s%s, timestamps of %" PRIu32 " bits", first, to,
             family->count, family->count == 1 ? "" : "s", family->graphics ? ", graphics" : "",
             family->compute ? ", compute" : "", family->transfer ? ", transfer" : "",
             family->timestamp_bits);
    }
}

/* What products of f16, or bf16, do with them. */
static void print_use(FILE *out, const tsr_device_info *info, const char *dtype, bool built,
                      int used)
{
    if (!built)
        line(out, "",
             "products of %s use none: this build's shader compiler cannot build the kernels",
             dtype);
    else if (used < 0)
        line(out, "", "products of %s use none: there is none that they can", dtype);
    else
        line(out, "", "products of %s use the one marked *, in subgroups of %" PRIu32 "%s", dtype,
             info->coopmat_subgroup_size,
             info->type == TSR_DEVICE_CPU ? ", unless other kernels are faster" : "");
}

static void print_coopmat(FILE *out, const tsr_device_info *info)
{
    line(out, "coop. matrices", info->coopmat ? "yes" : "no");
    if (!info->coopmat)
        return;
    print_use(out, info, "f16", info->coopmat_built, info->coopmat_used);
    if (info->coopmat_bf16)
        print_use(out, info, "bf16", info->coopmat_bf16_built, info->coopmat_bf16_used);
    for (int i = 0; i < info->coopmat_count; i++) {
        const tsr_coopmat_shape *shape = &info->coopmats[i];
        line(out, "", "%" PRIu32 "x%" PRIu32 "x%" PRIu32 "  %s x %s + %s -> %s%s%s%s", shape->m,
             shape->n, shape->k, shape->a, shape->b, shape->c, shape->result,
             shape->saturating ? ", saturating" : "",
             shape->subgroup_scope ? "" : ", not per subgroup",
             i == info->coopmat_used || i == info->coopmat_bf16_used ? " *" : "");
    }
}

char *cli_utc(int64_t seconds, char text[CLI_UTC_TEXT])
{
    time_t time = (time_t)seconds;
    struct tm parts;
    if (gmtime_r(&time, &parts) == NULL ||
        strftime(text, CLI_UTC_TEXT, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        snprintf(text, CLI_UTC_TEXT, "?");
    return text;
}

const char *cli_tuning_state(tsr_tuning_state state)
{
    switch (state) {
    case TSR_TUNING_NONE:
        break;
    case TSR_TUNING_USED:
        return "used";
    case TSR_TUNING_IGNORED:
        return "ignored";
    case TSR_TUNING_REFUSED:
        return "refused";
    }
    return "none";
}

static void print_tuning(FILE *out, const tsr_device_info *info)
{
    char time[CLI_UTC_TEXT];
    tsr_tuning_stored stored;
    if (tsr_tuning_find(info, &stored) != TSR_OK) {
        line(out, "tuning", "not known: %s", tsr_last_error());
        return;
    }
    if (stored.state == TSR_TUNING_NONE) {
        line(out, "tuning", "none");
        return;
    }
    if (stored.state == TSR_TUNING_REFUSED)
        line(out, "tuning", "refused, products are computed as usual: %s", stored.reason);
    else
        line(out, "tuning", "%d class%s of products not computed as usual%s", stored.classes,
             stored.classes == 1 ? "" : "es",
             stored.state == TSR_TUNING_IGNORED ? ", were TESSERA_TUNING not 0" : "");
    line(out, "", "%s, of %s", stored.path, cli_utc(stored.written_s, time));
}

void cli_device_print(FILE *out, const tsr_device_info *info)
{
    char version[CLI_VERSION_TEXT], shared[CLI_BYTES_TEXT], push[CLI_BYTES_TEXT],
        largest[CLI_BYTES_TEXT];

    fprintf(out, "%d  %s (%s)\n", info->index, info->name, cli_device_type(info->type));
    if (!info->usable)
        line(out, "CANNOT BE USED", "%s", info->unusable_reason);
    line(out, "vendor", "%s, vendor 0x%04" PRIx32 ", device 0x%04" PRIx32, info->vendor,
         info->vendor_id, info->device_id);
    line(out, "driver", "%s%s%s, version 0x%" PRIx32 ", Vulkan %s", info->driver_name,
         info->driver_info[0] != '\0' ? ", " : "", info->driver_info, info->driver_version,
         cli_vulkan_version(info->api_version, version));
    line(out, "uuid", "%s", info->uuid_text);
    print_heaps(out, info);
    line(out, "unified memory", "%s",
         info->unified_memory ? "yes: tensors are reached without copies" : "no");
    if (info->subgroup_size_min == info->subgroup_size_max)
        line(out, "subgroup", "%" PRIu32 " invocations", info->subgroup_size);
    else
        line(out, "subgroup", "%" PRIu32 " invocations, or any from %" PRIu32 " to %" PRIu32,
             info->subgroup_size, info->subgroup_size_min, info->subgroup_size_max);
    line(out, "arithmetic", "fp16 %s, int64 %s, int8 %s", yes(info->fp16), yes(info->int64),
         yes(info->int8));
    line(out, "storage", "16-bit %s, 8-bit %s", yes(info->storage16), yes(info->storage8));
    print_coopmat(out, info);
    line(out, "workgroups",
         "%" PRIu32 " invocations, at most %" PRIu32 " x %" PRIu32 " x %" PRIu32
         "; %s shared memory",
         info->max_workgroup_invocations, info->max_workgroup_size[0], info->max_workgroup_size[1],
         info->max_workgroup_size[2], cli_bytes(info->max_shared_memory_bytes, shared));
    line(out, "dispatch", "%" PRIu32 " x %" PRIu32 " x %" PRIu32 " workgroups; %s push constants",
         info->max_workgroup_count[0], info->max_workgroup_count[1], info->max_workgroup_count[2],
         cli_bytes(info->max_push_constant_bytes, push));
    line(out, "one allocation", "up to %s", cli_bytes(info->max_allocation_bytes, largest));
    if (info->timestamp_period_ns > 0)
        line(out, "timestamps", "a tick is %g ns", (double)info->timestamp_period_ns);
    else
        line(out, "timestamps", "no");
    print_queues(out, info);
    line(out, "extras", "memory budget %s, external host memory %s, pipeline statistics %s",
         yes(info->memory_budget), yes(info->external_memory_host), yes(info->pipeline_statistics));
    if (info->usable)
        print_tuning(out, info);
}
