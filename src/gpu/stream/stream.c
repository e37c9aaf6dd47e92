/* Creating and destroying streams. */
#include "gpu/stream/state.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "gpu/memory/slabs.h"

/* The size of the staging chunks of streams on the compute queue if the device has a transfer
 * queue: the transfer stream then does the large transfers, so these streams stage only small ones.
 */
#define SMALL_CHUNK_BYTES (UINT64_C(1) << 20)

static uint64_t chunk_bytes_of(const tsr_device *device, const tsr__queue *queue)
{
    const bool small = device->transfer.handle && queue == &device->compute;
    return small ? tsr__min_u64(SMALL_CHUNK_BYTES, device->staging_chunk_bytes)
                 : device->staging_chunk_bytes;
}

static tsr_status create(tsr_device *device, const tsr__queue *queue, tsr_stream **out)
{
    TSR__TRY(tsr__device_check(device));
    double slowdown;
    if (tsr__slowdown(&slowdown) != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "stream_create");
    uint64_t memory_bytes;
    TSR__TRY(tsr__memory_size(device, &memory_bytes));
    tsr_stream *stream = tsr__calloc(1, sizeof *stream);
    if (!stream)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__timeline_create(device, stream, &stream->timeline);
    if (status != TSR_OK) {
        tsr__free(stream);
        return status;
    }
    stream->device = device;
    stream->queue = queue;
    stream->upload.chunk_bytes = stream->readback.chunk_bytes = chunk_bytes_of(device, queue);
    stream->slowdown = slowdown;
    stream->left_limit = memory_bytes / 8;
    tsr__device_retain(device);
    *out = stream;
    return TSR_OK;
}

tsr_status tsr_stream_create(tsr_device *device, tsr_stream **out)
{
    TSR__REQUIRE(device != NULL && out != NULL, "stream_create: %s is NULL",
                 device ? "out" : "device");
    tsr_stream *stream;
    TSR__TRY(create(device, &device->compute, &stream));
    if (device->transfer.handle) {
        const tsr_status status = create(device, &device->transfer, &stream->transfers);
        if (status != TSR_OK) {
            tsr_stream_destroy(&stream);
            return status;
        }
        stream->transfers->owner = stream;
    }
    *out = stream;
    return TSR_OK;
}

static void destroy_batches(tsr_device *device, tsr__batch *batch)
{
    while (batch) {
        tsr__batch *next = batch->next;
        tsr__batch_destroy(device, batch);
        batch = next;
    }
}

/* Streams that were destroyed while the device may have been running their work, because every wait
 * for it failed, as when memory is exhausted. They and the buffers that they hold are never freed.
 * The list keeps them reachable for tools that look for leaks. */
static _Atomic(tsr_stream *) abandoned;

static void abandon(tsr_stream *stream)
{
    tsr__log(TSR_LOG_ERROR, "stream_destroy: the memory of the stream's work is not freed, because "
                            "the device may still use it");
    stream->timeline->stream = NULL;
    stream->next_abandoned = atomic_load(&abandoned);
    while (!atomic_compare_exchange_weak(&abandoned, &stream->next_abandoned, stream))
        ;
}

/* Waits until the device has no work of the stream left. Returns false if that cannot be known. */
static bool wait_until_idle(tsr_stream *closing)
{
    tsr_device *device = closing->device;
    if (tsr_stream_wait(closing) == TSR_OK)
        return true;
    tsr__log(TSR_LOG_ERROR, "stream_destroy: %s", tsr_last_error());
    pthread_mutex_lock(&device->queue_lock);
    const VkResult result = TSR__VK(&device->vk, DeviceWaitIdle, device->handle);
    pthread_mutex_unlock(&device->queue_lock);
    return result == VK_SUCCESS || result == VK_ERROR_DEVICE_LOST || atomic_load(&device->lost);
}

void tsr_stream_destroy(tsr_stream **stream)
{
    if (!stream || !*stream)
        return;
    tsr_stream *closing = *stream;
    tsr_device *device = closing->device;
    *stream = NULL;
    if (tsr__device_is_inherited(device))
        return;

    bool idle = wait_until_idle(closing);
    if (closing->steps || closing->queued) { /* if the wait failed */
        tsr__stream_cancel_steps(closing);   /* which may submit */
        idle = wait_until_idle(closing);
    }
    if (!idle) {
        abandon(closing);
        return;
    }
    tsr_stream_destroy(&closing->transfers);
    closing->timeline->stream = NULL;
    tsr__stream_drop_waits(closing);
    destroy_batches(device, closing->open);
    destroy_batches(device, closing->next);
    destroy_batches(device, closing->queued);
    destroy_batches(device, closing->in_flight);
    destroy_batches(device, closing->spare);
    tsr__stream_staging_finish(closing);
    tsr__stream_scratch_finish(closing);
    tsr__stream_timer_finish(closing);
    tsr__stream_profile_finish(closing);
    tsr__timeline_release(device, closing->timeline);
    tsr__free(closing);
    tsr__device_release(device);
}

tsr_device *tsr_stream_device(const tsr_stream *stream)
{
    return stream ? stream->device : NULL;
}

bool tsr__stream_in_preflight(const tsr_stream *stream)
{
    return stream->mode == TSR__STREAM_PREFLIGHT;
}
