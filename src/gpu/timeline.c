#include "gpu/timeline.h"

#include "base/alloc.h"

tsr_status tsr__timeline_create(tsr_device *device, struct tsr_stream *stream, tsr__timeline **out)
{
    tsr__timeline *timeline = tsr__calloc(1, sizeof *timeline);
    if (!timeline)
        return TSR_ERR_NO_MEMORY;
    VkSemaphoreTypeCreateInfo type = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
        .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
    };
    VkSemaphoreCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
        .pNext = &type,
    };
    VkResult result =
        TSR__VK(&device->vk, CreateSemaphore, device->handle, &info, NULL, &timeline->semaphore);
    if (result < 0) {
        tsr__free(timeline);
        return tsr__device_fail(device, result, "vkCreateSemaphore");
    }
    timeline->stream = stream;
    timeline->references = 1;
    *out = timeline;
    return TSR_OK;
}

void tsr__timeline_retain(tsr__timeline *timeline)
{
    timeline->references++;
}

void tsr__timeline_release(tsr_device *device, tsr__timeline *timeline)
{
    if (!timeline || --timeline->references > 0)
        return;
    device->vk.DestroySemaphore(device->handle, timeline->semaphore, NULL);
    tsr__free(timeline);
}

tsr_status tsr__timeline_poll(tsr_device *device, tsr__timeline *timeline)
{
    if (timeline->reached == timeline->submitted)
        return TSR_OK;
    uint64_t value = 0;
    TSR__DEVICE_TRY(device, GetSemaphoreCounterValue, device->handle, timeline->semaphore, &value);
    if (value > timeline->reached)
        timeline->reached = value;
    return TSR_OK;
}

tsr_status tsr__timeline_wait(tsr_device *device, tsr__timeline *timeline, uint64_t point,
                              uint64_t timeout_ns)
{
    if (timeline->reached >= point)
        return TSR_OK;
    VkSemaphoreWaitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .semaphoreCount = 1,
        .pSemaphores = &timeline->semaphore,
        .pValues = &point,
    };
    VkResult result = TSR__VK(&device->vk, WaitSemaphores, device->handle, &info, timeout_ns);
    if (result < 0)
        return tsr__device_fail(device, result, "vkWaitSemaphores");
    if (result == VK_TIMEOUT)
        return tsr__fail(TSR_ERR_TIMEOUT, "%s: work was still running after %llu ns",
                         device->info.name, (unsigned long long)timeout_ns);
    timeline->reached = point;
    return TSR_OK;
}
