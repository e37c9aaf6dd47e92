/* Records errors of Vulkan calls on a device, and checks whether the device can still be used. */
#include "base/fork.h"
#include "gpu/device/device.h"

tsr_status tsr__device_fail(tsr_device *device, VkResult result, const char *call)
{
    if (result == VK_ERROR_DEVICE_LOST)
        atomic_store(&device->lost, true);
    return tsr__fail(tsr__vk_status(result), "%s failed on %s: %s", call, device->info.name,
                     tsr__vk_result_name(result));
}

bool tsr__device_is_inherited(const tsr_device *device)
{
    return tsr__fork_inherited(device->generation);
}

tsr_status tsr__device_check(const tsr_device *device)
{
    if (atomic_load(&device->lost))
        return tsr__fail(TSR_ERR_DEVICE_LOST, "the device %s was lost; close it and open it again",
                         device->info.name);
    if (tsr__device_is_inherited(device))
        return tsr__fail(TSR_ERR_INVALID,
                         "the device %s was opened by the process that forked this one",
                         device->info.name);
    return TSR_OK;
}
