/* The queue of batches that are complete: ending the open batch, and submitting them in their
 * order.
 */
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "gpu/stream/state.h"

void tsr__stream_drop_waits(tsr_stream *stream)
{
    for (int i = 0; i < stream->wait_count; i++)
        tsr__timeline_release(stream->device, stream->waits[i].timeline);
    stream->wait_count = 0;
}

/* Makes the batch's writes visible to the host, which can read them through a mapping. */
static void barrier_to_host(tsr_stream *stream)
{
    VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = stream->queue->writes,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT,
    };
    stream->device->vk.CmdPipelineBarrier(stream->open->commands, stream->queue->stages,
                                          VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0,
                                          NULL);
}

/* Drops a batch whose recording cannot be ended, with its commands. When these commands were
 * recorded, their buffers got the batch's point as last_point. The next batch will have the same
 * point, so last_point is reset. The buffers were also marked as last used on this stream, although
 * other streams may still be working on them; therefore this function waits for those streams. */
static void drop_open(tsr_stream *stream)
{
    tsr__batch *batch = stream->open;
    stream->open = NULL;
    for (size_t i = 0; i < batch->held_count; i++)
        if (batch->held[i]->last_timeline == stream->timeline)
            batch->held[i]->last_point = tsr__stream_closed_point(stream);
    for (int i = 0; i < stream->wait_count; i++)
        if (tsr__timeline_wait(stream->device, stream->waits[i].timeline, stream->waits[i].point,
                               UINT64_MAX) != TSR_OK)
            tsr__log(TSR_LOG_ERROR, "%s", tsr_last_error());
    tsr__stream_drop_waits(stream);
    tsr__hazards_clear(&stream->hazards);
    stream->timer_begun = stream->timer_ended = false;
    tsr__batch_retire(batch);
    batch->next = stream->spare;
    stream->spare = batch;
}

/* Ends the recording of the open batch. On failure its commands are dropped, which the error text
 * says. */
static tsr_status end_open(tsr_stream *stream)
{
    tsr_device *device = stream->device;
    const tsr__batch *batch = stream->open;
    barrier_to_host(stream);
    VkResult result = TSR__VK(&device->vk, EndCommandBuffer, batch->commands);
    if (result < 0) {
        drop_open(stream);
        tsr_status status = tsr__device_fail(device, result, "vkEndCommandBuffer");
        return tsr__fail_context(status, "%u recorded operations were dropped",
                                 (unsigned)batch->operations);
    }
    return TSR_OK;
}

/* The most batches that one call of the queue submits. */
#define QUEUED_AT_ONCE 16

/* Makes `submit` the submission of a batch that waits for nothing. */
static void describe(const tsr_stream *stream, const tsr__batch *batch,
                     VkTimelineSemaphoreSubmitInfo *timeline, VkSubmitInfo *submit)
{
    *timeline = (VkTimelineSemaphoreSubmitInfo){
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &batch->point,
    };
    *submit = (VkSubmitInfo){
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pNext = timeline,
        .commandBufferCount = 1,
        .pCommandBuffers = &batch->commands,
        .signalSemaphoreCount = 1,
        .pSignalSemaphores = &stream->timeline->semaphore,
    };
}

/* Slows the stream down by the factor of TESSERA_SLOWDOWN. Waits for the batch that ends at
 * `point`, then sleeps until the time since `submitted_ns` is as many times as long as the batch
 * took. `submitted_ns` is the time before the submission, because the device may start and even
 * finish during that call. */
static tsr_status slow_down(tsr_stream *stream, uint64_t point, uint64_t submitted_ns)
{
    if (stream->slowdown <= 1)
        return TSR_OK;
    TSR__TRY(tsr__timeline_wait(stream->device, stream->timeline, point, UINT64_MAX));
    const double rest = (double)(tsr__now_ns() - submitted_ns) * (stream->slowdown - 1);
    struct timespec left = {.tv_sec = (time_t)(rest / 1e9)};
    left.tv_nsec = (long)(rest - (double)left.tv_sec * 1e9);
    while (nanosleep(&left, &left) != 0)
        continue;
    return TSR_OK;
}

/* Submits some of the queued batches up to `point`, which are put in flight. The first one waits
 * for stream->waits. */
static tsr_status queue_some(tsr_stream *stream, uint64_t point)
{
    tsr_device *device = stream->device;
    VkSemaphore semaphores[TSR__STREAM_WAITS_MAX];
    uint64_t points[TSR__STREAM_WAITS_MAX];
    VkPipelineStageFlags stages[TSR__STREAM_WAITS_MAX];
    VkTimelineSemaphoreSubmitInfo timelines[QUEUED_AT_ONCE];
    VkSubmitInfo submits[QUEUED_AT_ONCE];
    tsr__batch *first = stream->queued, *last = NULL, **end = &stream->in_flight;
    uint32_t count = 0;
    for (tsr__batch *batch = first; batch && batch->point <= point && count < QUEUED_AT_ONCE;
         batch = batch->next) {
        describe(stream, batch, &timelines[count], &submits[count]);
        last = batch;
        count++;
    }
    for (int i = 0; i < stream->wait_count; i++) {
        semaphores[i] = stream->waits[i].timeline->semaphore;
        points[i] = stream->waits[i].point;
        stages[i] = stream->queue->stages;
    }
    timelines[0].waitSemaphoreValueCount = submits[0].waitSemaphoreCount =
        (uint32_t)stream->wait_count;
    timelines[0].pWaitSemaphoreValues = points;
    submits[0].pWaitSemaphores = semaphores;
    submits[0].pWaitDstStageMask = stages;
    pthread_mutex_lock(&device->queue_lock);
    VkResult result =
        TSR__VK(&device->vk, QueueSubmit, stream->queue->handle, count, submits, VK_NULL_HANDLE);
    pthread_mutex_unlock(&device->queue_lock);
    if (result < 0)
        return tsr__device_fail(device, result, "vkQueueSubmit");
    stream->submissions++;
    tsr__stream_drop_waits(stream);
    stream->timeline->submitted = last->point;
    stream->queued = last->next;
    last->next = NULL;
    while (*end)
        end = &(*end)->next;
    *end = first;
    return TSR_OK;
}

tsr_status tsr__stream_submit_queued(tsr_stream *stream)
{
    const uint64_t point = stream->steps ? stream->steps->point : UINT64_MAX;
    while (stream->queued && stream->queued->point <= point) {
        const uint64_t submitted_ns = tsr__now_ns();
        TSR__TRY(queue_some(stream, point));
        TSR__TRY(slow_down(stream, stream->timeline->submitted, submitted_ns));
    }
    return TSR_OK;
}

uint64_t tsr__stream_closed_point(const tsr_stream *stream)
{
    uint64_t point = stream->timeline->submitted;
    for (const tsr__batch *batch = stream->queued; batch; batch = batch->next)
        point = batch->point;
    return point;
}

tsr_status tsr__stream_close_open(tsr_stream *stream)
{
    tsr__batch **last = &stream->queued;
    TSR__TRY(end_open(stream));
    while (*last)
        last = &(*last)->next;
    stream->open->next = NULL;
    *last = stream->open;
    stream->open = NULL;
    return TSR_OK;
}
