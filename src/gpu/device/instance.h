/* The process's one Vulkan instance, created when first needed and released with the last device or
 * listing.
 *
 * TESSERA_VALIDATION=1 turns the validation layers on; their messages of warning level and above go
 * to the log as errors and are counted. Asking for them where they are not installed is an error,
 * not a silent "no". */
#ifndef TSR_GPU_DEVICE_INSTANCE_H
#define TSR_GPU_DEVICE_INSTANCE_H

#include "gpu/device/vk.h"

typedef struct tsr__instance {
    const tsr__vk_global *global;
    tsr__vk_instance vk;
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    uint32_t api_version;
} tsr__instance;

tsr_status tsr__instance_acquire(tsr__instance **out);
void tsr__instance_release(tsr__instance *instance);

/* What TESSERA_VALIDATION says. */
bool tsr__validation_wanted(void);

/* Messages of the validation layers since the process started. */
uint64_t tsr__validation_messages(void);

#endif
