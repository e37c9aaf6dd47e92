/* Reference-counted device memory with an address. */
#ifndef TSR_GPU_MEMORY_BUFFER_H
#define TSR_GPU_MEMORY_BUFFER_H

#include "gpu/device/device.h"

typedef enum tsr__buffer_kind {
    TSR__BUFFER_DEVICE,   /* tensors and scratch: device-local, mapped where device->mapped */
    TSR__BUFFER_UPLOAD,   /* host-visible staging, written by the CPU */
    TSR__BUFFER_READBACK, /* host-visible and cached staging, read by the CPU */
    TSR__BUFFER_SHARED    /* likewise, and within reach of a network; lasting, since it is pinned */
} tsr__buffer_kind;

struct tsr__slab;
struct tsr_stream;

typedef struct tsr__buffer {
    tsr_device *device;
    struct tsr__slab *slab;  /* where it lives, and … */
    uint64_t slab_offset;    /* … where in it */
    uint64_t size_bytes;     /* as asked for */
    uint64_t reserved_bytes; /* as taken from the slab */
    VkBuffer handle;         /* the slab's buffer: add slab_offset to offsets within this one */
    uint64_t address;        /* of this buffer's first byte */
    void *host;              /* of this buffer's first byte, or NULL where not mapped */
    atomic_uint references;
    atomic_uint held; /* … of them by batches */
    atomic_bool left; /* to batches alone, and counted so in last_timeline */
    /* The stream that used the buffer last, and the point at which that use is over; see stream.h.
     */
    struct tsr__timeline *last_timeline;
    uint64_t last_point;
} tsr__buffer;

/* At least 256-byte aligned, one reference held by the caller. size_bytes 0 gets a real, tiny
 * buffer so that addresses stay valid. */
tsr_status tsr__buffer_create(tsr_device *device, tsr__buffer_kind kind, uint64_t size_bytes,
                              tsr__buffer **out);
void tsr__buffer_retain(tsr__buffer *buffer);
void tsr__buffer_release(tsr__buffer *buffer);

/* The same for batches, which keep what their commands use. Memory that only batches keep comes
 * back when they are done: a timeline counts how much there is of it. */
void tsr__buffer_hold(tsr__buffer *buffer);
void tsr__buffer_unhold(tsr__buffer *buffer);

#endif
