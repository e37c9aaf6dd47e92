/* The timeline of one stream: a timeline semaphore whose value is the number of completed batches.
 * Such a number is called a point of the timeline. A buffer keeps a reference to the timeline of
 * its last use, perhaps longer than the stream exists; therefore timelines are reference-counted.
 *
 * Semaphores are destroyed only together with the device, because a driver's submission thread
 * (Mesa's) may still read the semaphores of a submission that is complete. When a timeline is
 * released, it is kept as a spare; the next stream uses its semaphore and continues with its
 * values. */
#ifndef TSR_GPU_DEVICE_TIMELINE_H
#define TSR_GPU_DEVICE_TIMELINE_H

#include "gpu/device/device.h"

struct tsr__timeline {
    VkSemaphore semaphore;
    struct tsr_stream *stream; /* NULL after the stream was destroyed; its work is then complete */
    uint64_t submitted;        /* the point of the last batch submitted to the device */
    uint64_t reached;          /* the last point that is known to be reached */
    /* The total size of the buffers that were last used on this timeline and to which only batches
     * still have references. */
    atomic_uint_fast64_t left_bytes;
    unsigned references;
    struct tsr__timeline *next; /* the next one in the list of spare timelines */
};

tsr_status tsr__timeline_create(tsr_device *device, struct tsr_stream *stream, tsr__timeline **out);
void tsr__timeline_retain(tsr__timeline *timeline);
void tsr__timeline_release(tsr_device *device, tsr__timeline *timeline);
/* Destroys the spare timelines. The queue must be idle, and no timeline may be released later. */
void tsr__timelines_destroy_spare(tsr_device *device);

/* Updates `reached` from the device, without blocking. */
tsr_status tsr__timeline_poll(tsr_device *device, tsr__timeline *timeline);
/* Blocks until the device reaches `point`, which must have been submitted. Returns TSR_ERR_TIMEOUT
 * after `timeout_ns`. */
tsr_status tsr__timeline_wait(tsr_device *device, tsr__timeline *timeline, uint64_t point,
                              uint64_t timeout_ns);

#endif
