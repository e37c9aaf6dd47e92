/* Tests the table of known faults of drivers, with invented devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/coopmat.h"
#include "gpu/device/device.h"
#include "gpu/device/known_faults.h"
#include "support/check_main.h"
#include "support/gpu.h"

/* A device, and the names of its known faults in the order of the library's table, separated by
 * spaces. */
typedef struct invented {
    VkDriverId driver;
    uint32_t vendor, device, version;
    tsr_device_type type;
    uint32_t columns; /* the number of columns of the results of cooperative matrices; 0: there are
                         no cooperative matrices */
    bool mixed_dot_products;
    uint32_t subgroup_min, subgroup_max;
    bool host_import;
    const char *faults;
} invented;

#define DISCRETE TSR_DEVICE_DISCRETE
#define INTEGRATED TSR_DEVICE_INTEGRATED
enum { AMD = 0x1002, NVIDIA = 0x10de, INTEL = 0x8086, APPLE = 0x106b };
#define MESA(major, minor) VK_MAKE_VERSION(major, minor, 0)
#define WINDOWS(build) (101U << 14 | (build))

static const invented devices[] = {
    /* AMD: RDNA 2, RDNA 3, an APU of RDNA 3 with three drivers, GCN, an APU of GCN */
    {VK_DRIVER_ID_AMD_PROPRIETARY, AMD, 0x73bf, VK_MAKE_VERSION(2, 0, 353), DISCRETE, 16, false, 32,
     64, true, "amd-emulated-coopmat"},
    {VK_DRIVER_ID_AMD_OPEN_SOURCE, AMD, 0x73bf, VK_MAKE_VERSION(2, 0, 353), DISCRETE, 16, false, 32,
     64, true, "amd-emulated-coopmat"},
    {VK_DRIVER_ID_MESA_RADV, AMD, 0x73bf, MESA(25, 2), DISCRETE, 16, false, 32, 64, true, ""},
    {VK_DRIVER_ID_AMD_PROPRIETARY, AMD, 0x73bf, VK_MAKE_VERSION(2, 0, 353), DISCRETE, 0, false, 32,
     64, true, ""},
    {VK_DRIVER_ID_AMD_PROPRIETARY, AMD, 0x744c, VK_MAKE_VERSION(2, 0, 388), DISCRETE, 16, true, 32,
     64, true, ""},
    {VK_DRIVER_ID_AMD_PROPRIETARY, AMD, 0x1114, VK_MAKE_VERSION(2, 0, 387), INTEGRATED, 16, true,
     32, 64, true, "amd-apu-timeout"},
    {VK_DRIVER_ID_AMD_PROPRIETARY, AMD, 0x1114, VK_MAKE_VERSION(2, 0, 388), INTEGRATED, 16, true,
     32, 64, true, "amd-coopmat-query amd-apu-timeout"},
    {VK_DRIVER_ID_AMD_PROPRIETARY, AMD, 0x1114, VK_MAKE_VERSION(2, 0, 388), INTEGRATED, 0, true, 32,
     64, true, "amd-apu-timeout"},
    {VK_DRIVER_ID_AMD_OPEN_SOURCE, AMD, 0x1114, VK_MAKE_VERSION(2, 0, 388), INTEGRATED, 16, true,
     32, 64, true, "amd-apu-timeout"},
    {VK_DRIVER_ID_MESA_RADV, AMD, 0x1114, MESA(25, 2), INTEGRATED, 16, true, 32, 64, true,
     "amd-apu-timeout"},
    {VK_DRIVER_ID_MESA_RADV, AMD, 0x67df, MESA(25, 2), DISCRETE, 0, false, 64, 64, true,
     "amd-gcn-timeout"},
    {VK_DRIVER_ID_MESA_RADV, AMD, 0x1636, MESA(25, 2), INTEGRATED, 0, false, 64, 64, true,
     "amd-apu-timeout"},
    {VK_DRIVER_ID_AMD_PROPRIETARY, AMD, 0x1636, VK_MAKE_VERSION(2, 0, 400), INTEGRATED, 16, false,
     64, 64, true, "amd-emulated-coopmat amd-coopmat-query amd-apu-timeout"},
    /* Intel: Alchemist and Battlemage G21 and G31 */
    {VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA, INTEL, 0x56a0, MESA(25, 2), DISCRETE, 8, true, 8, 32,
     true, "anv-emulated-coopmat"},
    {VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA, INTEL, 0xe223, MESA(25, 2), DISCRETE, 16, true, 16, 32,
     true, ""},
    {VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA, INTEL, 0x9a49, MESA(25, 2), INTEGRATED, 0, true, 8, 32,
     true, ""},
    {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS, INTEL, 0x56a0, WINDOWS(8826), DISCRETE, 8, true, 8, 32,
     true, "intel-windows-slow-coopmat"},
    {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS, INTEL, 0xe21f, WINDOWS(8826), DISCRETE, 16, true, 16,
     32, true, ""},
    {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS, INTEL, 0xe220, WINDOWS(8826), DISCRETE, 16, true, 16,
     32, true, "intel-windows-g31-coopmat"},
    {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS, INTEL, 0xe223, WINDOWS(8974), DISCRETE, 16, true, 16,
     32, true, "intel-windows-g31-coopmat"},
    {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS, INTEL, 0xe224, WINDOWS(8974), DISCRETE, 16, true, 16,
     32, true, ""},
    {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS, INTEL, 0xe223, WINDOWS(8825), DISCRETE, 16, true, 16,
     32, true, ""},
    /* MoltenVK on AMD and on Apple */
    {VK_DRIVER_ID_MOLTENVK, AMD, 0x7340, 10401, DISCRETE, 0, false, 32, 64, true,
     "moltenvk-amd-subgroups moltenvk-host-import"},
    {VK_DRIVER_ID_MOLTENVK, AMD, 0x7340, 10403, DISCRETE, 0, false, 64, 64, true,
     "moltenvk-amd-subgroups"},
    {VK_DRIVER_ID_MOLTENVK, AMD, 0x7340, 10403, DISCRETE, 0, false, 32, 32, true, ""},
    {VK_DRIVER_ID_MOLTENVK, APPLE, 0xe0303ef, 10402, INTEGRATED, 0, false, 32, 32, true,
     "moltenvk-host-import"},
    {VK_DRIVER_ID_MOLTENVK, APPLE, 0xe0303ef, 10402, INTEGRATED, 0, false, 32, 32, false, ""},
    {VK_DRIVER_ID_MOLTENVK, APPLE, 0xe0303ef, 10403, INTEGRATED, 0, false, 32, 32, true, ""},
    /* other drivers */
    {VK_DRIVER_ID_NVIDIA_PROPRIETARY, NVIDIA, 0x1e07, 0x91c00000, DISCRETE, 8, false, 32, 32, true,
     ""},
    {VK_DRIVER_ID_MESA_LLVMPIPE, 0x10005, 0, MESA(22, 3), TSR_DEVICE_CPU, 8, false, 8, 8, true, ""},
    {VK_DRIVER_ID_MESA_LLVMPIPE, 0x10005, 0, MESA(22, 3), TSR_DEVICE_CPU, 0, false, 4, 4, true,
     "lavapipe-halves"},
    {0, AMD, 0x67df, 1, INTEGRATED, 8, false, 64, 64, true, ""},
};

static tsr__capabilities capabilities;
static tsr__device_facts facts;
static tsr_device_info *const info = &facts.info;

static void make(const invented *device)
{
    capabilities = (tsr__capabilities){.driver = device->driver,
                                       .mixed_dot_products = device->mixed_dot_products,
                                       .int16 = true,
                                       .vulkan_memory_model = true,
                                       .subgroup_size_control = true,
                                       .subgroup_sizes_in_compute = true,
                                       .full_subgroups = true,
                                       .host_import_alignment = device->host_import ? 4096 : 0};
    memset(&facts, 0, sizeof facts);
    info->vendor_id = device->vendor;
    info->device_id = device->device;
    info->driver_version = device->version;
    info->type = device->type;
    info->subgroup_size = info->subgroup_size_max = device->subgroup_max;
    info->subgroup_size_min = device->subgroup_min;
    info->external_memory_host = device->host_import;
    /* Processors whose vectors have only 4 floats are so old that they have no instructions for
     * f16. */
    info->fp16 = device->subgroup_min != 4;
    info->storage16 = info->storage8 = info->int64 = true;
    info->coopmat = device->columns > 0;
    info->coopmat_count = info->coopmat ? 1 : 0;
    facts.coopmats[0] = (tsr_coopmat_shape){.m = device->columns,
                                            .n = device->columns,
                                            .k = 16,
                                            .a = "f16",
                                            .b = "f16",
                                            .c = "f32",
                                            .result = "f32",
                                            .subgroup_scope = true};
}

static void list_names(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < facts.known_fault_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i == 0 ? "" : " ",
                                 facts.known_faults[i].name);
}

static bool has(const char *name)
{
    for (int i = 0; i < facts.known_fault_count; i++)
        if (strcmp(facts.known_faults[i].name, name) == 0)
            return true;
    return false;
}

START_TEST(devices_have_their_faults_and_no_others)
{
    const invented *device = &devices[_i];
    char names[256];
    make(device);
    tsr__known_faults_apply(&capabilities, &facts);
    list_names(names, sizeof names);
    ck_assert_msg(strcmp(names, device->faults) == 0, "device %d has \"%s\", not \"%s\"", _i, names,
                  device->faults);
}
END_TEST

START_TEST(each_effect_changes_what_it_says_and_nothing_else)
{
    const invented *device = &devices[_i];
    make(device);
    tsr__known_faults_apply(&capabilities, &facts);
    tsr__coopmat_choose(&capabilities, info);
    const bool query = has("amd-coopmat-query"), subgroups = has("moltenvk-amd-subgroups"),
               faulty = has("amd-emulated-coopmat") || has("anv-emulated-coopmat") ||
                        has("intel-windows-slow-coopmat") || has("intel-windows-g31-coopmat"),
               import = has("moltenvk-host-import"),
               short_work = has("amd-apu-timeout") || has("amd-gcn-timeout");
    ck_assert_int_eq(info->coopmat_used >= 0, device->columns > 0 && !query && !faulty);
    ck_assert_int_eq(info->coopmat, device->columns > 0 && !query);
    ck_assert_uint_eq(info->subgroup_size, subgroups ? 32 : device->subgroup_max);
    ck_assert_uint_eq(info->subgroup_size_min, subgroups ? 32 : device->subgroup_min);
    ck_assert_uint_eq(info->subgroup_size_max, subgroups ? 32 : device->subgroup_max);
    ck_assert_int_eq(capabilities.full_subgroups, !subgroups);
    ck_assert_int_eq(info->external_memory_host, device->host_import && !import);
    ck_assert_int_eq(capabilities.host_import_alignment > 0, device->host_import && !import);
    ck_assert_int_eq(capabilities.short_work, short_work);
    ck_assert_int_eq(info->storage16, !has("lavapipe-halves"));
    ck_assert_int_eq(capabilities.no_halves, has("lavapipe-halves"));
}
END_TEST

/* The library calls tsr__known_faults_demand before it asks the driver for its list of shapes of
 * matrices, so the list is still empty here. */
START_TEST(a_fault_forbids_the_query_before_it_is_made)
{
    const invented *device = &devices[_i];
    make(device);
    info->coopmat_count = 0;
    ck_assert_int_eq(tsr__known_faults_demand(&capabilities, info, TSR__FAULT_NO_COOPMAT_QUERY),
                     strstr(device->faults, "amd-coopmat-query") != NULL);
}
END_TEST

START_TEST(lines_are_complete)
{
    const tsr__known_fault *fault;
    for (int i = 0; (fault = tsr__known_fault_at(i)) != NULL; i++) {
        ck_assert_uint_gt(strlen(fault->name), 0);
        ck_assert_uint_gt(strlen(fault->description), 0);
        ck_assert_msg(strchr(fault->source, '/') && strchr(fault->source, '#'),
                      "%s: \"%s\" names no report", fault->name, fault->source);
        ck_assert_msg(fault->drivers[0] != 0, "%s has no driver", fault->name);
        ck_assert(fault->last_device == 0 || fault->first_device <= fault->last_device);
        ck_assert(fault->last_version == 0 || fault->first_version <= fault->last_version);
        /* Checks that each fault of the table applies to an invented device. */
        bool used = false;
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
            used = used || strstr(devices[d].faults, fault->name) != NULL;
        ck_assert_msg(used, "no device of this test has %s", fault->name);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(fault->name, tsr__known_fault_at(j)->name);
    }
    ck_assert_ptr_null(tsr__known_fault_at(-1));
}
END_TEST

/* Tests the first and the last version and device of each fault's ranges, and those just
 * outside. A fault applies only to its vendor and drivers. */
START_TEST(ranges_are_inclusive)
{
    const tsr__known_fault *fault;
    for (int i = 0; (fault = tsr__known_fault_at(i)) != NULL; i++) {
        tsr__known_fault line = *fault;
        line.condition = NULL;
        capabilities = (tsr__capabilities){.driver = line.drivers[0]};
        memset(&facts, 0, sizeof facts);
        info->vendor_id = line.vendor_id;
        info->device_id = line.first_device;
        info->driver_version = line.first_version;
        ck_assert(tsr__known_fault_matches(&line, &capabilities, info));
        if (line.first_version > 0) {
            info->driver_version = line.first_version - 1;
            ck_assert(!tsr__known_fault_matches(&line, &capabilities, info));
        }
        info->driver_version = line.last_version > 0 ? line.last_version : UINT32_MAX;
        ck_assert(tsr__known_fault_matches(&line, &capabilities, info));
        if (line.last_version > 0) {
            info->driver_version = line.last_version + 1;
            ck_assert(!tsr__known_fault_matches(&line, &capabilities, info));
            info->driver_version = line.last_version;
        }
        info->device_id = line.last_device > 0 ? line.last_device : UINT32_MAX;
        ck_assert(tsr__known_fault_matches(&line, &capabilities, info));
        info->vendor_id++;
        ck_assert_int_eq(tsr__known_fault_matches(&line, &capabilities, info), line.vendor_id == 0);
        info->vendor_id--;
        capabilities.driver = VK_DRIVER_ID_GOOGLE_SWIFTSHADER;
        ck_assert(!tsr__known_fault_matches(&line, &capabilities, info));
    }
}
END_TEST

START_TEST(ignored_on_demand)
{
    setenv("TESSERA_KNOWN_FAULTS", "0", 1);
    make(&devices[0]);
    tsr__known_faults_apply(&capabilities, &facts);
    tsr__coopmat_choose(&capabilities, info);
    ck_assert_int_eq(facts.known_fault_count, 0);
    ck_assert_int_eq(info->coopmat_used, 0);
    setenv("TESSERA_KNOWN_FAULTS", "1", 1);
    make(&devices[0]);
    tsr__known_faults_apply(&capabilities, &facts);
    ck_assert_int_eq(facts.known_fault_count, 1);
    ck_assert_str_eq(facts.known_faults[0].effect, "cooperative matrices are not used");
    ck_assert_str_eq(facts.known_faults[0].source, "ggml-org/llama.cpp#11074");
}
END_TEST

TESTS(known_faults)
{
    const int count = (int)(sizeof devices / sizeof *devices);
    tcase_add_loop_test(tests, devices_have_their_faults_and_no_others, 0, count);
    tcase_add_loop_test(tests, each_effect_changes_what_it_says_and_nothing_else, 0, count);
    tcase_add_loop_test(tests, a_fault_forbids_the_query_before_it_is_made, 0, count);
    tcase_add_test(tests, lines_are_complete);
    tcase_add_test(tests, ranges_are_inclusive);
    tcase_add_test(tests, ignored_on_demand);
}
