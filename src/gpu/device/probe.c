#include "gpu/device/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/environment.h"
#include "gpu/device/coopmat.h"
#include "gpu/device/known_faults.h"
#include "gpu/device/transfer_queue.h"
#include "tsr_config.h"

tsr_status tsr__probe_enumerate(const tsr__instance *instance, uint32_t *out_count,
                                VkPhysicalDevice **out)
{
    uint32_t count = 0;
    VkResult result =
        TSR__VK(&instance->vk, EnumeratePhysicalDevices, instance->handle, &count, NULL);
    if (result < 0)
        return tsr__vk_fail(result, "vkEnumeratePhysicalDevices");
    VkPhysicalDevice *devices = tsr__calloc(count, sizeof *devices);
    if (!devices)
        return TSR_ERR_NO_MEMORY;
    result = TSR__VK(&instance->vk, EnumeratePhysicalDevices, instance->handle, &count, devices);
    if (result < 0) {
        tsr__free(devices);
        return tsr__vk_fail(result, "vkEnumeratePhysicalDevices");
    }
    *out_count = count;
    *out = devices;
    return TSR_OK;
}

static const char *vendor_of(uint32_t id)
{
    switch (id) {
    case 0x1002:
        return "AMD";
    case 0x10de:
        return "NVIDIA";
    case 0x8086:
        return "Intel";
    case 0x106b:
        return "Apple";
    case 0x13b5:
        return "Arm";
    case 0x14e4:
        return "Broadcom";
    case 0x1010:
        return "Imagination";
    case 0x1ae0:
        return "Google";
    case 0x5143:
        return "Qualcomm";
    case VK_VENDOR_ID_MESA:
        return "Mesa";
    default:
        return "?";
    }
}

static tsr_device_type type_of(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return TSR_DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return TSR_DEVICE_DISCRETE;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return TSR_DEVICE_VIRTUAL;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return TSR_DEVICE_CPU;
    default:
        return TSR_DEVICE_OTHER;
    }
}

static void copy_text(char out[TSR__NAME_SIZE], const char *text)
{
    snprintf(out, TSR__NAME_SIZE, "%s", text);
}

static void format_uuid(tsr__device_facts *facts)
{
    char *text = facts->uuid_text;
    for (int i = 0; i < TSR_UUID_SIZE; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *text++ = '-';
        text += snprintf(text, 3, "%02x", (unsigned)facts->info.uuid[i]);
    }
}

/* The list of extensions that a device has. */
typedef struct extension_set {
    uint32_t count;
    VkExtensionProperties *list;
} extension_set;

static tsr_status list_extensions(const tsr__instance *instance, VkPhysicalDevice physical,
                                  extension_set *out)
{
    uint32_t count = 0;
    VkResult result =
        TSR__VK(&instance->vk, EnumerateDeviceExtensionProperties, physical, NULL, &count, NULL);
    if (result < 0)
        return tsr__vk_fail(result, "vkEnumerateDeviceExtensionProperties");
    VkExtensionProperties *list = tsr__calloc(count, sizeof *list);
    if (!list)
        return TSR_ERR_NO_MEMORY;
    result =
        TSR__VK(&instance->vk, EnumerateDeviceExtensionProperties, physical, NULL, &count, list);
    if (result < 0) {
        tsr__free(list);
        return tsr__vk_fail(result, "vkEnumerateDeviceExtensionProperties");
    }
    *out = (extension_set){count, list};
    return TSR_OK;
}

static bool has_extension(const extension_set *set, const char *name)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (strcmp(set->list[i].extensionName, name) == 0)
            return true;
    return false;
}

/* True if the driver allocates more memory than the heap size that it reports. lavapipe of Mesa 22
 * always reports 2 GiB; later versions report the machine's memory. */
static bool claims_too_little(const tsr_device_info *info)
{
    return strcmp(info->driver_name, "llvmpipe") == 0 && !info->memory_budget;
}

/* Returns the size of the operating system's memory pages: 4 KiB on most processors, up to 64 KiB
 * on arm64. */
static uint64_t page_bytes(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (uint64_t)bytes : 4096;
}

/* Returns the bytes of memory of this machine, or 0 if the system does not say. */
static uint64_t machine_memory(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    return pages > 0 ? (uint64_t)pages * page_bytes() : 0;
}

void tsr__probe_budget(const tsr__instance *instance, VkPhysicalDevice physical,
                       const tsr_device_info *info, tsr_heap_info *heaps)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
    };
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = info->memory_budget ? &budget : NULL,
    };
    const uint64_t least = claims_too_little(info) ? machine_memory() : 0;
    instance->vk.GetPhysicalDeviceMemoryProperties2(physical, &memory);
    for (int i = 0; i < info->heap_count; i++) {
        heaps[i].budget_bytes =
            info->memory_budget ? budget.heapBudget[i] : tsr__max_u64(heaps[i].size_bytes, least);
        heaps[i].usage_bytes = info->memory_budget ? budget.heapUsage[i] : 0;
    }
}

static void probe_memory(const tsr__instance *instance, tsr__device_facts *facts,
                         tsr__capabilities *capabilities)
{
    tsr_device_info *info = &facts->info;
    VkPhysicalDeviceMemoryProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
    };
    instance->vk.GetPhysicalDeviceMemoryProperties2(capabilities->physical, &properties);
    const VkPhysicalDeviceMemoryProperties *memory = &properties.memoryProperties;
    capabilities->memory = *memory;

    info->heap_count = (int)memory->memoryHeapCount;
    for (uint32_t i = 0; i < memory->memoryHeapCount; i++) {
        facts->heaps[i].size_bytes = memory->memoryHeaps[i].size;
        facts->heaps[i].device_local =
            (memory->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
    }
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++)
        if (memory->memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
            facts->heaps[memory->memoryTypes[i].heapIndex].host_visible = true;
    info->memory_budget = capabilities->memory_budget;
    tsr__probe_budget(instance, capabilities->physical, info, facts->heaps);

    info->unified_memory = false;
    for (int i = 0; i < info->heap_count; i++) {
        if (!facts->heaps[i].device_local)
            continue;
        if (!facts->heaps[i].host_visible) {
            info->unified_memory = false;
            break;
        }
        info->unified_memory = true;
    }
    /* A discrete GPU's memory is not unified, even if all of it can be mapped (resizable BAR),
     * because the host accesses it over the bus. */
    if (info->type == TSR_DEVICE_DISCRETE)
        info->unified_memory = false;
    info->direct_uploads = !info->unified_memory && info->type != TSR_DEVICE_CPU &&
                           tsr__transfer_direct_type(memory, UINT32_MAX) != UINT32_MAX;
}

static bool transfer_queue_wanted(void)
{
    const char *value = tsr__env_text("TESSERA_TRANSFER_QUEUE");
    return !value || strcmp(value, "0") != 0;
}

static void probe_queues(const tsr__instance *instance, tsr__device_facts *facts,
                         tsr__capabilities *capabilities)
{
    VkQueueFamilyProperties2 families[TSR__MAX_QUEUE_FAMILIES] = {0};
    uint32_t count = TSR__MAX_QUEUE_FAMILIES;
    for (uint32_t i = 0; i < count; i++)
        families[i].sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2;
    instance->vk.GetPhysicalDeviceQueueFamilyProperties2(capabilities->physical, &count, families);

    facts->queue_family_count = (int)count;
    capabilities->queue_family = UINT32_MAX;
    bool chosen_has_graphics = true;
    for (uint32_t i = 0; i < count; i++) {
        const VkQueueFamilyProperties *family = &families[i].queueFamilyProperties;
        bool graphics = (family->queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0;
        bool compute = (family->queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
        facts->queue_families[i] = (tsr__queue_family_info){
            .count = family->queueCount,
            .graphics = graphics,
            .compute = compute,
            .transfer = (family->queueFlags & VK_QUEUE_TRANSFER_BIT) != 0 || graphics || compute,
            .timestamp_bits = family->timestampValidBits,
        };
        /* Prefer a family for compute only, so that the library does not compete with the desktop's
         * graphics. */
        if (compute && family->queueCount > 0 &&
            (capabilities->queue_family == UINT32_MAX || (chosen_has_graphics && !graphics))) {
            capabilities->queue_family = i;
            capabilities->timestamp_bits = family->timestampValidBits;
            chosen_has_graphics = graphics;
        }
    }
    /* On CPU drivers copies and kernels run on the same processors, and gain nothing from a second
     * queue. */
    capabilities->transfer_family = UINT32_MAX;
    if (facts->info.type != TSR_DEVICE_CPU && capabilities->queue_family != UINT32_MAX &&
        transfer_queue_wanted())
        capabilities->transfer_family =
            tsr__transfer_family(families, count, capabilities->queue_family);
    facts->compute_queue_family = (int)capabilities->queue_family;
    facts->transfer_queue_family = (int)capabilities->transfer_family;
}

static void unusable(tsr__device_facts *facts, const char *reason)
{
    facts->info.usable = false;
    copy_text(facts->unusable_reason, reason);
}

static void probe_limits(const VkPhysicalDeviceProperties *properties, tsr_device_info *info)
{
    const VkPhysicalDeviceLimits *limits = &properties->limits;
    for (int i = 0; i < 3; i++) {
        info->max_workgroup_count[i] = limits->maxComputeWorkGroupCount[i];
        info->max_workgroup_size[i] = limits->maxComputeWorkGroupSize[i];
    }
    info->max_workgroup_invocations = limits->maxComputeWorkGroupInvocations;
    info->max_shared_memory_bytes = limits->maxComputeSharedMemorySize;
    info->max_push_constant_bytes = limits->maxPushConstantsSize;
    info->timestamp_period_ns = limits->timestampPeriod;
}

/* Appends a structure to a pNext chain. */
static void chain(void *structure, void **next)
{
    ((VkBaseOutStructure *)structure)->pNext = *next;
    *next = structure;
}

static tsr_status probe_features(const tsr__instance *instance, const extension_set *extensions,
                                 tsr__device_facts *facts, tsr__capabilities *capabilities)
{
    tsr_device_info *info = &facts->info;
    VkPhysicalDeviceVulkan12Features vulkan12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
    };
    VkPhysicalDeviceVulkan11Features vulkan11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
    };
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT subgroup_size = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
    };
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
    };
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR coopmat = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
    };
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bf16 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR,
    };
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV coopmat2 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV,
    };
    VkPhysicalDeviceMaintenance4FeaturesKHR maintenance4 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES_KHR,
    };
    VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE dot_products = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_MIXED_FLOAT_DOT_PRODUCT_FEATURES_VALVE,
    };
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR int8_dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR,
    };
    VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
    };
    chain(&vulkan12, &features.pNext);
    chain(&vulkan11, &features.pNext);
    if (has_extension(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
        chain(&subgroup_size, &features.pNext);
    if (has_extension(extensions, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME))
        chain(&executables, &features.pNext);
    if (has_extension(extensions, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME))
        chain(&coopmat, &features.pNext);
    if (has_extension(extensions, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME))
        chain(&bf16, &features.pNext);
    if (has_extension(extensions, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME))
        chain(&coopmat2, &features.pNext);
    if (has_extension(extensions, VK_KHR_MAINTENANCE_4_EXTENSION_NAME))
        chain(&maintenance4, &features.pNext);
    if (has_extension(extensions, VK_VALVE_SHADER_MIXED_FLOAT_DOT_PRODUCT_EXTENSION_NAME))
        chain(&dot_products, &features.pNext);
    if (has_extension(extensions, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME))
        chain(&int8_dot, &features.pNext);
    instance->vk.GetPhysicalDeviceFeatures2(capabilities->physical, &features);

    info->fp16 = vulkan12.shaderFloat16;
    info->int8 = vulkan12.shaderInt8;
    info->storage16 = vulkan11.storageBuffer16BitAccess;
    info->storage8 = vulkan12.storageBuffer8BitAccess;
    info->int64 = features.features.shaderInt64;
    info->external_memory_host =
        has_extension(extensions, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    info->pipeline_statistics = executables.pipelineExecutableInfo;
    info->coopmat = coopmat.cooperativeMatrix;
    info->coopmat_bf16 = coopmat.cooperativeMatrix && bf16.shaderBFloat16Type &&
                         bf16.shaderBFloat16CooperativeMatrix;
    /* The shaders for matrices shared by a workgroup are SPIR-V 1.6, where a workgroup size that is
     * a specialization constant requires maintenance4. */
    capabilities->coopmat2_features = coopmat2;
    capabilities->coopmat2_features.pNext = NULL;
    capabilities->has_coopmat2 =
        info->coopmat && coopmat2.cooperativeMatrixWorkgroupScope &&
        coopmat2.cooperativeMatrixFlexibleDimensions &&
        coopmat2.cooperativeMatrixPerElementOperations &&
        coopmat2.cooperativeMatrixTensorAddressing && maintenance4.maintenance4 &&
        info->api_version >= VK_API_VERSION_1_3 && instance->api_version >= VK_API_VERSION_1_3;
    capabilities->dot2 =
        dot_products.shaderMixedFloatDotProductFloat16AccFloat32 && vulkan12.shaderFloat16;
    info->int8_dot = info->int8_dot && int8_dot.shaderIntegerDotProduct;
    /* CPU drivers emulate the dot-product instruction. It counts as present there, so that tests
     * can run the kernels that use it. */
    capabilities->int8_dot =
        info->int8_dot || (info->type == TSR_DEVICE_CPU && int8_dot.shaderIntegerDotProduct);
    capabilities->int16 = features.features.shaderInt16;
    capabilities->vulkan_memory_model =
        vulkan12.vulkanMemoryModel && vulkan12.vulkanMemoryModelDeviceScope;
    capabilities->subgroup_size_control = subgroup_size.subgroupSizeControl;
    capabilities->full_subgroups = subgroup_size.computeFullSubgroups;
    capabilities->memory_budget = has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);

    if (!vulkan12.bufferDeviceAddress)
        unusable(facts, "it has no buffer device addresses");
    else if (!vulkan12.timelineSemaphore)
        unusable(facts, "it has no timeline semaphores");
    if (info->coopmat &&
        !tsr__known_faults_demand(capabilities, info, TSR__FAULT_NO_COOPMAT_QUERY)) {
        TSR__TRY(tsr__probe_coopmat(instance, capabilities->physical, facts));
        if (capabilities->coopmat2_features.cooperativeMatrixFlexibleDimensions)
            TSR__TRY(tsr__probe_coopmat2(instance, capabilities));
    }
    tsr__known_faults_apply(capabilities, facts);
    tsr__coopmat_choose(capabilities, info);
    return TSR_OK;
}

/* The number of processors that one of the vendors' extensions reports; 0: none of them does. */
static uint32_t count_processors(const tsr__instance *instance, const extension_set *extensions,
                                 VkPhysicalDevice physical)
{
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV,
    };
    VkPhysicalDeviceShaderCorePropertiesAMD amd = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD,
    };
    VkPhysicalDeviceShaderCoreProperties2AMD amd_active = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD,
    };
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
    };
    if (has_extension(extensions, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME))
        chain(&nvidia, &properties.pNext);
    if (has_extension(extensions, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME))
        chain(&amd, &properties.pNext);
    if (has_extension(extensions, VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME))
        chain(&amd_active, &properties.pNext);
    if (!properties.pNext)
        return 0;
    instance->vk.GetPhysicalDeviceProperties2(physical, &properties);
    if (nvidia.shaderSMCount > 0)
        return nvidia.shaderSMCount;
    if (amd_active.activeComputeUnitCount > 0)
        return amd_active.activeComputeUnitCount;
    return amd.shaderEngineCount * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray;
}

static void probe_properties(const tsr__instance *instance, const extension_set *extensions,
                             tsr__device_facts *facts, tsr__capabilities *capabilities)
{
    tsr_device_info *info = &facts->info;
    VkPhysicalDeviceVulkan12Properties vulkan12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
    };
    VkPhysicalDeviceVulkan11Properties vulkan11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
    };
    VkPhysicalDeviceSubgroupSizeControlPropertiesEXT subgroup_size = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT,
    };
    VkPhysicalDeviceShaderIntegerDotProductPropertiesKHR dot_products = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES_KHR,
    };
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host_memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT,
    };
    VkPhysicalDeviceMaintenance4PropertiesKHR maintenance4 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES_KHR,
    };
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
    };
    chain(&vulkan12, &properties.pNext);
    chain(&vulkan11, &properties.pNext);
    if (has_extension(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
        chain(&subgroup_size, &properties.pNext);
    if (has_extension(extensions, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME))
        chain(&dot_products, &properties.pNext);
    if (has_extension(extensions, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME))
        chain(&host_memory, &properties.pNext);
    if (has_extension(extensions, VK_KHR_MAINTENANCE_4_EXTENSION_NAME))
        chain(&maintenance4, &properties.pNext);
    instance->vk.GetPhysicalDeviceProperties2(capabilities->physical, &properties);

    info->processor_count = count_processors(instance, extensions, capabilities->physical);
    copy_text(facts->driver_name, vulkan12.driverName);
    copy_text(facts->driver_info, vulkan12.driverInfo);
    capabilities->driver = vulkan12.driverID;
    memcpy(info->uuid, vulkan11.deviceUUID, TSR_UUID_SIZE);
    info->max_allocation_bytes = vulkan11.maxMemoryAllocationSize;
    if (maintenance4.maxBufferSize != 0)
        info->max_allocation_bytes =
            tsr__min_u64(info->max_allocation_bytes, maintenance4.maxBufferSize);
    capabilities->max_allocations = properties.properties.limits.maxMemoryAllocationCount;
    capabilities->host_import_alignment = host_memory.minImportedHostPointerAlignment;
    /* Operating systems can import only whole pages of memory, but drivers report an alignment of 4
     * KiB even if pages are larger. */
    if (capabilities->host_import_alignment > 0)
        capabilities->host_import_alignment =
            tsr__max_u64(capabilities->host_import_alignment, page_bytes());
    info->subgroup_size = vulkan11.subgroupSize;
    bool sizes = subgroup_size.maxSubgroupSize != 0;
    info->subgroup_size_min = sizes ? subgroup_size.minSubgroupSize : vulkan11.subgroupSize;
    info->subgroup_size_max = sizes ? subgroup_size.maxSubgroupSize : vulkan11.subgroupSize;
    capabilities->f16_subnormals =
        vulkan12.shaderDenormPreserveFloat16 &&
        vulkan12.denormBehaviorIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
    capabilities->f32_infinities = vulkan12.shaderSignedZeroInfNanPreserveFloat32;
    capabilities->subgroup_votes =
        (vulkan11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_VOTE_BIT) != 0;
    capabilities->subgroup_quads =
        (vulkan11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_QUAD_BIT) != 0;
    capabilities->subgroup_sums =
        (vulkan11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) != 0;
    capabilities->max_workgroup_subgroups = subgroup_size.maxComputeWorkgroupSubgroups;
    capabilities->subgroup_sizes_in_compute =
        (subgroup_size.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    capabilities->mixed_dot_products =
        dot_products.integerDotProduct4x8BitPackedMixedSignednessAccelerated;
    info->int8_dot = dot_products.integerDotProduct4x8BitPackedSignedAccelerated;
}

static tsr_status probe_abilities(const tsr__instance *instance, tsr__device_facts *facts,
                                  tsr__capabilities *capabilities)
{
    extension_set extensions = {0};
    TSR__TRY(list_extensions(instance, capabilities->physical, &extensions));
    probe_properties(instance, &extensions, facts, capabilities);
    tsr_status status = probe_features(instance, &extensions, facts, capabilities);
    tsr__free(extensions.list);
    return status;
}

tsr_status tsr__probe(const tsr__instance *instance, VkPhysicalDevice physical, int index,
                      tsr__device_facts *facts, tsr__capabilities *capabilities)
{
    tsr_device_info *info = &facts->info;

    memset(facts, 0, sizeof *facts);
    tsr__facts_connect(facts);
    memset(capabilities, 0, sizeof *capabilities);
    capabilities->physical = physical;
    info->index = index;
    info->usable = true;
    info->coopmat_used = info->coopmat_bf16_used = -1;

    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
    };
    instance->vk.GetPhysicalDeviceProperties2(physical, &properties);
    const VkPhysicalDeviceProperties *basic = &properties.properties;
    copy_text(facts->name, basic->deviceName);
    info->vendor_id = basic->vendorID;
    info->device_id = basic->deviceID;
    info->vendor = vendor_of(basic->vendorID);
    info->api_version = basic->apiVersion;
    info->driver_version = basic->driverVersion;
    info->type = type_of(basic->deviceType);
    probe_limits(basic, info);
    probe_queues(instance, facts, capabilities);

    if (basic->apiVersion < VK_API_VERSION_1_2) {
        char reason[TSR__NAME_SIZE];
        snprintf(reason, sizeof reason, "it has Vulkan %u.%u; 1.2 is needed",
                 VK_API_VERSION_MAJOR(basic->apiVersion), VK_API_VERSION_MINOR(basic->apiVersion));
        unusable(facts, reason);
        probe_memory(instance, facts, capabilities);
        format_uuid(facts);
        return TSR_OK;
    }

    tsr_status status = probe_abilities(instance, facts, capabilities);
    if (status == TSR_ERR_NO_MEMORY)
        return status;
    if (status != TSR_OK) {
        /* If the driver of one device fails, the others stay in the list. */
        unusable(facts, tsr_last_error());
        tsr__log(TSR_LOG_WARNING, "device %d (%s) cannot be used: %s", index, info->name,
                 info->unusable_reason);
    }
    probe_memory(instance, facts, capabilities);
    format_uuid(facts);
    if (capabilities->queue_family == UINT32_MAX)
        unusable(facts, "it has no compute queue");
    else if (info->heap_count == 0)
        unusable(facts, "it has no memory");
    /* Treat timestamps as missing if their period is infinite, as on Mesa's null hardware. */
    if (capabilities->timestamp_bits == 0 || !isfinite(info->timestamp_period_ns))
        info->timestamp_period_ns = 0;
    return TSR_OK;
}
