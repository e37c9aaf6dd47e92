/* Listing and opening devices. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "base/fork.h"
#include "base/instruction_sets.h"
#include "base/struct_size.h"
#include "gpu/device/device.h"
#include "gpu/device/probe.h"
#include "gpu/device/select.h"
#include "gpu/device/vendors.h"
#include "tsr_config.h"

/* Listing -------------------------------------------------------------------------------------- */

/* A listing, and what else is known of its devices. The public part is the first member. */
typedef struct listing {
    tsr_device_list list;
    const tsr_device_info **infos; /* list.devices */
    tsr__device_facts *facts;
    tsr__capabilities *capabilities;
} listing;

static void listing_destroy(listing *listed)
{
    if (!listed)
        return;
    tsr__free(listed->infos);
    tsr__free(listed->facts);
    tsr__free(listed->capabilities);
    tsr__free(listed);
}

static tsr_status listing_fill(const tsr__instance *instance, uint32_t count,
                               const VkPhysicalDevice *physical, listing *out)
{
    out->infos = tsr__calloc(count, sizeof *out->infos);
    out->facts = tsr__calloc(count, sizeof *out->facts);
    out->capabilities = tsr__calloc(count, sizeof *out->capabilities);
    if (!out->infos || !out->facts || !out->capabilities)
        return TSR_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        TSR__TRY(tsr__probe(instance, physical[i], (int)i, &out->facts[i], &out->capabilities[i]));
        out->infos[i] = &out->facts[i].info;
    }
    out->list = (tsr_device_list){(int)count, out->infos};
    return TSR_OK;
}

static tsr_status listing_create(const tsr__instance *instance, listing **out)
{
    uint32_t count = 0;
    VkPhysicalDevice *physical = NULL;
    listing *listed = tsr__calloc(1, sizeof *listed);
    if (!listed)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = instance ? tsr__probe_enumerate(instance, &count, &physical) : TSR_OK;
    if (status == TSR_OK && instance)
        status = listing_fill(instance, count, physical, listed);
    tsr__free(physical);
    if (status != TSR_OK) {
        listing_destroy(listed);
        return status;
    }
    *out = listed;
    return TSR_OK;
}

tsr_status tsr_device_list_create(tsr_device_list **out)
{
    TSR__REQUIRE(out != NULL, "device_list_create: out is NULL");
    tsr__instance *instance = NULL;
    tsr_status status = tsr__instance_acquire(&instance);
    /* If there is a Vulkan loader but no driver, the list is empty; this is not an error. */
    const bool no_driver = status == TSR_ERR_NOT_FOUND && !tsr__validation_wanted();
    if (!no_driver)
        TSR__TRY(status);
    listing *listed;
    status = listing_create(no_driver ? NULL : instance, &listed);
    if (!no_driver)
        tsr__instance_release(instance);
    TSR__TRY(status);
    *out = &listed->list;
    return TSR_OK;
}

void tsr_device_list_destroy(tsr_device_list **list)
{
    if (!list)
        return;
    listing_destroy((listing *)*list);
    *list = NULL;
}

/* Opening -------------------------------------------------------------------------------------- */

typedef struct device_request {
    const char *extensions[12];
    uint32_t extension_count;
    VkPhysicalDeviceFeatures2 features;
    VkPhysicalDeviceVulkan11Features vulkan11;
    VkPhysicalDeviceVulkan12Features vulkan12;
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT subgroup_size;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR coopmat;
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bf16;
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV coopmat2;
    VkPhysicalDeviceMaintenance4FeaturesKHR maintenance4;
    VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE dot_products;
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR int8_dot;
} device_request;

static void request_extension(device_request *request, const char *name, void *features)
{
    request->extensions[request->extension_count++] = name;
    if (features) {
        ((VkBaseOutStructure *)features)->pNext = request->features.pNext;
        request->features.pNext = features;
    }
}

/* Requests every feature that the library can use and that the device has. */
static void fill_request(const tsr_device_info *info, const tsr__capabilities *capabilities,
                         device_request *request)
{
    memset(request, 0, sizeof *request);
    request->vulkan12 = (VkPhysicalDeviceVulkan12Features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .bufferDeviceAddress = VK_TRUE,
        .timelineSemaphore = VK_TRUE,
        .shaderFloat16 = info->fp16,
        .shaderInt8 = info->int8,
        .storageBuffer8BitAccess = info->storage8,
        .vulkanMemoryModel = capabilities->vulkan_memory_model,
        .vulkanMemoryModelDeviceScope =
            /* requested with the memory model, because the shaders that use it have atomics of
             * device scope */
        capabilities->vulkan_memory_model,
    };
    request->vulkan11 = (VkPhysicalDeviceVulkan11Features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &request->vulkan12,
        .storageBuffer16BitAccess = info->storage16,
    };
    request->features = (VkPhysicalDeviceFeatures2){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &request->vulkan11,
        .features = {.shaderInt64 = info->int64, .shaderInt16 = capabilities->int16},
    };
    request->subgroup_size = (VkPhysicalDeviceSubgroupSizeControlFeaturesEXT){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
        .subgroupSizeControl = VK_TRUE,
        .computeFullSubgroups = capabilities->full_subgroups,
    };
    request->executables = (VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pipelineExecutableInfo = VK_TRUE,
    };
    request->coopmat = (VkPhysicalDeviceCooperativeMatrixFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .cooperativeMatrix = VK_TRUE,
    };
    request->bf16 = (VkPhysicalDeviceShaderBfloat16FeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR,
        .shaderBFloat16Type = VK_TRUE,
        .shaderBFloat16CooperativeMatrix = VK_TRUE,
    };
    request->coopmat2 = capabilities->coopmat2_features;
    request->maintenance4 = (VkPhysicalDeviceMaintenance4FeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES_KHR,
        .maintenance4 = VK_TRUE,
    };
    request->dot_products = (VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_MIXED_FLOAT_DOT_PRODUCT_FEATURES_VALVE,
        .shaderMixedFloatDotProductFloat16AccFloat32 = VK_TRUE,
    };
    request->int8_dot = (VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR,
        .shaderIntegerDotProduct = VK_TRUE,
    };
    if (capabilities->subgroup_size_control)
        request_extension(request, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME,
                          &request->subgroup_size);
    if (info->pipeline_statistics)
        request_extension(request, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME,
                          &request->executables);
    if (info->coopmat)
        request_extension(request, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, &request->coopmat);
    if (info->coopmat_bf16)
        request_extension(request, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME, &request->bf16);
    if (capabilities->coopmat2_features.cooperativeMatrixFlexibleDimensions) {
        request_extension(request, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME, &request->coopmat2);
        request_extension(request, VK_KHR_MAINTENANCE_4_EXTENSION_NAME, &request->maintenance4);
    }
    if (capabilities->dot2)
        request_extension(request, VK_VALVE_SHADER_MIXED_FLOAT_DOT_PRODUCT_EXTENSION_NAME,
                          &request->dot_products);
    if (capabilities->int8_dot)
        request_extension(request, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME,
                          &request->int8_dot);
    if (info->external_memory_host)
        request_extension(request, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME, NULL);
    if (info->memory_budget)
        request_extension(request, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, NULL);
}

static tsr_status create_handle(tsr_device *device, const tsr__capabilities *capabilities)
{
    device_request request;
    fill_request(&device->info, capabilities, &request);
    const bool transfers = capabilities->transfer_family != UINT32_MAX;
    float priority = 1.0F;
    VkDeviceQueueCreateInfo queues[2];
    for (int i = 0; i < 2; i++)
        queues[i] = (VkDeviceQueueCreateInfo){
            .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
            .queueFamilyIndex = i == 0 ? capabilities->queue_family : capabilities->transfer_family,
            .queueCount = 1,
            .pQueuePriorities = &priority,
        };
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = &request.features,
        .queueCreateInfoCount = transfers ? 2 : 1,
        .pQueueCreateInfos = queues,
        .enabledExtensionCount = request.extension_count,
        .ppEnabledExtensionNames = request.extensions,
    };
    VkResult result = TSR__VK(&device->instance->vk, CreateDevice, device->physical, &info, NULL,
                              &device->handle);
    if (result < 0) {
        device->handle = VK_NULL_HANDLE;
        return tsr__device_fail(device, result, "vkCreateDevice");
    }
    tsr_status status = tsr__vk_load_device(&device->instance->vk, device->handle, &device->vk);
    if (status != TSR_OK) {
        if (device->vk.DestroyDevice)
            device->vk.DestroyDevice(device->handle, NULL);
        device->handle = VK_NULL_HANDLE;
        return status;
    }
    const VkPipelineStageFlags both =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    device->compute =
        (tsr__queue){.family = capabilities->queue_family,
                     .stages = both,
                     .reads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT,
                     .writes = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    if (device->cpu) { /* the only kernels that count workgroups (tsr__dispatch.counted) */
        device->compute.stages |= VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT;
        device->compute.reads |= VK_ACCESS_INDIRECT_COMMAND_READ_BIT;
    }
    device->transfer = (tsr__queue){.family = capabilities->transfer_family,
                                    .stages = VK_PIPELINE_STAGE_TRANSFER_BIT,
                                    .reads = VK_ACCESS_TRANSFER_READ_BIT,
                                    .writes = VK_ACCESS_TRANSFER_WRITE_BIT};
    device->vk.GetDeviceQueue(device->handle, device->compute.family, 0, &device->compute.handle);
    if (transfers)
        device->vk.GetDeviceQueue(device->handle, device->transfer.family, 0,
                                  &device->transfer.handle);
    return TSR_OK;
}

/* Returns the value of long_code, see device.h. If the system does not tell the size of the cache,
 * it counts as too small. */
static bool keeps_long_code(void)
{
#ifdef _SC_LEVEL1_ICACHE_SIZE
    const long cache_bytes = sysconf(_SC_LEVEL1_ICACHE_SIZE);
#else
    const long cache_bytes = 0; /* the system does not tell it */
#endif
    const long enough_bytes = 65536;

    return cache_bytes >= enough_bytes &&
           tsr__instruction_set_is_supported(TSR__INSTRUCTIONS_AVX512);
}

static tsr__device_class class_of(const tsr_device_info *info,
                                  const tsr__capabilities *capabilities)
{
    if (capabilities->driver == VK_DRIVER_ID_MESA_LLVMPIPE)
        return TSR__CLASS_LAVAPIPE;
    return info->type == TSR_DEVICE_CPU ? TSR__CLASS_CPU : TSR__CLASS_GPU;
}

#if TSR__HAVE_CPU_KERNELS
extern const struct tsr__cpu_kernels tsr__cpu_kernels_table; /* cpu_drivers/table.c */
#endif

void tsr__device_treat_as(tsr_device *device, tsr__device_class device_class)
{
    device->traits = tsr__traits_of(device_class);
    device->cpu = NULL;
#if TSR__HAVE_CPU_KERNELS
    if (device_class != TSR__CLASS_GPU)
        device->cpu = &tsr__cpu_kernels_table;
#endif
}

/* True if the driver keeps infinities and NaNs of f32 without being asked to. MoltenVK's compiler
 * assumes that there are none, whoever made the GPU. */
static bool keeps_infinities(VkDriverId driver, uint32_t vendor)
{
    return driver != VK_DRIVER_ID_MOLTENVK &&
           (vendor == TSR__VENDOR_NVIDIA || vendor == TSR__VENDOR_AMD ||
            vendor == TSR__VENDOR_INTEL);
}

/* Metal has had fences among workgroups since version 3.2. Without them, MoltenVK ignores that a
 * barrier has device scope and that memory is coherent (KhronosGroup/MoltenVK#2497). */
static bool isolates_workgroups(VkDriverId driver)
{
    return driver == VK_DRIVER_ID_MOLTENVK;
}

static double work_limit_of(const tsr_device_info *info, const tsr__capabilities *capabilities)
{
    if (info->type == TSR_DEVICE_CPU)
        return (double)INFINITY;
    return capabilities->short_work ? TSR__SHORT_WORK_LIMIT : TSR__GPU_WORK_LIMIT;
}

/* The sizes of a chunk of a staging ring. If a device has memory of its own, large chunks let the
 * host fill staging memory tens of megabytes ahead of what the bus has transferred. Other devices
 * rarely need staging, so their chunks are small enough to share a slab (slabs.h) with other
 * buffers. */
/* A wait of this length costs less than what polling saves, see timeline.c. */
#define POLL_NS 100000
#define OWN_MEMORY_CHUNK_BYTES (UINT64_C(16) << 20)
#define SHARED_MEMORY_CHUNK_BYTES (UINT64_C(3) << 20)
#define LEAST_STAGING_BYTES (UINT64_C(256) << 10)
/* The size from which transfers use the transfer queue. A bus of 25 GB/s transfers it in about the
 * time that it takes to make one queue wait for another. */
#define LEAST_TRANSFER_BYTES (UINT64_C(256) << 10)

static uint64_t staging_chunk_bytes(const tsr_device_info *info, const tsr_device_params *params)
{
    if (params->staging_bytes != 0)
        return params->staging_bytes / TSR__STAGING_CHUNKS;
    return info->unified_memory || info->type == TSR_DEVICE_CPU ? SHARED_MEMORY_CHUNK_BYTES
                                                                : OWN_MEMORY_CHUNK_BYTES;
}

/* Takes over the caller's reference to `instance`, even if it fails. */
static tsr_status open_chosen(tsr__instance *instance, const tsr__device_facts *facts,
                              const tsr__capabilities *capabilities,
                              const tsr_device_params *params, tsr_device **out)
{
    tsr_device *device = tsr__calloc(1, sizeof *device);
    if (!device) {
        tsr__instance_release(instance);
        return TSR_ERR_NO_MEMORY;
    }
    device->instance = instance;
    device->physical = capabilities->physical;
    device->facts = *facts;
    tsr__facts_connect(&device->facts);
    const tsr_device_info *info = &device->info;
    const tsr__device_class device_class = class_of(info, capabilities);
    tsr__device_treat_as(device, device_class);
    device->host_copies = device_class != TSR__CLASS_GPU;
    device->long_code = device_class == TSR__CLASS_LAVAPIPE && keeps_long_code();
    device->timestamp_bits = capabilities->timestamp_bits;
    device->poll_ns = device_class == TSR__CLASS_GPU ? POLL_NS : 0;
    device->max_workgroup_subgroups = capabilities->max_workgroup_subgroups;
    device->max_allocations = capabilities->max_allocations;
    device->work_limit = work_limit_of(info, capabilities);
    device->memory_properties = capabilities->memory;
    device->memory_limit_bytes = params->memory_limit_bytes;
    device->wants_mapping = info->unified_memory && !params->force_staging;
    device->wants_direct_uploads = info->direct_uploads && !params->force_staging;
    device->staging_chunk_bytes = staging_chunk_bytes(info, params);
    device->transfer_least_bytes = LEAST_TRANSFER_BYTES;
    device->host_import_alignment = capabilities->host_import_alignment;
    device->subgroup_votes = capabilities->subgroup_votes;
    device->subgroup_quads = capabilities->subgroup_quads;
    device->subgroup_sums = capabilities->subgroup_sums;
    device->dot2 = capabilities->dot2;
    device->int8_dot = capabilities->int8_dot;
    device->coopmat2 = capabilities->coopmat2;
    device->subnormals = capabilities->no_halves          ? TSR__SUBNORMALS_BY_CODE
                         : device_class != TSR__CLASS_GPU ? TSR__SUBNORMALS_KEPT
                         : capabilities->f16_subnormals   ? TSR__SUBNORMALS_BY_MODE
                                                          : TSR__SUBNORMALS_BY_CODE;
    device->infinities_by_mode = capabilities->f32_infinities && device_class == TSR__CLASS_GPU &&
                                 !keeps_infinities(capabilities->driver, info->vendor_id);
    device->isolates_workgroups = isolates_workgroups(capabilities->driver);
    device->nvk = capabilities->driver == VK_DRIVER_ID_MESA_NVK;
    device->subgroups_demanded = tsr__probe_subgroups(capabilities, info);
    device->storage = params->force_packed_storage ? TSR__STORAGE_W32 : tsr__storage_of(info);
    device->disk_cache = !params->cache_in_memory;
    atomic_init(&device->references, 1);
    atomic_init(&device->lost, false);
    pthread_mutex_init(&device->queue_lock, NULL);
    tsr__attachments_init(&device->attachments);

    tsr_status status = tsr__fork_generation(&device->generation);
    if (status == TSR_OK)
        status = create_handle(device, capabilities);
    if (status != TSR_OK) {
        tsr__device_release(device);
        return status;
    }
    *out = device;
    return TSR_OK;
}

static tsr_status open_wanted(const tsr_device_params *params, bool compile_only, tsr_device **out)
{
    static const tsr_device_params defaults = {.struct_size = sizeof defaults};
    TSR__REQUIRE(out != NULL, "device_open: out is NULL");
    if (!params)
        params = &defaults;
    TSR__REQUIRE(params->staging_bytes == 0 || params->staging_bytes >= LEAST_STAGING_BYTES,
                 "device_open: staging_bytes is %llu; it must be 0 or at least %llu",
                 (unsigned long long)params->staging_bytes,
                 (unsigned long long)LEAST_STAGING_BYTES);
    const char *wanted = params->device ? params->device : tsr__env_text("TESSERA_DEVICE");

    tsr__instance *instance;
    TSR__TRY(tsr__instance_acquire(&instance));
    listing *listed;
    tsr_status status = listing_create(instance, &listed);
    if (status != TSR_OK) {
        tsr__instance_release(instance);
        return status;
    }
    const int count = listed->list.count;
    for (int i = 0; compile_only && i < count; i++)
        listed->facts[i].info.usable = true;
    int chosen = -1;
    status = tsr__select_device(listed->list.devices, count, wanted, &chosen);
    if (status == TSR_OK)
        status = open_chosen(instance, &listed->facts[chosen], &listed->capabilities[chosen],
                             params, out);
    else
        tsr__instance_release(instance);
    listing_destroy(listed);
    return status;
}

tsr_status tsr_device_open(const tsr_device_params *params, tsr_device **out)
{
    double slowdown;
    tsr_device *device;

    if (tsr__device_self_tests_table.check_mode() != TSR_OK || tsr__slowdown(&slowdown) != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "device_open");
    TSR__REQUIRE(out != NULL, "device_open: out is NULL");
    TSR__TAKE(tsr_device_params, params);
    TSR__TRY(open_wanted(params, false, &device));
    tsr__device_self_tests_table.start(device);
    *out = device;
    return TSR_OK;
}

tsr_status tsr__device_open_to_compile(const tsr_device_params *params, tsr_device **out)
{
    return open_wanted(params, true, out);
}
