/* The timeline of one stream: a timeline semaphore whose value is the number of completed batches.
 * A buffer keeps the timeline of its last use, and may keep it longer than the stream exists, so
 * timelines are reference-counted.
 *
 * A semaphore exists as long as the device. When a timeline is released, the next one continues
 * with its semaphore and its values: a driver's submission thread (Mesa's) may still read the
 * semaphores of a submission that has ended. */
#ifndef TSR_GPU_DEVICE_TIMELINE_H
#define TSR_GPU_DEVICE_TIMELINE_H

#include "gpu/device/device.h"

struct tsr__timeline {
    VkSemaphore semaphore;
    struct tsr_stream *stream; /* NULL after the stream is destroyed; then no work is unfinished */
    uint64_t submitted;        /* the last point submitted to the device */
    uint64_t reached;          /* the last point known to be done */
    /* Bytes of the buffers last used here that only batches still hold. */
    atomic_uint_fast64_t left_bytes;
    unsigned references;
    struct tsr__timeline *next; /* in the list of spare timelines */
};

tsr_status tsr__timeline_create(tsr_device *device, struct tsr_stream *stream, tsr__timeline **out);
void tsr__timeline_retain(tsr__timeline *timeline);
void tsr__timeline_release(tsr_device *device, tsr__timeline *timeline);
/* Destroys the spare timelines. The queue must be idle, and no timeline may be released later. */
void tsr__timelines_destroy_spare(tsr_device *device);

/* Updates `reached` from the device, without blocking. */
tsr_status tsr__timeline_poll(tsr_device *device, tsr__timeline *timeline);
/* Blocks until a submitted point is reached, for at most `timeout_ns`: TSR_ERR_TIMEOUT. */
tsr_status tsr__timeline_wait(tsr_device *device, tsr__timeline *timeline, uint64_t point,
                              uint64_t timeout_ns);

#endif
