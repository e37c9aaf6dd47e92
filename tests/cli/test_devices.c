/* Compares `tessera devices` with the library's list of devices. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utime.h>

#include "cli/tool.h"
#include "support/cache_folder.h"
#include "support/check_main.h"
#include "tessera/tessera.h"
#include "tool_seam.h"

static void same_number(const json_t *object, const char *name, uint64_t value)
{
    ck_assert_msg(tool_number(object, name) == (double)value, "%s is %.17g, not %" PRIu64, name,
                  tool_number(object, name), value);
}

static void same_bool(const json_t *object, const char *name, bool value)
{
    const json_t *member = tool_member(object, name);
    ck_assert_msg(json_is_boolean(member) && json_is_true(member) == value, "%s is wrong", name);
}

static void same_heaps(const json_t *device, const tsr_device_info *info)
{
    const json_t *heaps = tool_member(device, "heaps");
    ck_assert_int_eq((int)json_array_size(heaps), info->heap_count);
    for (int i = 0; i < info->heap_count; i++) {
        const json_t *heap = json_array_get(heaps, (size_t)i);
        same_number(heap, "size_bytes", tsr_device_heap(info, i)->size_bytes);
        ck_assert_double_gt(tool_number(heap, "budget_bytes"), 0);
        ck_assert_double_ge(tool_number(heap, "usage_bytes"), 0);
        same_bool(heap, "device_local", tsr_device_heap(info, i)->device_local);
        same_bool(heap, "host_visible", tsr_device_heap(info, i)->host_visible);
    }
}

static void same_queues(const json_t *device, const tsr_device_info *info)
{
    const tsr__device_facts *facts = tsr__facts_of(info);
    const json_t *families = tool_member(device, "queue_families");
    ck_assert_int_eq((int)json_array_size(families), facts->queue_family_count);
    for (int i = 0; i < facts->queue_family_count; i++) {
        const json_t *family = json_array_get(families, (size_t)i);
        same_number(family, "count", facts->queue_families[i].count);
        same_bool(family, "compute", facts->queue_families[i].compute);
        same_number(family, "timestamp_bits", facts->queue_families[i].timestamp_bits);
    }
    ck_assert_int_eq((int)json_integer_value(tool_member(device, "compute_queue_family")),
                     facts->compute_queue_family);
    ck_assert_int_eq((int)json_integer_value(tool_member(device, "transfer_queue_family")),
                     facts->transfer_queue_family);
}

static const char *type_of(const tsr_device_info *info)
{
    static const char *const names[] = {
        [TSR_DEVICE_INTEGRATED] = "integrated", [TSR_DEVICE_DISCRETE] = "discrete",
        [TSR_DEVICE_VIRTUAL] = "virtual",       [TSR_DEVICE_CPU] = "cpu",
        [TSR_DEVICE_OTHER] = "other",
    };
    return names[info->type];
}

static void same_device(const json_t *device, const tsr_device_info *info)
{
    ck_assert_int_eq((int)tool_number(device, "index"), info->index);
    ck_assert_str_eq(tool_text(device, "name"), info->name);
    ck_assert_str_eq(tool_text(device, "type"), type_of(info));
    same_bool(device, "usable", true);
    ck_assert(json_is_null(tool_member(device, "unusable_reason")));
    ck_assert_str_eq(tool_text(device, "vendor"), info->vendor);
    ck_assert_str_eq(tool_text(device, "driver_name"), info->driver_name);
    ck_assert_str_eq(tool_text(device, "driver_info"), info->driver_info);
    ck_assert_str_eq(tool_text(device, "uuid"), info->uuid_text);
    unsigned major, minor, patch;
    ck_assert_int_eq(sscanf(tool_text(device, "api_version"), "%u.%u.%u", &major, &minor, &patch),
                     3);
    ck_assert_uint_eq(major << 22 | minor << 12 | patch, info->api_version);
    same_number(device, "vendor_id", info->vendor_id);
    same_number(device, "device_id", info->device_id);
    same_number(device, "driver_version", info->driver_version);
    same_heaps(device, info);
    same_queues(device, info);
    same_number(device, "subgroup_size", info->subgroup_size);
    same_bool(device, "fp16", info->fp16);
    same_bool(device, "int64", info->int64);
    same_bool(device, "storage16", info->storage16);
    same_bool(device, "storage8", info->storage8);
    same_bool(device, "unified_memory", info->unified_memory);
    same_bool(device, "direct_uploads", info->direct_uploads);
    same_bool(device, "coopmat", info->coopmat);
    same_bool(device, "coopmat_bf16", info->coopmat_bf16);
    ck_assert_int_eq((int)json_integer_value(tool_member(device, "coopmat_used")),
                     info->coopmat_used);
    ck_assert_int_eq((int)json_integer_value(tool_member(device, "coopmat_bf16_used")),
                     info->coopmat_bf16_used);
    same_number(device, "coopmat_subgroup_size", info->coopmat_subgroup_size);
    same_bool(device, "coopmat2", info->coopmat2);
    same_bool(device, "coopmat2_bf16", info->coopmat2_bf16);
    same_bool(device, "int8_dot", info->int8_dot);
    ck_assert_int_eq((int)json_array_size(tool_member(device, "coopmat_shapes")),
                     info->coopmat_count);
    ck_assert_int_eq((int)json_array_size(tool_member(device, "known_faults")),
                     tsr__facts_of(info)->known_fault_count);
    const json_t *sizes = tool_member(device, "max_workgroup_size");
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq((uint32_t)json_integer_value(json_array_get(sizes, (size_t)i)),
                          info->max_workgroup_size[i]);
    same_number(device, "processor_count", info->processor_count);
    same_number(device, "max_workgroup_invocations", info->max_workgroup_invocations);
    same_number(device, "max_shared_memory_bytes", info->max_shared_memory_bytes);
    same_number(device, "max_push_constant_bytes", info->max_push_constant_bytes);
    same_number(device, "max_allocation_bytes", info->max_allocation_bytes);
}

START_TEST(json_has_everything)
{
    tsr_device_list *list = NULL;
    ck_assert_ok(tsr_device_list_create(&list));
    json_t *document = tool_json("devices --json", "tessera.devices");
    ck_assert_str_eq(tool_text(document, "tessera"), tsr_version());
    const json_t *devices = tool_member(document, "devices");
    ck_assert_int_ge(list->count, 1);
    ck_assert_int_eq((int)json_array_size(devices), list->count);
    for (int i = 0; i < list->count; i++)
        same_device(json_array_get(devices, (size_t)i), list->devices[i]);
    json_decref(document);
    tsr_device_list_destroy(&list);
}
END_TEST

START_TEST(text_names_each_device)
{
    tsr_device_list *list = NULL;
    ck_assert_ok(tsr_device_list_create(&list));
    tool_result result = tool_run("devices");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_str_eq(result.err, "");
    for (int i = 0; i < list->count; i++) {
        const tsr_device_info *info = list->devices[i];
        char heading[TSR__NAME_SIZE + 32], subgroup[128];
        snprintf(heading, sizeof heading, "%d  %s (%s)\n", i, info->name, type_of(info));
        int used =
            snprintf(subgroup, sizeof subgroup, "  %" PRIu32 " invocations", info->subgroup_size);
        if (info->subgroup_size_min != info->subgroup_size_max)
            snprintf(subgroup + used, sizeof subgroup - (size_t)used,
                     ", or any from %" PRIu32 " to %" PRIu32 "\n", info->subgroup_size_min,
                     info->subgroup_size_max);
        else
            snprintf(subgroup + used, sizeof subgroup - (size_t)used, "\n");
        ck_assert_ptr_nonnull(strstr(result.out, heading));
        ck_assert_ptr_nonnull(strstr(result.out, info->uuid_text));
        ck_assert_ptr_nonnull(strstr(result.out, subgroup));
    }
    ck_assert_ptr_null(strstr(result.out, "CANNOT BE USED"));
    ck_assert_ptr_nonnull(strstr(result.out, "kernels from GLSL at run time"));
    tool_result_free(&result);
    tsr_device_list_destroy(&list);
}
END_TEST

/* Self-tests ----------------------------------------------------------------------------------- */

static void text_has(const char *want)
{
    tool_result result = tool_run("devices");
    ck_assert_msg(strstr(result.out, want) != NULL, "no '%s' in: %s", want, result.out);
    tool_result_free(&result);
}

/* Multiplies once, so that the self-test tests a kernel, and closes the device, so that the result
 * is stored. */
static void multiply_once(void)
{
    tsr_device *device = NULL;
    tsr_stream *stream = NULL;
    tsr_tensor *y = NULL, *x = NULL;
    ck_assert_ok(tsr_device_open(NULL, &device));
    ck_assert_ok(tsr_stream_create(device, &stream));
    ck_assert_ok(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){40, 40}, &x));
    ck_assert_ok(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){40, 40}, &y));
    ck_assert_ok(tsr_fill(stream, x, 1));
    ck_assert_ok(tsr_matmul(stream, y, x, x, NULL));
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
}

START_TEST(self_tests_are_counted)
{
    text_has("   self-tests      none yet; each kernel is tested before its first use\n");
    unsetenv("TESSERA_SELF_TEST");
    multiply_once();
    text_has(" passed, 0 failed\n");
    json_t *document = tool_json("devices --json", "tessera.devices");
    const json_t *tests =
        tool_member(json_array_get(tool_member(document, "devices"), 0), "self_tests");
    ck_assert_int_ge((int)tool_number(tests, "passed"), 1);
    ck_assert_int_eq((int)json_array_size(tool_member(tests, "failed")), 0);
    json_decref(document);
}
END_TEST

/* Tunings -------------------------------------------------------------------------------------- */

/* Stores another kernel than the default for one class of products, in a file with the date
 * 2026-01-02T03:04:05Z. */
static void store_tuning(char path[TSR__TUNING_PATH_SIZE])
{
    const struct utimbuf then = {.actime = 1767323045, .modtime = 1767323045};
    tsr_device *device = NULL;
    tsr_stream *stream = NULL;
    tsr_tensor *y = NULL, *x = NULL;
    ck_assert_ok(tsr_device_open(NULL, &device));
    ck_assert_ok(tsr_stream_create(device, &stream));
    ck_assert_ok(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){40, 40}, &x));
    ck_assert_ok(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){40, 40}, &y));
    ck_assert_ok(tsr__tuning_set(stream, y, x, x, NULL, tsr__tuning_choice(.kernel = "wide")));
    ck_assert_ok(tsr__tuning_save(device));
    ck_assert_ok(tsr__tuning_path(device, path, TSR__TUNING_PATH_SIZE));
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
    ck_assert_int_eq(utime(path, &then), 0);
}

/* Asserts that the text about the first device ends with `want`. */
static void prints(const char *want)
{
    char text[2 * TSR__TUNING_PATH_SIZE];
    tool_result result = tool_run("devices");
    ck_assert_str_eq(result.err, "");
    snprintf(text, sizeof text, "   tuning          %s\n\n", want);
    ck_assert_msg(strstr(result.out, text) != NULL, "no '%s' in: %s", text, result.out);
    tool_result_free(&result);
}

/* Asserts that the member is this text; if `want` is NULL, that it is null. */
static void same_text(const json_t *object, const char *name, const char *want)
{
    if (want != NULL)
        ck_assert_str_eq(tool_text(object, name), want);
    else
        ck_assert(json_is_null(tool_member(object, name)));
}

static void json_says(const char *state, int classes, const char *written, const char *path,
                      const char *reason)
{
    json_t *document = tool_json("devices --json", "tessera.devices");
    const json_t *tuning =
        tool_member(json_array_get(tool_member(document, "devices"), 0), "tuning");
    ck_assert_str_eq(tool_text(tuning, "state"), state);
    ck_assert_int_eq((int)tool_number(tuning, "classes"), classes);
    same_text(tuning, "written", written);
    same_text(tuning, "path", path);
    same_text(tuning, "reason", reason);
    json_decref(document);
}

#define WRITTEN "2026-01-02T03:04:05Z"
#define NEXT_LINE "\n                   "

START_TEST(a_tuning_is_shown)
{
    char path[TSR__TUNING_PATH_SIZE], want[2 * TSR__TUNING_PATH_SIZE];
    prints("none");
    json_says("none", 0, NULL, NULL, NULL);

    store_tuning(path);
    snprintf(want, sizeof want,
             "1 class of products uses a tuned kernel" NEXT_LINE "%s, written %s", path, WRITTEN);
    prints(want);
    json_says("used", 1, WRITTEN, path, NULL);

    setenv("TESSERA_TUNING", "0", 1);
    snprintf(want, sizeof want,
             "1 class of products uses a tuned kernel, unless TESSERA_TUNING is 0, as it is "
             "now" NEXT_LINE "%s, written %s",
             path, WRITTEN);
    prints(want);
    json_says("ignored", 1, WRITTEN, path, NULL);
}
END_TEST

START_TEST(a_refused_tuning_has_a_reason)
{
    char path[TSR__TUNING_PATH_SIZE], other[96], reason[128], want[2 * TSR__TUNING_PATH_SIZE];
    const struct utimbuf then = {.actime = 1767323045, .modtime = 1767323045};
    tsr_device_list *list = NULL;
    store_tuning(path);

    /* A tuning for another version of the driver is in a file with another name, and contains that
     * version. This file imitates one. */
    snprintf(other, sizeof other, "%s/tessera/tuning-0.bin", cache_folder);
    ck_assert_int_eq(rename(path, other), 0);
    FILE *file = fopen(other, "r+b");
    ck_assert_ptr_nonnull(file);
    const uint32_t version = 0xabc;
    ck_assert_int_eq(fseek(file, 48, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(&version, sizeof version, 1, file), 1);
    fclose(file);
    ck_assert_int_eq(utime(other, &then), 0);
    ck_assert_ok(tsr_device_list_create(&list));
    snprintf(reason, sizeof reason, "it was made for version 0xabc of the driver; this is 0x%x",
             (unsigned)list->devices[0]->driver_version);
    tsr_device_list_destroy(&list);
    snprintf(want, sizeof want,
             "refused; the built-in choice is used: %s" NEXT_LINE "%s, written %s", reason, other,
             WRITTEN);
    prints(want);
    json_says("refused", 0, WRITTEN, other, reason);

    store_tuning(path);
    ck_assert_int_eq(truncate(path, 100), 0);
    ck_assert_int_eq(utime(path, &then), 0);
    snprintf(want, sizeof want,
             "refused; the built-in choice is used: it is damaged" NEXT_LINE "%s, written %s", path,
             WRITTEN);
    prints(want);
    json_says("refused", 0, WRITTEN, path, "it is damaged");
}
END_TEST

TESTS(devices)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, cache_folder_make, cache_folder_remove);
    tcase_add_test(tests, json_has_everything);
    tcase_add_test(tests, text_names_each_device);
    tcase_add_test(tests, self_tests_are_counted);
    tcase_add_test(tests, a_tuning_is_shown);
    tcase_add_test(tests, a_refused_tuning_has_a_reason);
}
