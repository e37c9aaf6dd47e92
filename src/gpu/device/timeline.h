/* The clock of one stream: a timeline semaphore whose value is the number of batches done. Buffers
 * keep the timeline of their last use, which may outlive the stream; hence the reference count.
 *
 * Semaphores live as long as the device and serve one timeline after another, counting on: a
 * driver's submission thread (Mesa's) may still look at those of a submission that has ended. */
#ifndef TSR_GPU_DEVICE_TIMELINE_H
#define TSR_GPU_DEVICE_TIMELINE_H

#include "gpu/device/device.h"

struct tsr__timeline {
    VkSemaphore semaphore;
    struct tsr_stream *stream; /* NULL once the stream is gone, and with it all unfinished work */
    uint64_t submitted;        /* the last point handed to the device */
    uint64_t reached;          /* the last point known to be done */
    /* Of buffers last used here that nobody but batches keeps. */
    atomic_uint_fast64_t left_bytes;
    unsigned references;
    struct tsr__timeline *next; /* of the spare ones */
};

tsr_status tsr__timeline_create(tsr_device *device, struct tsr_stream *stream, tsr__timeline **out);
void tsr__timeline_retain(tsr__timeline *timeline);
void tsr__timeline_release(tsr_device *device, tsr__timeline *timeline);
/* Once the queue is idle, and no other is to be released. */
void tsr__timelines_destroy_spare(tsr_device *device);

/* Asks the device how far it is. */
tsr_status tsr__timeline_poll(tsr_device *device, tsr__timeline *timeline);
/* Waits for a submitted point. */
tsr_status tsr__timeline_wait(tsr_device *device, tsr__timeline *timeline, uint64_t point,
                              uint64_t timeout_ns);

#endif
