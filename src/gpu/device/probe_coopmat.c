/* Finds out which cooperative matrices a physical device has. */
#include "gpu/device/probe.h"

static const char *component_name(VkComponentTypeKHR type)
{
    switch ((int)type) {
    case VK_COMPONENT_TYPE_FLOAT16_KHR:
        return "f16";
    case VK_COMPONENT_TYPE_FLOAT32_KHR:
        return "f32";
    case VK_COMPONENT_TYPE_FLOAT64_KHR:
        return "f64";
    case VK_COMPONENT_TYPE_SINT8_KHR:
        return "s8";
    case VK_COMPONENT_TYPE_SINT32_KHR:
        return "s32";
    case VK_COMPONENT_TYPE_UINT8_KHR:
        return "u8";
    case VK_COMPONENT_TYPE_UINT32_KHR:
        return "u32";
    case VK_COMPONENT_TYPE_BFLOAT16_KHR:
        return "bf16";
    default:
        return "?";
    }
}

tsr_status tsr__probe_coopmat(const tsr__instance *instance, VkPhysicalDevice physical,
                              tsr__device_facts *facts)
{
    tsr_device_info *info = &facts->info;

    if (!instance->vk.GetPhysicalDeviceCooperativeMatrixPropertiesKHR) {
        info->coopmat = info->coopmat_bf16 = false;
        return TSR_OK;
    }
    VkCooperativeMatrixPropertiesKHR shapes[TSR__MAX_COOPMAT_SHAPES] = {0};
    uint32_t count = TSR__MAX_COOPMAT_SHAPES;
    for (uint32_t i = 0; i < count; i++)
        shapes[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    VkResult result = TSR__VK(&instance->vk, GetPhysicalDeviceCooperativeMatrixPropertiesKHR,
                              physical, &count, shapes);
    if (result < 0)
        return tsr__vk_fail(result, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    if (result == VK_INCOMPLETE)
        tsr__log(TSR_LOG_WARNING,
                 "%s: only the first %d shapes of cooperative matrices are known, it has more",
                 facts->name, TSR__MAX_COOPMAT_SHAPES);
    info->coopmat_count = (int)count;
    for (uint32_t i = 0; i < count; i++)
        facts->coopmats[i] = (tsr_coopmat_shape){
            .m = shapes[i].MSize,
            .n = shapes[i].NSize,
            .k = shapes[i].KSize,
            .a = component_name(shapes[i].AType),
            .b = component_name(shapes[i].BType),
            .c = component_name(shapes[i].CType),
            .result = component_name(shapes[i].ResultType),
            .saturating = shapes[i].saturatingAccumulation != VK_FALSE,
            .subgroup_scope = shapes[i].scope == VK_SCOPE_SUBGROUP_KHR,
        };
    return TSR_OK;
}

static void note_units(tsr__coopmat2 *out,
                       const VkCooperativeMatrixFlexibleDimensionsPropertiesNV *p)
{
    tsr__coopmat2_units *units = (int)p->AType == VK_COMPONENT_TYPE_FLOAT16_KHR    ? out->f16
                                 : (int)p->AType == VK_COMPONENT_TYPE_BFLOAT16_KHR ? out->bf16
                                                                                   : NULL;

    if (!units || p->BType != p->AType || p->CType != VK_COMPONENT_TYPE_FLOAT32_KHR ||
        p->ResultType != p->CType || p->saturatingAccumulation ||
        p->scope != VK_SCOPE_WORKGROUP_KHR)
        return;
    for (int i = 0; i < TSR__COOPMAT2_GROUPS; i++)
        if (p->workgroupInvocations == 32U << i)
            units[i] = (tsr__coopmat2_units){p->MGranularity, p->NGranularity, p->KGranularity};
}

tsr_status tsr__probe_coopmat2(const tsr__instance *instance, tsr__capabilities *capabilities)
{
    enum { MOST = 512 };
    if (!instance->vk.GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV) {
        capabilities->has_coopmat2 = false;
        capabilities->coopmat2_features.cooperativeMatrixFlexibleDimensions = VK_FALSE;
        return TSR_OK;
    }
    VkPhysicalDeviceCooperativeMatrix2PropertiesNV limits = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_PROPERTIES_NV,
    };
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
        .pNext = &limits,
    };
    instance->vk.GetPhysicalDeviceProperties2(capabilities->physical, &properties);
    VkCooperativeMatrixFlexibleDimensionsPropertiesNV list[MOST] = {0};
    uint32_t count = MOST;
    for (uint32_t i = 0; i < count; i++)
        list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_FLEXIBLE_DIMENSIONS_PROPERTIES_NV;
    VkResult result =
        TSR__VK(&instance->vk, GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV,
                capabilities->physical, &count, list);
    if (result < 0)
        return tsr__vk_fail(result,
                            "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV");
    if (result == VK_INCOMPLETE)
        tsr__log(TSR_LOG_WARNING,
                 "only the first %d kinds of matrices of any size are known, a device has more",
                 MOST);
    tsr__coopmat2 *shared = &capabilities->coopmat2;
    shared->max_dimension = limits.cooperativeMatrixFlexibleDimensionsMaxDimension;
    shared->reserved_shared_bytes = limits.cooperativeMatrixWorkgroupScopeReservedSharedMemory;
    shared->converts = capabilities->coopmat2_features.cooperativeMatrixConversions &&
                       capabilities->coopmat2_features.cooperativeMatrixPerElementOperations;
    for (uint32_t i = 0; i < count; i++)
        if (list[i].workgroupInvocations <= limits.cooperativeMatrixWorkgroupScopeMaxWorkgroupSize)
            note_units(shared, &list[i]);
    return TSR_OK;
}
