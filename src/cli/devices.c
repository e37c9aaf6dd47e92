/* tessera devices: lists the Vulkan devices of this machine and the capabilities of each. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/lib/device.h"
#include "cli/lib/json.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"

/* Text ----------------------------------------------------------------------------------------- */

static void line(FILE *out, const char *label, const char *format, ...) CLI_PRINTF(3, 4);
static void line(FILE *out, const char *label, const char *format, ...)
{
    char text[4096];
    int used = snprintf(text, sizeof text, "   %-16s", label);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    cli_line(out, "%s", text);
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
        const tsr_heap_info *heap = tsr_device_heap(info, i);
        if (info->memory_budget)
            snprintf(more, sizeof more, "; %s for this process, %s of it in use",
                     cli_bytes(heap->budget_bytes, budget), cli_bytes(heap->usage_bytes, usage));
        line(out, i == 0 ? "memory" : "", "heap %d: %s%s%s%s", i, cli_bytes(heap->size_bytes, size),
             heap->device_local ? ", on the device" : "",
             heap->host_visible ? ", visible to the host" : "", more);
    }
}

static bool same_family(const tsr__queue_family_info *a, const tsr__queue_family_info *b)
{
    return a->count == b->count && a->graphics == b->graphics && a->compute == b->compute &&
           a->transfer == b->transfer && a->timestamp_bits == b->timestamp_bits;
}

/* Prints the queue families. Families with equal properties share one line: SwiftShader, for
 * example, has sixteen equal families. */
static void print_queues(FILE *out, const tsr_device_info *info)
{
    const tsr__device_facts *facts = tsr__facts_of(info);
    const tsr__queue_family_info *families = facts->queue_families;
    for (int first = 0, last; first < facts->queue_family_count; first = last + 1) {
        last = first;
        while (last + 1 < facts->queue_family_count &&
               same_family(&families[first], &families[last + 1]))
            last++;
        char to[16] = "";
        if (last > first)
            snprintf(to, sizeof to, " to %d", last);
        const tsr__queue_family_info *family = &families[first];
        line(out, first == 0 ? "queues" : "",
             "family %d%s: %" PRIu32 " queue%s%s%s%s, timestamps of %" PRIu32 " bits", first, to,
             family->count, family->count == 1 ? "" : "s", family->graphics ? ", graphics" : "",
             family->compute ? ", compute" : "", family->transfer ? ", transfer" : "",
             family->timestamp_bits);
    }
}

static void print_queue_use(FILE *out, const tsr_device_info *info)
{
    const tsr__device_facts *facts = tsr__facts_of(info);
    if (facts->compute_queue_family < 0)
        return;
    if (facts->transfer_queue_family < 0)
        line(out, "", "family %d computes and transfers", facts->compute_queue_family);
    else
        line(out, "", "family %d computes; large uploads and downloads use family %d meanwhile",
             facts->compute_queue_family, facts->transfer_queue_family);
}

static const char *uploads(const tsr_device_info *info)
{
    if (info->unified_memory)
        return "the host writes tensors in place";
    if (info->direct_uploads)
        return "mapped: the host writes device memory, or staging memory if work uses the tensor";
    return "through staging memory";
}

/* Prints whether matrix products of a 16-bit dtype use cooperative matrices. */
static void print_use(FILE *out, const tsr_device_info *info, const char *dtype, int used)
{
    if (used < 0)
        line(out, "", "products of %s do not use them: no kernel supports any of these shapes",
             dtype);
    else
        line(out, "", "products of %s use the shape marked *, in subgroups of %" PRIu32 "%s", dtype,
             info->coopmat_subgroup_size,
             info->type == TSR_DEVICE_CPU ? ", unless other kernels are faster" : "");
}

static void print_coopmat2(FILE *out, const tsr_device_info *info)
{
    if (info->coopmat2 || info->coopmat2_bf16)
        line(out, "", "tunings may choose matrices of a workgroup for %s",
             !info->coopmat2_bf16 ? "f16"
             : !info->coopmat2    ? "bf16"
                                  : "f16 and bf16");
}

static void print_coopmat(FILE *out, const tsr_device_info *info)
{
    line(out, "coop. matrices", info->coopmat ? "yes" : "no");
    if (!info->coopmat)
        return;
    print_use(out, info, "f16", info->coopmat_used);
    if (info->coopmat_bf16)
        print_use(out, info, "bf16", info->coopmat_bf16_used);
    print_coopmat2(out, info);
    for (int i = 0; i < info->coopmat_count; i++) {
        const tsr_coopmat_shape *shape = tsr_device_coopmat_shape(info, i);
        line(out, "", "%" PRIu32 "x%" PRIu32 "x%" PRIu32 "  %s x %s + %s -> %s%s%s%s", shape->m,
             shape->n, shape->k, shape->a, shape->b, shape->c, shape->result,
             shape->saturating ? ", saturating" : "",
             shape->subgroup_scope ? "" : ", not per subgroup",
             i == info->coopmat_used || i == info->coopmat_bf16_used ? " *" : "");
    }
}

static void print_tuning(FILE *out, const tsr_device_info *info)
{
    char time[CLI_UTC_TEXT];
    tsr__tuning_stored stored;
    if (tsr__tuning_find(info, &stored) != TSR_OK) {
        line(out, "tuning", "unknown: %s", tsr_last_error());
        return;
    }
    if (stored.state == TSR__TUNING_NONE) {
        line(out, "tuning", "none");
        return;
    }
    if (stored.state == TSR__TUNING_REFUSED)
        line(out, "tuning", "refused; the built-in choice is used: %s", stored.reason);
    else
        line(out, "tuning", "%d class%s of products use%s a tuned kernel%s", stored.classes,
             stored.classes == 1 ? "" : "es", stored.classes == 1 ? "s" : "",
             stored.state == TSR__TUNING_IGNORED ? ", unless TESSERA_TUNING is 0, as it is now"
                                                 : "");
    line(out, "", "%s, written %s", stored.path, cli_utc(stored.written_s, time));
}

static void print_known_faults(FILE *out, const tsr_device_info *info)
{
    const tsr__device_facts *facts = tsr__facts_of(info);
    for (int i = 0; i < facts->known_fault_count; i++) {
        const tsr__fault_info *fault = &facts->known_faults[i];
        line(out, i == 0 ? "known faults" : "", "%s: the driver %s; %s (%s)", fault->name,
             fault->description, fault->effect, fault->source);
    }
}

/* Prints how many kernels passed their self-tests, and the names of those that failed. */
static void print_self_tests(FILE *out, const tsr_device_info *info)
{
    tsr__self_tests tests;
    if (tsr__self_tests_find(info, &tests) != TSR_OK) {
        line(out, "self-tests", "unknown: %s", tsr_last_error());
        return;
    }
    int passed = 0;
    for (int i = 0; i < tests.count; i++)
        passed += tests.tests[i].right;
    if (tests.count == 0)
        line(out, "self-tests", "none yet; each kernel is tested before its first use");
    else
        line(out, "self-tests", "%d passed, %d failed", passed, tests.count - passed);
    for (int i = 0; i < tests.count; i++)
        if (!tests.tests[i].right)
            line(out, "", "SWITCHED OFF: the kernel %s for %s", tests.tests[i].kernel,
                 tsr_dtype_name(tests.tests[i].dtype));
}

static void print_device(FILE *out, const tsr_device_info *info)
{
    char version[CLI_VERSION_TEXT], shared[CLI_BYTES_TEXT], push[CLI_BYTES_TEXT],
        largest[CLI_BYTES_TEXT];

    cli_print(out, "%d  %s (%s)\n", info->index, info->name, cli_device_type(info->type));
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
         info->unified_memory ? "yes: the host maps tensors without a copy" : "no");
    line(out, "uploads", "%s", uploads(info));
    if (info->subgroup_size_min == info->subgroup_size_max)
        line(out, "subgroup", "%" PRIu32 " invocations", info->subgroup_size);
    else
        line(out, "subgroup", "%" PRIu32 " invocations, or any from %" PRIu32 " to %" PRIu32,
             info->subgroup_size, info->subgroup_size_min, info->subgroup_size_max);
    line(out, "arithmetic", "fp16 %s, int64 %s, int8 %s", yes(info->fp16), yes(info->int64),
         yes(info->int8));
    line(out, "storage", "16-bit %s, 8-bit %s", yes(info->storage16), yes(info->storage8));
    print_coopmat(out, info);
    print_known_faults(out, info);
    if (info->processor_count > 0)
        line(out, "processors", "%" PRIu32, info->processor_count);
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
        line(out, "timestamps", "%g ns per tick", (double)info->timestamp_period_ns);
    else
        line(out, "timestamps", "none");
    print_queues(out, info);
    print_queue_use(out, info);
    line(out, "extras",
         "memory budget %s, external host memory %s, pipeline statistics %s, integer dot products "
         "%s",
         yes(info->memory_budget), yes(info->external_memory_host), yes(info->pipeline_statistics),
         yes(info->int8_dot));
    if (info->usable) {
        print_self_tests(out, info);
        print_tuning(out, info);
    }
}

/* Command -------------------------------------------------------------------------------------- */

static bool json;
static const cli_option options[] = {
    {"json", NULL, "print JSON instead of text", .flag = &json},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(out,
             "Lists every Vulkan device and its capabilities. A device that tessera cannot use is "
             "listed with the reason. Pass a device's number, name or UUID to --device, or set "
             "TESSERA_DEVICE to it.\n");
    cli_options_help(out, options);
}

static void print_json(const tsr_device_list *list)
{
    json_t *document = cli_json_document("tessera.devices", 1);
    json_t *build = cli_json_add_object(document, "build");
    cli_json_bool(build, "runtime_glsl", tsr_has("shaderc"));
    json_t *devices = cli_json_add_array(document, "devices");
    for (int i = 0; i < list->count; i++)
        cli_json_append(devices, cli_json_device(list->devices[i]));
    cli_json_print(document);
}

static void print_text(const tsr_device_list *list)
{
    if (list->count == 0)
        cli_wrap(stdout,
                 "No Vulkan device was found. A GPU needs a Vulkan driver, from its vendor or "
                 "from Mesa. Mesa's lavapipe runs on any CPU; it is in Debian's package "
                 "mesa-vulkan-drivers.\n");
    for (int i = 0; i < list->count; i++) {
        print_device(stdout, list->devices[i]);
        puts("");
    }
    printf("tessera %s; kernels from GLSL at run time: %s\n", tsr_version(),
           tsr_has("shaderc") ? "yes" : "no");
}

static int run(int argc, char **argv)
{
    int words;
    int code = cli_options_read("devices", options, argc, argv, 0, NULL, &words);
    if (code != CLI_DONE)
        return code;
    tsr_device_list *list = NULL;
    if (tsr_device_list_create(&list) != TSR_OK)
        return cli_failed("devices: %s", tsr_last_error());
    if (json)
        print_json(list);
    else
        print_text(list);
    tsr_device_list_destroy(&list);
    return CLI_DONE;
}

const cli_command cli_devices = {
    .name = "devices",
    .usage = "[--json]",
    .summary = "list the Vulkan devices of this machine and what they can do",
    .run = run,
    .help = help,
};
