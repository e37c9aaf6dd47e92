#include "gpu/stream/batch.h"

#include "base/alloc.h"

/* The largest number of different pipelines that one operation uses. Room for them is reserved, so
 * that adding them to the batch cannot fail in the middle of an operation. */
#define OPERATION_PIPELINES 32

static tsr_status reserve_pipelines(tsr__batch *batch, size_t count)
{
    void *array = batch->pipelines;
    tsr_status status =
        tsr__grow(&array, &batch->pipeline_capacity, count, sizeof(tsr__pipeline *));
    batch->pipelines = array;
    return status;
}

tsr_status tsr__batch_create(tsr_device *device, uint32_t queue_family, tsr__batch **out)
{
    tsr__batch *batch = tsr__calloc(1, sizeof *batch);
    if (!batch)
        return TSR_ERR_NO_MEMORY;
    VkCommandPoolCreateInfo pool_info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
        .queueFamilyIndex = queue_family,
    };
    VkResult result =
        TSR__VK(&device->vk, CreateCommandPool, device->handle, &pool_info, NULL, &batch->pool);
    if (result < 0) {
        tsr__free(batch);
        return tsr__device_fail(device, result, "vkCreateCommandPool");
    }
    VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = batch->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1,
    };
    result = TSR__VK(&device->vk, AllocateCommandBuffers, device->handle, &info, &batch->commands);
    if (result < 0) {
        tsr__batch_destroy(device, batch);
        return tsr__device_fail(device, result, "vkAllocateCommandBuffers");
    }
    tsr_status status = reserve_pipelines(batch, OPERATION_PIPELINES);
    if (status != TSR_OK) {
        tsr__batch_destroy(device, batch);
        return status;
    }
    *out = batch;
    return TSR_OK;
}

void tsr__batch_destroy(tsr_device *device, tsr__batch *batch)
{
    if (!batch)
        return;
    tsr__batch_retire(batch);
    device->vk.DestroyCommandPool(device->handle, batch->pool, NULL);
    tsr__free(batch->held);
    tsr__free(batch->pipelines);
    tsr__free(batch);
}

tsr_status tsr__batch_begin(tsr_device *device, tsr__batch *batch)
{
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
    };
    TSR__DEVICE_TRY(device, ResetCommandPool, device->handle, batch->pool, 0);
    TSR__DEVICE_TRY(device, BeginCommandBuffer, batch->commands, &info);
    batch->operations = 0;
    batch->work = 0;
    return TSR_OK;
}

tsr_status tsr__batch_reserve(tsr__batch *batch, size_t count)
{
    void *array = batch->held;
    tsr_status status =
        tsr__grow(&array, &batch->held_capacity, batch->held_count + count, sizeof *batch->held);
    batch->held = array;
    return status;
}

void tsr__batch_hold(tsr__batch *batch, tsr__buffer *buffer)
{
    tsr__buffer_hold(buffer);
    batch->held[batch->held_count++] = buffer;
}

tsr_status tsr__batch_hold_pipeline(tsr__batch *batch, tsr__pipeline *pipeline)
{
    tsr_status status;

    for (size_t i = batch->pipeline_count; i-- > 0;)
        if (batch->pipelines[i] == pipeline) {
            tsr__pipeline_release(pipeline);
            return TSR_OK;
        }
    status = reserve_pipelines(batch, batch->pipeline_count + 1);
    if (status == TSR_OK)
        batch->pipelines[batch->pipeline_count++] = pipeline;
    else
        tsr__pipeline_release(pipeline);
    return status;
}

void tsr__batch_retire(tsr__batch *batch)
{
    for (size_t i = 0; i < batch->held_count; i++)
        tsr__buffer_unhold(batch->held[i]);
    batch->held_count = 0;
    for (size_t i = 0; i < batch->pipeline_count; i++)
        tsr__pipeline_release(batch->pipelines[i]);
    batch->pipeline_count = 0;
}
