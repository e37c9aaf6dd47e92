#include "gpu/device/instance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "base/fork.h"
#include "gpu/device/mesa.h"

static const char validation_layer[] = "VK_LAYER_KHRONOS_validation";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tsr__instance shared;
static unsigned users;
/* the fork generation (base/fork.h) of the process that created the instance */
static unsigned generation;
static atomic_ullong messages;

uint64_t tsr__validation_messages(void)
{
    return atomic_load(&messages);
}

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT types,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                 void *user)
{
    (void)severity;
    (void)user;
    /* Messages of type "general" are logged but not counted. They come from the loader and the
     * drivers, for example if a driver is not conformant. */
    if (types & VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT)
        atomic_fetch_add(&messages, 1);
    tsr__log(TSR_LOG_ERROR, "vulkan: %s", data->pMessage);
    return VK_FALSE;
}

static const VkDebugUtilsMessengerCreateInfoEXT messenger_info = {
    .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
    .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                       VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
    .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT |
                   VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
    .pfnUserCallback = on_message,
};

bool tsr__validation_wanted(void)
{
    return tsr__env_switch("TESSERA_VALIDATION");
}

static tsr_status require_layer(const tsr__vk_global *global)
{
    uint32_t count = 0;
    VkResult result = TSR__VK(global, EnumerateInstanceLayerProperties, &count, NULL);
    if (result < 0)
        return tsr__vk_fail(result, "vkEnumerateInstanceLayerProperties");
    VkLayerProperties *layers = tsr__calloc(count, sizeof *layers);
    if (!layers)
        return TSR_ERR_NO_MEMORY;
    result = TSR__VK(global, EnumerateInstanceLayerProperties, &count, layers);
    bool found = false;
    for (uint32_t i = 0; result >= 0 && i < count; i++)
        found = found || strcmp(layers[i].layerName, validation_layer) == 0;
    tsr__free(layers);
    if (result < 0)
        return tsr__vk_fail(result, "vkEnumerateInstanceLayerProperties");
    if (!found)
        return tsr__fail(TSR_ERR_NOT_FOUND,
                         "TESSERA_VALIDATION is set, but the layer %s is not installed",
                         validation_layer);
    return TSR_OK;
}

static void destroy(tsr__instance *instance)
{
    if (instance->messenger)
        instance->vk.DestroyDebugUtilsMessengerEXT(instance->handle, instance->messenger, NULL);
    if (instance->handle && instance->vk.DestroyInstance)
        instance->vk.DestroyInstance(instance->handle, NULL);
    memset(instance, 0, sizeof *instance);
}

static tsr_status create(tsr__instance *instance)
{
    TSR__TRY(tsr__vk_load_global(&instance->global));
    const tsr__vk_global *global = instance->global;

    VkResult result = TSR__VK(global, EnumerateInstanceVersion, &instance->api_version);
    if (result < 0)
        return tsr__vk_fail(result, "vkEnumerateInstanceVersion");
    if (instance->api_version < VK_API_VERSION_1_2)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "the Vulkan loader is version %u.%u; 1.2 is needed",
                         VK_API_VERSION_MAJOR(instance->api_version),
                         VK_API_VERSION_MINOR(instance->api_version));

    bool validation = tsr__validation_wanted();
    if (validation)
        TSR__TRY(require_layer(global));

    instance->labels = tsr__env_switch("TESSERA_LABELS");

    const char *layers[] = {validation_layer};
    const char *extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
    VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "tessera",
        .pEngineName = "tessera",
        /* Vulkan 1.3 is requested because some shaders are SPIR-V 1.6; devices with Vulkan 1.2 can
         * still be used. */
        .apiVersion =
            instance->api_version < VK_API_VERSION_1_3 ? VK_API_VERSION_1_2 : VK_API_VERSION_1_3,
    };
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pNext = validation ? &messenger_info : NULL,
        .pApplicationInfo = &application,
        .enabledLayerCount = validation ? 1 : 0,
        .ppEnabledLayerNames = layers,
        .enabledExtensionCount = validation || instance->labels ? 1 : 0,
        .ppEnabledExtensionNames = extensions,
    };
    result = TSR__VK(global, CreateInstance, &info, NULL, &instance->handle);
    if (result < 0) {
        instance->handle = VK_NULL_HANDLE;
        /* The loader returns this if there is no driver. tsr_device_list_create then gives an empty
         * list. */
        if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
            return tsr__fail(TSR_ERR_NOT_FOUND,
                             "there is no Vulkan driver for any device of this machine");
        if (result == VK_ERROR_EXTENSION_NOT_PRESENT && instance->labels)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "TESSERA_LABELS is set, but no driver and no layer of this machine "
                             "has %s",
                             VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
        return tsr__vk_fail(result, "vkCreateInstance");
    }
    TSR__TRY(tsr__vk_load_instance(global, instance->handle, &instance->vk));
    if (validation) {
        result = TSR__VK(&instance->vk, CreateDebugUtilsMessengerEXT, instance->handle,
                         &messenger_info, NULL, &instance->messenger);
        if (result < 0) {
            instance->messenger = VK_NULL_HANDLE;
            return tsr__vk_fail(result, "vkCreateDebugUtilsMessengerEXT");
        }
    }
    return TSR_OK;
}

tsr_status tsr__instance_acquire(tsr__instance **out)
{
    tsr_status status = TSR_OK;
    pthread_mutex_lock(&lock);
    if (users > 0 && tsr__fork_inherited(generation)) {
        /* A child process cannot create an instance of its own either: SwiftShader, for example,
         * would wait in it for threads that exist only in the parent process. */
        status = tsr__fail(TSR_ERR_INVALID,
                           "the parent process had devices open when it forked, and drivers do not "
                           "survive fork(): fork before opening a device, or call exec");
    } else if (users == 0) {
        status = tsr__fork_generation(&generation);
        if (status == TSR_OK)
            status = create(&shared);
        bool widened = false;
        if (status == TSR_OK)
            status = tsr__mesa_widen(&shared, &widened);
        if (widened) {
            destroy(&shared);
            status = create(&shared);
        }
        if (status != TSR_OK)
            destroy(&shared);
    }
    if (status == TSR_OK) {
        users++;
        *out = &shared;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void tsr__instance_release(tsr__instance *instance)
{
    pthread_mutex_lock(&lock);
    if (--users == 0)
        destroy(instance);
    pthread_mutex_unlock(&lock);
}
