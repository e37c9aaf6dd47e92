#include "gpu/device/timeline.h"

#include "base/alloc.h"
#include "base/clock.h"

static tsr_status create(tsr_device *device, tsr__timeline **out)
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
    *out = timeline;
    return TSR_OK;
}

static tsr__timeline *take_spare(tsr_device *device)
{
    pthread_mutex_lock(&device->queue_lock);
    tsr__timeline *timeline = device->spare_timelines;
    if (timeline)
        device->spare_timelines = timeline->next;
    pthread_mutex_unlock(&device->queue_lock);
    return timeline;
}

tsr_status tsr__timeline_create(tsr_device *device, struct tsr_stream *stream, tsr__timeline **out)
{
    tsr__timeline *timeline = take_spare(device);
    if (!timeline)
        TSR__TRY(create(device, &timeline));
    timeline->stream = stream;
    timeline->references = 1;
    *out = timeline;
    return TSR_OK;
}

void tsr__timeline_retain(tsr__timeline *timeline)
{
    timeline->references++;
}

static void destroy(tsr_device *device, tsr__timeline *timeline)
{
    device->vk.DestroySemaphore(device->handle, timeline->semaphore, NULL);
    tsr__free(timeline);
}

void tsr__timeline_release(tsr_device *device, tsr__timeline *timeline)
{
    if (!timeline || --timeline->references > 0)
        return;
    /* The device was lost before the semaphore reached the last submitted value. It will never
     * reach it, so no other stream can use the semaphore. */
    if (timeline->reached != timeline->submitted) {
        destroy(device, timeline);
        return;
    }
    pthread_mutex_lock(&device->queue_lock);
    timeline->next = device->spare_timelines;
    device->spare_timelines = timeline;
    pthread_mutex_unlock(&device->queue_lock);
}

void tsr__timelines_destroy_spare(tsr_device *device)
{
    for (tsr__timeline *timeline; (timeline = take_spare(device)) != NULL;)
        destroy(device, timeline);
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

/* Polls the semaphore for a short time, because a thread that sleeps in vkWaitSemaphores continues
 * 30 to 50 µs after the semaphore has reached its value: about as long as the device takes for a
 * small model's token. On CPU drivers, polling would take a processor from the work. */
static tsr_status poll_for(tsr_device *device, tsr__timeline *timeline, uint64_t point,
                           uint64_t timeout_ns)
{
    const uint64_t most_ns = device->poll_ns;
    const uint64_t begin = tsr__now_ns(), limit = timeout_ns < most_ns ? timeout_ns : most_ns;
    while (timeline->reached < point && tsr__now_ns() - begin < limit) {
        uint64_t value = 0;
        TSR__DEVICE_TRY(device, GetSemaphoreCounterValue, device->handle, timeline->semaphore,
                        &value);
        if (value > timeline->reached)
            timeline->reached = value;
    }
    return TSR_OK;
}

tsr_status tsr__timeline_wait(tsr_device *device, tsr__timeline *timeline, uint64_t point,
                              uint64_t timeout_ns)
{
    if (timeline->reached < point && device->poll_ns > 0)
        TSR__TRY(poll_for(device, timeline, point, timeout_ns));
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
