/* Reference-counted device memory with an address. */
#ifndef TSR_GPU_MEMORY_BUFFER_H
#define TSR_GPU_MEMORY_BUFFER_H

#include "gpu/device/device.h"

typedef enum tsr__buffer_kind {
    TSR__BUFFER_DEVICE,   /* tensors and scratch: device-local, mapped if tsr__memory_is_mapped */
    TSR__BUFFER_UPLOAD,   /* host-visible staging, written by the CPU */
    TSR__BUFFER_READBACK, /* host-visible and cached staging, read by the CPU */
    TSR__BUFFER_SHARED    /* as READBACK, but reachable for a network if the device can import host
                             memory; pinned, so long-lived */
} tsr__buffer_kind;

struct tsr__slab;
struct tsr_stream;

typedef struct tsr__buffer {
    tsr_device *device;
    struct tsr__slab *slab;  /* the slab that contains the buffer */
    uint64_t slab_offset;    /* the buffer's offset in it */
    uint64_t size_bytes;     /* as requested */
    uint64_t reserved_bytes; /* as taken from the slab */
    VkBuffer handle;         /* the slab's buffer: add slab_offset to offsets within this buffer */
    uint64_t address;        /* of this buffer's first byte */
    void *host;              /* of this buffer's first byte; NULL if it is not mapped */
    atomic_uint references;
    atomic_uint held; /* references held by batches */
    atomic_bool left; /* only batches still hold it, and last_timeline counts its bytes */
    /* The stream that used the buffer last, and the point at which that use is complete; see
     * stream.h. */
    struct tsr__timeline *last_timeline;
    uint64_t last_point;
} tsr__buffer;

/* Creates a buffer, aligned to 256 bytes or more, with one reference, which the caller holds. With
 * size_bytes 0 it has some memory, too, so that its address is valid. */
tsr_status tsr__buffer_create(tsr_device *device, tsr__buffer_kind kind, uint64_t size_bytes,
                              tsr__buffer **out);
void tsr__buffer_retain(tsr__buffer *buffer);
void tsr__buffer_release(tsr__buffer *buffer);

/* As retain and release, for batches, which hold what their commands use. The memory of a buffer
 * that only batches hold becomes free when they are complete; its timeline counts these bytes. */
void tsr__buffer_hold(tsr__buffer *buffer);
void tsr__buffer_unhold(tsr__buffer *buffer);

#endif
