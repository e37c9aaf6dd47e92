/* Retains, releases and destroys open devices, and checks whether a device can still be used. */
#include "gpu/device/device.h"

#include "base/alloc.h"
#include "base/fork.h"
#include "gpu/device/timeline.h"

static void wait_idle(tsr_device *device)
{
    VkResult result = TSR__VK(&device->vk, DeviceWaitIdle, device->handle);
    if (result < 0) {
        (void)tsr__device_fail(device, result, "vkDeviceWaitIdle");
        tsr__log(TSR_LOG_ERROR, "device_close: %s", tsr_last_error());
    }
}

static void free_device(tsr_device *device)
{
    if (device->handle) {
        /* Every stream waits for its work before it is destroyed, so that no work is left. This
         * call waits for what the driver still does after that work. It is skipped if there are no
         * spare timelines, because then the device had no stream, or is lost. Mesa's null hardware
         * never has one, and its calls for waiting fail. */
        if (device->spare_timelines)
            wait_idle(device);
        tsr__timelines_destroy_spare(device);
    }
    tsr__attachments_destroy(device);
    if (device->handle)
        device->vk.DestroyDevice(device->handle, NULL);
    pthread_mutex_destroy(&device->queue_lock);
    tsr__instance_release(device->instance);
    tsr__free(device);
}

void tsr__device_retain(tsr_device *device)
{
    atomic_fetch_add(&device->references, 1);
}

void tsr__device_release(tsr_device *device)
{
    if (atomic_fetch_sub(&device->references, 1) == 1)
        free_device(device);
}

void tsr_device_close(tsr_device **device)
{
    if (!device || !*device)
        return;
    tsr_device *closing = *device;
    *device = NULL;
    if (tsr__device_is_inherited(closing))
        return;
    tsr__attachments_close(closing);
    tsr__device_release(closing);
}

const tsr_device_info *tsr_device_get_info(const tsr_device *device)
{
    return device ? &device->info : NULL;
}

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
