/* Measures how long the commands between two calls take, with timestamps of the device. */
#include "gpu/stream/state.h"

static tsr_status timer_prepare(tsr_stream *stream)
{
    tsr_device *device = stream->device;
    if (device->timestamp_bits == 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "stream_timer: the queue of %s has no timestamps",
                         device->info.name);
    if (!stream->timer) {
        VkQueryPoolCreateInfo info = {
            .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
            .queryType = VK_QUERY_TYPE_TIMESTAMP,
            .queryCount = 2,
        };
        VkResult result =
            TSR__VK(&device->vk, CreateQueryPool, device->handle, &info, NULL, &stream->timer);
        if (result < 0) {
            stream->timer = VK_NULL_HANDLE;
            return tsr__device_fail(device, result, "vkCreateQueryPool");
        }
    }
    /* Uploads and downloads on the transfer queue that were recorded earlier must be complete
     * before the timestamp is taken. */
    TSR__TRY(tsr__stream_join_transfers(stream));
    return tsr__stream_begin(stream, NULL, 0);
}

void tsr__stream_timer_finish(tsr_stream *stream)
{
    if (stream->timer)
        stream->device->vk.DestroyQueryPool(stream->device->handle, stream->timer, NULL);
    stream->timer = VK_NULL_HANDLE;
}

tsr_status tsr_stream_timer_begin(tsr_stream *stream)
{
    TSR__REQUIRE(stream != NULL, "stream_timer_begin: stream is NULL");
    TSR__TRY(timer_prepare(stream));
    const tsr__vk_device *vk = &stream->device->vk;
    VkCommandBuffer commands = stream->open->commands;
    vk->CmdResetQueryPool(commands, stream->timer, 0, 2);
    /* Without this barrier, the timer would also measure earlier work. */
    tsr__stream_barrier(stream);
    vk->CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stream->timer, 0);
    stream->timer_begun = true;
    stream->timer_ended = false;
    tsr__stream_order(stream, NULL, 0, 0);
    return tsr__stream_recorded(stream);
}

tsr_status tsr_stream_timer_end(tsr_stream *stream)
{
    TSR__REQUIRE(stream != NULL, "stream_timer_end: stream is NULL");
    TSR__REQUIRE(stream->timer_begun && !stream->timer_ended,
                 "stream_timer_end: there is no stream_timer_begin before it");
    TSR__TRY(timer_prepare(stream));
    tsr__stream_barrier(stream);
    stream->device->vk.CmdWriteTimestamp(stream->open->commands,
                                         VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stream->timer, 1);
    stream->timer_ended = true;
    tsr__stream_order(stream, NULL, 0, 0);
    return tsr__stream_recorded(stream);
}

tsr_status tsr_stream_timer_read(tsr_stream *stream, uint64_t *out_ns)
{
    TSR__REQUIRE(stream != NULL && out_ns != NULL, "stream_timer_read: %s is NULL",
                 stream ? "out_ns" : "stream");
    TSR__REQUIRE(
        stream->timer_ended,
        "stream_timer_read: there is no stream_timer_end since the last stream_timer_begin");
    tsr_device *device = stream->device;
    TSR__TRY(tsr_stream_wait(stream));
    uint64_t ticks[2] = {0};
    TSR__DEVICE_TRY(device, GetQueryPoolResults, device->handle, stream->timer, 0, 2, sizeof ticks,
                    ticks, sizeof ticks[0], VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    uint64_t mask =
        device->timestamp_bits >= 64 ? UINT64_MAX : (UINT64_C(1) << device->timestamp_bits) - 1;
    uint64_t elapsed = (ticks[1] - ticks[0]) & mask;
    *out_ns = (uint64_t)((double)elapsed * (double)device->info.timestamp_period_ns);
    return TSR_OK;
}
