/* One submission: a command buffer and what it keeps alive. */
#ifndef TSR_GPU_STREAM_BATCH_H
#define TSR_GPU_STREAM_BATCH_H

#include "gpu/memory/buffer.h"
#include "gpu/pipeline/pipeline.h"

typedef struct tsr__batch {
    struct tsr__batch *next;
    VkCommandPool pool;
    VkCommandBuffer commands;
    bool ended;     /* recorded to the end, but not accepted by the queue yet */
    uint64_t point; /* reached when the batch is done */
    uint32_t operations;
    double work; /* of all of them, as tsr__dispatch counts it */
    tsr__buffer **held;
    size_t held_count, held_capacity;
    tsr__pipeline **pipelines;
    size_t pipeline_count, pipeline_capacity;
} tsr__batch;

tsr_status tsr__batch_create(tsr_device *device, tsr__batch **out);
void tsr__batch_destroy(tsr_device *device, tsr__batch *batch);

/* Starts recording. */
tsr_status tsr__batch_begin(tsr_device *device, tsr__batch *batch);

/* Room for `count` more held buffers, so that holding them cannot fail. */
tsr_status tsr__batch_reserve(tsr__batch *batch, size_t count);
void tsr__batch_hold(tsr__batch *batch, tsr__buffer *buffer);

/* Takes over the caller's reference to `pipeline` until the batch is done; on failure releases it.
 */
tsr_status tsr__batch_hold_pipeline(tsr__batch *batch, tsr__pipeline *pipeline);

/* Releases buffers and pipelines. */
void tsr__batch_retire(tsr__batch *batch);

#endif
