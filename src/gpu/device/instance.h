/* The only Vulkan instance of the process. It is created when it is first needed, and destroyed
 * when no device and no listing uses it any more.
 *
 * TESSERA_VALIDATION=1 turns the validation layers on. Their warnings and errors are counted and
 * logged as errors. If the layers are not installed, creating the instance fails.
 *
 * TESSERA_LABELS=1 gives each command a label, which tools for debugging GPUs show
 * (stream/label.c). Creating the instance fails if neither the driver nor a layer has labels. */
#ifndef TSR_GPU_DEVICE_INSTANCE_H
#define TSR_GPU_DEVICE_INSTANCE_H

#include "gpu/device/vk.h"

typedef struct tsr__instance {
    const tsr__vk_global *global;
    tsr__vk_instance vk;
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    uint32_t api_version;
    bool labels; /* whether commands get labels */
} tsr__instance;

tsr_status tsr__instance_acquire(tsr__instance **out);
void tsr__instance_release(tsr__instance *instance);

/* True if TESSERA_VALIDATION asks for the validation layers. */
bool tsr__validation_wanted(void);

/* The number of messages of the validation layers since the process started. */
uint64_t tsr__validation_messages(void);

#endif
