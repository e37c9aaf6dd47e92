#include "gpu/device/vk.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "platform/paths.h"

static pthread_once_t loader_once = PTHREAD_ONCE_INIT;
static tsr__vk_global loader;
static char loader_problem[256];

/* dlsym returns an object pointer. POSIX guarantees that it can be converted to a function pointer;
 * ISO C has no cast for that. */
static PFN_vkGetInstanceProcAddr entry_point(void *library)
{
    void *symbol = dlsym(library, "vkGetInstanceProcAddr");
    PFN_vkGetInstanceProcAddr function = NULL;
    memcpy(&function, &symbol, sizeof function);
    return function;
}

static void keep_problem(const char *format, const char *text)
{
    (void)snprintf(loader_problem, sizeof loader_problem, format, text);
}

static void open_loader(void)
{
    void *library = dlopen(tsr__vulkan_loader, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *detail = dlerror();
        keep_problem("%s", detail ? detail : "the loader cannot be opened");
        return;
    }
    loader.GetInstanceProcAddr = entry_point(library);
    if (!loader.GetInstanceProcAddr) {
        keep_problem("%s has no vkGetInstanceProcAddr", tsr__vulkan_loader);
        return;
    }
#define LOAD(name)                                                                                 \
    loader.name = (PFN_vk##name)loader.GetInstanceProcAddr(NULL, "vk" #name);                      \
    if (!loader.name)                                                                              \
        keep_problem("%s has no vk" #name, tsr__vulkan_loader);
    TSR__VK_GLOBAL_FUNCTIONS(LOAD)
#undef LOAD
}

tsr_status tsr__vk_load_global(const tsr__vk_global **out)
{
    pthread_once(&loader_once, open_loader);
    if (loader_problem[0] != '\0')
        return tsr__fail(TSR_ERR_UNSUPPORTED, "no Vulkan loader on this machine: %s",
                         loader_problem);
    *out = &loader;
    return TSR_OK;
}

tsr_status tsr__vk_load_instance(const tsr__vk_global *global, VkInstance instance,
                                 tsr__vk_instance *out)
{
#define LOAD_OPTIONAL(name)                                                                        \
    out->name = (PFN_vk##name)global->GetInstanceProcAddr(instance, "vk" #name);
#define LOAD(name)                                                                                 \
    LOAD_OPTIONAL(name)                                                                            \
    if (!out->name)                                                                                \
        return tsr__fail(TSR_ERR_UNSUPPORTED, "the Vulkan loader has no vk" #name);
    TSR__VK_INSTANCE_FUNCTIONS(LOAD)
    TSR__VK_INSTANCE_OPTIONAL_FUNCTIONS(LOAD_OPTIONAL)
#undef LOAD
#undef LOAD_OPTIONAL
    return TSR_OK;
}

tsr_status tsr__vk_load_device(const tsr__vk_instance *vk, VkDevice device, tsr__vk_device *out)
{
#define LOAD_OPTIONAL(name) out->name = (PFN_vk##name)vk->GetDeviceProcAddr(device, "vk" #name);
#define LOAD(name)                                                                                 \
    LOAD_OPTIONAL(name)                                                                            \
    if (!out->name)                                                                                \
        return tsr__fail(TSR_ERR_UNSUPPORTED, "the Vulkan driver has no vk" #name);
    TSR__VK_DEVICE_FUNCTIONS(LOAD)
    TSR__VK_DEVICE_OPTIONAL_FUNCTIONS(LOAD_OPTIONAL)
#undef LOAD
#undef LOAD_OPTIONAL
    return TSR_OK;
}

const char *tsr__vk_result_name(VkResult result)
{
    switch (result) {
#define NAME(value)                                                                                \
    case value:                                                                                    \
        return #value;
        NAME(VK_SUCCESS)
        NAME(VK_NOT_READY)
        NAME(VK_TIMEOUT)
        NAME(VK_INCOMPLETE)
        NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
        NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
        NAME(VK_ERROR_INITIALIZATION_FAILED)
        NAME(VK_ERROR_DEVICE_LOST)
        NAME(VK_ERROR_MEMORY_MAP_FAILED)
        NAME(VK_ERROR_LAYER_NOT_PRESENT)
        NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
        NAME(VK_ERROR_FEATURE_NOT_PRESENT)
        NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
        NAME(VK_ERROR_TOO_MANY_OBJECTS)
        NAME(VK_ERROR_FRAGMENTED_POOL)
        NAME(VK_ERROR_OUT_OF_POOL_MEMORY)
        NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE)
        NAME(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS)
        NAME(VK_ERROR_INVALID_SHADER_NV)
        NAME(VK_ERROR_UNKNOWN)
#undef NAME
    default:
        return result < 0 ? "an unknown VkResult error" : "an unknown VkResult";
    }
}

tsr_status tsr__vk_status(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return TSR_ERR_NO_MEMORY;
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return TSR_ERR_DEVICE_MEMORY;
    case VK_ERROR_DEVICE_LOST:
        return TSR_ERR_DEVICE_LOST;
    default:
        return TSR_ERR_DRIVER;
    }
}

tsr_status tsr__vk_fail(VkResult result, const char *function)
{
    return tsr__fail(tsr__vk_status(result), "%s failed: %s", function,
                     tsr__vk_result_name(result));
}
