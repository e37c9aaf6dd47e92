/* A batch: a command buffer, which is submitted as a unit, and references to the objects that its
 * commands use. */
#ifndef TSR_GPU_STREAM_BATCH_H
#define TSR_GPU_STREAM_BATCH_H

#include "gpu/memory/buffer.h"
#include "gpu/pipeline/pipeline.h"

typedef struct tsr__batch {
    struct tsr__batch *next;
    VkCommandPool pool;
    VkCommandBuffer commands;
    uint64_t point; /* the timeline's value after the batch is complete */
    /* for batches of a transfer stream: the last point of the stream that owns it (state.h) when
     * the batch was opened */
    uint64_t owner_point;
    uint32_t operations;
    double work; /* the sum of the work of all operations, in multiply-adds (device/device.h) */
    tsr__buffer **held;
    size_t held_count, held_capacity;
    tsr__pipeline **pipelines;
    size_t pipeline_count, pipeline_capacity;
} tsr__batch;

/* Creates a batch for queues of family `queue_family`. */
tsr_status tsr__batch_create(tsr_device *device, uint32_t queue_family, tsr__batch **out);
void tsr__batch_destroy(tsr_device *device, tsr__batch *batch);

/* Starts recording commands into the batch. */
tsr_status tsr__batch_begin(tsr_device *device, tsr__batch *batch);

/* Reserves room for references to `count` more buffers, so that adding them cannot fail. */
tsr_status tsr__batch_reserve(tsr__batch *batch, size_t count);
void tsr__batch_hold(tsr__batch *batch, tsr__buffer *buffer);

/* Takes over the caller's reference to `pipeline` and keeps it until the batch is complete. On
 * failure the reference is released. */
tsr_status tsr__batch_hold_pipeline(tsr__batch *batch, tsr__pipeline *pipeline);

/* Releases the batch's references to buffers and pipelines. */
void tsr__batch_retire(tsr__batch *batch);

#endif
