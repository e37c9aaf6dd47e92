/* Listing, opening and closing real devices. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/device/device.h"
#include "gpu/device/mesa.h"
#include "support/check_main.h"
#include "support/gpu.h"

START_TEST(the_listing_describes_the_driver)
{
    tsr_device_list *list = NULL;
    GPU_OK(tsr_device_list_create(&list));
    const tsr_device_info *info = list->devices[0];
    if (getenv("TEST_GPU")) {
        ck_assert_int_ge(list->count, 1);
        ck_assert_int_ne(info->type, TSR_DEVICE_CPU);
    } else {
        ck_assert_int_eq(list->count, 1);
        ck_assert_int_eq(info->type, TSR_DEVICE_CPU);
        ck_assert(tsr_device_heap(info, 0)->device_local && tsr_device_heap(info, 0)->host_visible);
        ck_assert(info->unified_memory);
    }
    ck_assert_int_eq(info->index, 0);
    ck_assert(info->usable && info->unusable_reason[0] == '\0');
    ck_assert(info->name[0] != '\0' && info->driver_name[0] != '\0');
    ck_assert_uint_eq(strlen(info->uuid_text), 36);
    ck_assert_int_ge(info->heap_count, 1);
    ck_assert_uint_ge(tsr_device_heap(info, 0)->size_bytes, UINT64_C(1) << 30);
    ck_assert_int_ge(tsr__facts_of(info)->queue_family_count, 1);
    ck_assert(tsr__facts_of(info)->queue_families[0].compute);
    ck_assert_uint_ge(info->subgroup_size, 1);
    ck_assert_uint_le(info->subgroup_size_min, info->subgroup_size_max);
    ck_assert_uint_ge(info->max_workgroup_invocations, 128);
    ck_assert_uint_ge(info->max_shared_memory_bytes, 16384);
    ck_assert_uint_ge(info->max_push_constant_bytes, 128);
    ck_assert_uint_ge(info->max_workgroup_count[0], 65535);
    tsr_device_list_destroy(&list);
    ck_assert_ptr_null(list);
    tsr_device_list_destroy(&list);
    tsr_device_list_destroy(NULL);
}
END_TEST

START_TEST(lists_by_index_end)
{
    tsr_device_list *list = NULL;
    GPU_OK(tsr_device_list_create(&list));
    const tsr_device_info *info = list->devices[0];
    for (int i = 0; i < info->heap_count; i++)
        ck_assert_uint_gt(tsr_device_heap(info, i)->size_bytes, 0);
    for (int i = 0; i < info->coopmat_count; i++)
        ck_assert_uint_gt(tsr_device_coopmat_shape(info, i)->m, 0);
    ck_assert_ptr_null(tsr_device_heap(info, -1));
    ck_assert_ptr_null(tsr_device_heap(info, info->heap_count));
    ck_assert_ptr_null(tsr_device_heap(NULL, 0));
    ck_assert_ptr_null(tsr_device_coopmat_shape(info, -1));
    ck_assert_ptr_null(tsr_device_coopmat_shape(info, info->coopmat_count));
    ck_assert_ptr_null(tsr_device_coopmat_shape(NULL, 0));
    /* an open device has its own copy of everything */
    tsr_device *device = NULL;
    GPU_OK(tsr_device_open(tsr_device_params(.device = "0"), &device));
    tsr_device_list_destroy(&list);
    info = tsr_device_get_info(device);
    ck_assert_uint_eq(strlen(info->uuid_text), 36);
    ck_assert_uint_gt(tsr_device_heap(info, 0)->size_bytes, 0);
    tsr_device_close(&device);
}
END_TEST

START_TEST(opened_by_index_uuid_name_and_environment)
{
    tsr_device_list *list = NULL;
    GPU_OK(tsr_device_list_create(&list));
    char part[6];
    snprintf(part, sizeof part, "%.5s", list->devices[0]->name);
    const char *ways[] = {"0", list->devices[0]->uuid_text, part, NULL};
    for (int i = 0; i < 4; i++) {
        tsr_device *device = NULL;
        GPU_OK(tsr_device_open(tsr_device_params(.device = ways[i]), &device));
        ck_assert_str_eq(tsr_device_get_info(device)->name, list->devices[0]->name);
        tsr_device_close(&device);
        ck_assert_ptr_null(device);
    }
    tsr_device_list_destroy(&list);

    tsr_device *device = NULL;
    setenv("TESSERA_DEVICE", "a device nobody has", 1);
    GPU_FAILS(tsr_device_open(NULL, &device), TSR_ERR_NOT_FOUND,
              "no device matches \"a device nobody has\"; there is 0 (");
    /* The parameter `device` takes precedence over the environment variable. */
    GPU_OK(tsr_device_open(tsr_device_params(.device = "0"), &device));
    tsr_device_close(&device);
}
END_TEST

START_TEST(errors_leave_the_output_alone)
{
    tsr_device *device = (tsr_device *)&device;
    GPU_FAILS(tsr_device_open(tsr_device_params(.device = "7"), &device), TSR_ERR_NOT_FOUND,
              "there is no device 7");
    ck_assert_ptr_eq(device, (tsr_device *)&device);
    GPU_FAILS(tsr_device_open(NULL, NULL), TSR_ERR_INVALID, "out is NULL");
    GPU_FAILS(tsr_device_list_create(NULL), TSR_ERR_INVALID, "out is NULL");
    tsr_device_close(NULL);
    device = NULL;
    tsr_device_close(&device);
    ck_assert_ptr_null(tsr_device_get_info(NULL));
}
END_TEST

/* In the first half, the query of a device's extensions fails while devices are listed; in the
 * second, while the device is opened. */
START_TEST(a_device_that_fails_to_answer_is_listed)
{
    const char *const reason =
        "vkEnumerateDeviceExtensionProperties failed: VK_ERROR_INITIALIZATION_FAILED";
    tsr_device_list *list = NULL;
    const char *site = "";
    uint64_t nth = 0;
    while (true) {
        tsr__fault_arm(TSR__FAULT_VULKAN, nth, VK_ERROR_INITIALIZATION_FAILED);
        tsr_status status = tsr_device_list_create(&list);
        site = tsr__fault_site();
        tsr__fault_disarm();
        ck_assert_ptr_nonnull(site);
        if (strcmp(site, "vkEnumerateDeviceExtensionProperties") == 0) {
            GPU_OK(status);
            break;
        }
        ck_assert_int_ne(status, TSR_OK);
        nth++;
    }
    ck_assert_int_ge(list->count, 1);
    ck_assert(!list->devices[0]->usable && list->devices[0]->name[0] != '\0');
    ck_assert_str_eq(list->devices[0]->unusable_reason, reason);
    tsr_device_list_destroy(&list);

    tsr_device *device = NULL;
    tsr__fault_arm(TSR__FAULT_VULKAN, nth, VK_ERROR_INITIALIZATION_FAILED);
    GPU_FAILS(tsr_device_open(tsr_device_params(.device = "0"), &device), TSR_ERR_UNSUPPORTED,
              reason);
    tsr__fault_disarm();
    ck_assert_ptr_null(device);
}
END_TEST

static const char *const no_slowdowns[] = {"abc", "0.5", "99999", "2x",   "-2",
                                           "0x2", "nan", ".",     "1.5.", "1000.1"};

START_TEST(an_invalid_slowdown_is_refused)
{
    tsr_device *device = NULL;
    char text[160];
    snprintf(text, sizeof text,
             "device_open: TESSERA_SLOWDOWN is '%s', not a number from 1 to 1000",
             no_slowdowns[_i]);
    setenv("TESSERA_SLOWDOWN", no_slowdowns[_i], 1);
    GPU_FAILS(tsr_device_open(NULL, &device), TSR_ERR_INVALID, text);
    ck_assert_ptr_null(device);
    /* tsr_stream_create reads TESSERA_SLOWDOWN, too. */
    tsr_stream *stream = NULL;
    unsetenv("TESSERA_SLOWDOWN");
    GPU_OK(tsr_device_open(NULL, &device));
    setenv("TESSERA_SLOWDOWN", no_slowdowns[_i], 1);
    snprintf(text, sizeof text, "stream_create: TESSERA_SLOWDOWN is '%s'", no_slowdowns[_i]);
    GPU_FAILS(tsr_stream_create(device, &stream), TSR_ERR_INVALID, text);
    ck_assert_ptr_null(stream);
    tsr_device_close(&device);
}
END_TEST

START_TEST(slowdowns)
{
    static const char *const good[] = {"", "1", "1.5", "1000"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tsr_device *device = NULL;
        setenv("TESSERA_SLOWDOWN", good[i], 1);
        GPU_OK(tsr_device_open(NULL, &device));
        tsr_device_close(&device);
    }
}
END_TEST

/* Locales with another decimal point than that of "C"; those that the host lacks are skipped. */
START_TEST(slowdowns_in_any_locale)
{
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8", "C"};
    for (size_t i = 0; i < sizeof locales / sizeof *locales; i++) {
        double factor = 0;
        if (setlocale(LC_NUMERIC, locales[i]) == NULL)
            continue;
        setenv("TESSERA_SLOWDOWN", "12.5", 1);
        GPU_OK(tsr__slowdown(&factor));
        ck_assert_double_eq(factor, 12.5);
        setenv("TESSERA_SLOWDOWN", "12,5", 1);
        GPU_FAILS(tsr__slowdown(&factor), TSR_ERR_INVALID, "TESSERA_SLOWDOWN is '12,5', not a");
    }
}
END_TEST

START_TEST(processors_with_wide_vectors)
{
    static const struct {
        const char *vendor;
        unsigned family, model;
        bool wide;
    } processors[] = {
        {"AuthenticAMD", 0x1a, 0x02, true},  {"AuthenticAMD", 0x1a, 0x1f, true},
        {"AuthenticAMD", 0x1a, 0x44, true},  {"AuthenticAMD", 0x1a, 0x24, false},
        {"AuthenticAMD", 0x19, 0x11, false}, {"GenuineIntel", 0x06, 0x8f, false},
        {"GenuineIntel", 0x1a, 0x02, false}, {"", 0, 0, false},
    };
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++)
        ck_assert_int_eq(tsr__mesa_is_faster_wide(processors[i].vendor, processors[i].family,
                                                  processors[i].model),
                         processors[i].wide);
}
END_TEST

/* Sets a variable, or removes it if the value is NULL. */
static void set_variable(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

START_TEST(variables_of_the_user_stay)
{
    static const char *const values[][2] = {{"128", NULL},  {"512", NULL}, {"", NULL},
                                            {NULL, "nopt"}, {NULL, ""},    {"256", "nopt"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const char *const *want = values[i];
        set_variable("LP_NATIVE_VECTOR_WIDTH", want[0]);
        set_variable("GALLIVM_PERF", want[1]);
        tsr_device_list *list = NULL;
        GPU_OK(tsr_device_list_create(&list));
        tsr_device_list_destroy(&list);
        ck_assert_pstr_eq(getenv("LP_NATIVE_VECTOR_WIDTH"), want[0]);
        ck_assert_pstr_eq(getenv("GALLIVM_PERF"), want[1]);
    }
}
END_TEST

START_TEST(versions_of_mesa)
{
    static const struct {
        const char *driver_info;
        unsigned version;
        bool takes_phases;
    } versions[] = {
        {"Mesa 22.3.6 (LLVM 15.0.6)", TSR__MESA_OF_DEBIAN_12, true},
        {"Mesa 25.0.7-2+deb13u1 (LLVM 19.1.7)", 2500, false},
        {"Mesa 26.2.6-1 (LLVM 22.1.8)", 2602, false},
        {"Mesa 26.10", 2610, false},
        {"Mesa 22", 0, true},
        {"Mesa", 0, true},
        {"", 0, true},
        {"22.3.6", 0, true},
        {"Mesa 99999999999999999999.0", 0, true},
    };
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        ck_assert_uint_eq(tsr__mesa_version(versions[i].driver_info), versions[i].version);
        ck_assert_int_eq(tsr__mesa_takes_phases(versions[i].driver_info), versions[i].takes_phases);
    }
}
END_TEST

/* Where LP_NATIVE_VECTOR_WIDTH is set, by gpu_load_libraries or by the user, lavapipe's
 * subgroups must have that width. */
START_TEST(lavapipe_has_the_width_that_was_set)
{
    tsr_device *device = NULL;
    GPU_OK(tsr_device_open(NULL, &device));
    const char *width = getenv("LP_NATIVE_VECTOR_WIDTH");
    if (width && device->traits.device_class == TSR__CLASS_LAVAPIPE)
        ck_assert_int_eq((int)tsr_device_get_info(device)->subgroup_size, atoi(width) / 32);
    tsr_device_close(&device);
}
END_TEST

START_TEST(several_devices_in_one_process)
{
    tsr_device *a, *b;
    GPU_OK(tsr_device_open(NULL, &a));
    GPU_OK(tsr_device_open(NULL, &b));
    ck_assert_ptr_ne(a, b);
    tsr_stream *stream;
    tsr_tensor *tensor;
    GPU_OK(tsr_stream_create(a, &stream));
    GPU_OK(tsr_tensor_create(b, TSR_F32, 1, (int64_t[]){4}, &tensor));
    float values[4] = {0};
    char text[512];
    snprintf(text, sizeof text,
             "tensor_upload: tensor is on device 0 (%s), the stream on another device object",
             tsr_device_get_info(a)->name);
    GPU_FAILS(tsr_tensor_upload(stream, tensor, values, sizeof values), TSR_ERR_INVALID, text);
    tsr_stream_destroy(&stream);
    tsr_tensor_destroy(&tensor);
    tsr_device_close(&a);
    tsr_device_close(&b);
}
END_TEST

START_TEST(everything_may_be_closed_in_any_order)
{
    for (int order = 0; order < 6; order++) {
        tsr_device *device;
        tsr_stream *stream;
        tsr_tensor *tensor, *view;
        GPU_OK(tsr_device_open(NULL, &device));
        GPU_OK(tsr_stream_create(device, &stream));
        GPU_OK(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){3, 5}, &tensor));
        GPU_OK(tsr_tensor_transpose(tensor, 0, 1, &view));
        GPU_OK(tsr_fill(stream, tensor, 1.5));
        if (order % 2 == 0)
            tsr_device_close(&device);
        if (order < 3)
            tsr_tensor_destroy(&tensor);
        if (order % 3 == 0) {
            float values[15];
            GPU_OK(tsr_tensor_download(stream, view, values, sizeof values));
            ck_assert_float_eq(values[14], 1.5F);
        }
        tsr_stream_destroy(&stream);
        tsr_tensor_destroy(&view);
        tsr_tensor_destroy(&tensor);
        tsr_device_close(&device);
    }
}
END_TEST

START_TEST(a_lost_device_stays_lost_and_closes)
{
    tsr_tensor *tensor = gpu_new(TSR_F32, 1, (int64_t[]){100});
    GPU_OK(tsr_fill(queue, tensor, 1));
    tsr__fault_arm(TSR__FAULT_VULKAN, 0, VK_ERROR_DEVICE_LOST);
    tsr_status status = tsr_stream_wait(queue);
    tsr__fault_disarm();
    ck_assert_int_eq(status, TSR_ERR_DEVICE_LOST);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "VK_ERROR_DEVICE_LOST"));

    float values[100] = {0};
    tsr_tensor *other = NULL;
    tsr_stream *stream = NULL;
    GPU_FAILS(tsr_fill(queue, tensor, 2), TSR_ERR_DEVICE_LOST, "was lost");
    GPU_FAILS(tsr_stream_submit(queue), TSR_ERR_DEVICE_LOST, "was lost");
    GPU_FAILS(tsr_stream_wait(queue), TSR_ERR_DEVICE_LOST, "was lost");
    GPU_FAILS(tsr_tensor_upload(queue, tensor, values, sizeof values), TSR_ERR_DEVICE_LOST,
              "was lost");
    GPU_FAILS(tsr_tensor_download(queue, tensor, values, sizeof values), TSR_ERR_DEVICE_LOST,
              "was lost");
    GPU_FAILS(tsr_tensor_create(gpu, TSR_F32, 0, NULL, &other), TSR_ERR_DEVICE_LOST, "was lost");
    GPU_FAILS(tsr_stream_create(gpu, &stream), TSR_ERR_DEVICE_LOST, "was lost");
    ck_assert_ptr_null(other);
    ck_assert_ptr_null(stream);
    tsr_tensor_destroy(&tensor);
}
END_TEST

TESTS(listing)
{
    tcase_add_test(tests, the_listing_describes_the_driver);
    tcase_add_test(tests, lists_by_index_end);
    tcase_add_test(tests, opened_by_index_uuid_name_and_environment);
    tcase_add_test(tests, errors_leave_the_output_alone);
    tcase_add_test(tests, a_device_that_fails_to_answer_is_listed);
    tcase_add_test(tests, processors_with_wide_vectors);
    tcase_add_test(tests, variables_of_the_user_stay);
    tcase_add_test(tests, lavapipe_has_the_width_that_was_set);
    tcase_add_test(tests, versions_of_mesa);
    tcase_add_test(tests, several_devices_in_one_process);
    tcase_add_loop_test(tests, an_invalid_slowdown_is_refused, 0,
                        (int)(sizeof no_slowdowns / sizeof *no_slowdowns));
    tcase_add_test(tests, slowdowns);
    tcase_add_test(tests, slowdowns_in_any_locale);
    tcase_add_test(tests, everything_may_be_closed_in_any_order);
}

TESTS(lost)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, a_lost_device_stays_lost_and_closes);
}
