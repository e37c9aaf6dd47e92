/* The Vulkan functions that the library calls. They are loaded at run time, so that the library can
 * be linked without a Vulkan loader. Functions that can fail are called only through TSR__VK, where
 * tests inject failures. Only files of src/gpu include this header. */
#ifndef TSR_GPU_DEVICE_VK_H
#define TSR_GPU_DEVICE_VK_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "gpu/device/vk_coopmat.h"

#include "base/error.h"
#include "base/fault.h"

/* Functions that are loaded without an instance. */
#define TSR__VK_GLOBAL_FUNCTIONS(X)                                                                \
    X(CreateInstance)                                                                              \
    X(EnumerateInstanceVersion)                                                                    \
    X(EnumerateInstanceLayerProperties)

#define TSR__VK_INSTANCE_FUNCTIONS(X)                                                              \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(EnumerateDeviceExtensionProperties)                                                          \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures2)                                                                  \
    X(GetPhysicalDeviceMemoryProperties2)                                                          \
    X(GetPhysicalDeviceQueueFamilyProperties2)                                                     \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)

/* These functions are NULL if the driver or the loader lacks their extension. */
#define TSR__VK_INSTANCE_OPTIONAL_FUNCTIONS(X)                                                     \
    X(CreateDebugUtilsMessengerEXT)                                                                \
    X(DestroyDebugUtilsMessengerEXT)                                                               \
    X(GetPhysicalDeviceCooperativeMatrixPropertiesKHR)                                             \
    X(GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV)

#define TSR__VK_DEVICE_FUNCTIONS(X)                                                                \
    X(DestroyDevice)                                                                               \
    X(GetDeviceQueue)                                                                              \
    X(QueueSubmit)                                                                                 \
    X(DeviceWaitIdle)                                                                              \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(MapMemory)                                                                                   \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements)                                                                 \
    X(BindBufferMemory)                                                                            \
    X(GetBufferDeviceAddress)                                                                      \
    X(CreateSemaphore)                                                                             \
    X(DestroySemaphore)                                                                            \
    X(GetSemaphoreCounterValue)                                                                    \
    X(WaitSemaphores)                                                                              \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(ResetCommandPool)                                                                            \
    X(AllocateCommandBuffers)                                                                      \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(CmdPipelineBarrier)                                                                          \
    X(CmdBindPipeline)                                                                             \
    X(CmdPushConstants)                                                                            \
    X(CmdDispatch)                                                                                 \
    X(CmdDispatchIndirect)                                                                         \
    X(CmdCopyBuffer)                                                                               \
    X(CmdFillBuffer)                                                                               \
    X(CmdUpdateBuffer)                                                                             \
    X(CmdWriteTimestamp)                                                                           \
    X(CmdResetQueryPool)                                                                           \
    X(CreateQueryPool)                                                                             \
    X(DestroyQueryPool)                                                                            \
    X(GetQueryPoolResults)                                                                         \
    X(CreateShaderModule)                                                                          \
    X(DestroyShaderModule)                                                                         \
    X(CreatePipelineLayout)                                                                        \
    X(DestroyPipelineLayout)                                                                       \
    X(CreatePipelineCache)                                                                         \
    X(DestroyPipelineCache)                                                                        \
    X(GetPipelineCacheData)                                                                        \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)

#define TSR__VK_DEVICE_OPTIONAL_FUNCTIONS(X)                                                       \
    X(GetPipelineExecutableStatisticsKHR)                                                          \
    X(GetMemoryHostPointerPropertiesEXT)                                                           \
    X(CmdInsertDebugUtilsLabelEXT)

#define TSR__VK_MEMBER(name) PFN_vk##name name;

typedef struct tsr__vk_global {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
    TSR__VK_GLOBAL_FUNCTIONS(TSR__VK_MEMBER)
} tsr__vk_global;

typedef struct tsr__vk_instance {
    TSR__VK_INSTANCE_FUNCTIONS(TSR__VK_MEMBER)
    TSR__VK_INSTANCE_OPTIONAL_FUNCTIONS(TSR__VK_MEMBER)
} tsr__vk_instance;

typedef struct tsr__vk_device {
    TSR__VK_DEVICE_FUNCTIONS(TSR__VK_MEMBER)
    TSR__VK_DEVICE_OPTIONAL_FUNCTIONS(TSR__VK_MEMBER)
} tsr__vk_device;

#undef TSR__VK_MEMBER

/* tsr__vk_load_global() opens the Vulkan loader, which is never closed, because drivers cannot be
 * unloaded safely. tsr__vk_load_instance and tsr__vk_load_device load the functions of an instance
 * and of a device. */
tsr_status tsr__vk_load_global(const tsr__vk_global **out);
tsr_status tsr__vk_load_instance(const tsr__vk_global *global, VkInstance instance,
                                 tsr__vk_instance *out);
tsr_status tsr__vk_load_device(const tsr__vk_instance *vk, VkDevice device, tsr__vk_device *out);

/* The name of a result, for example "VK_ERROR_DEVICE_LOST"; never NULL. */
const char *tsr__vk_result_name(VkResult result);

/* Returns the status for a result: out of memory, device lost or a driver error. */
tsr_status tsr__vk_status(VkResult result);

/* Records that a Vulkan function such as "vkCreateInstance" has failed. Returns its status. */
tsr_status tsr__vk_fail(VkResult result, const char *function);

/* TSR__VK(&device->vk, CreateBuffer, …) calls vkCreateBuffer and returns its VkResult, or a failure
 * that a test injects. Every call of a function that returns a VkResult must use this macro; a test
 * searches the sources for calls that do not. */
#define TSR__VK(table, name, ...)                                                                  \
    (tsr__fault_hit(TSR__FAULT_VULKAN, "vk" #name) ? (VkResult)tsr__fault_code()                   \
                                                   : (table)->name(__VA_ARGS__))

#endif
