/* The process's one Vulkan instance.
 *
 * It is created when it is first needed and kept after the last device has been closed, because
 * destroying an instance unloads the driver, and not every driver can be loaded again and again:
 * NVIDIA's refuses new instances in the end, and before that it has been seen to compute wrong
 * subgroup invocation numbers after about 11 times
 * (https://github.com/Genesis-Embodied-AI/quadrants/pull/465). An instance without users is
 * destroyed only before fork(), so that the child starts without any state of the driver, and when
 * TESSERA_VALIDATION has changed.
 *
 * TESSERA_VALIDATION=1 turns the validation layers on; their messages of warning level and above go
 * to the log as errors and are counted. It is an error if the layers are not installed. */
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

/* Counts a user of the instance, until tsr__instance_release. Any thread. */
tsr_status tsr__instance_acquire(tsr__instance **out);
void tsr__instance_release(tsr__instance *instance);

/* Destroys the instance if it has no users. For tests of how it is created. */
void tsr__instance_discard(void);

/* Whether TESSERA_VALIDATION asks for the validation layers. */
bool tsr__validation_wanted(void);

/* Number of messages of the validation layers since the process started. */
uint64_t tsr__validation_messages(void);

#endif
