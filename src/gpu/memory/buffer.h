/* Reference-counted device memory with an address. */
#ifndef TSR_GPU_MEMORY_BUFFER_H
#define TSR_GPU_MEMORY_BUFFER_H

#include "gpu/device/device.h"

typedef enum tsr__buffer_kind {
    /* for tensors and scratch: device-local, mapped if tsr__memory_is_mapped. If it is not, the
     * host may still be able to write it: buffer->direct. */
    TSR__BUFFER_DEVICE,
    TSR__BUFFER_UPLOAD,   /* host-visible staging, written by the CPU */
    TSR__BUFFER_READBACK, /* host-visible and cached staging, read by the CPU */
    /* As TSR__BUFFER_READBACK. If the device can import host memory, the buffer is ordinary memory
     * of the process, so network interfaces can access it, too. The system cannot move such memory
     * or swap it out, so use this kind for long-lived buffers. */
    TSR__BUFFER_SHARED
} tsr__buffer_kind;

struct tsr__slab;
struct tsr_stream;

typedef struct tsr__buffer {
    tsr_device *device;
    struct tsr__slab *slab;  /* the allocation of which the buffer is a part (slabs.h) */
    uint64_t slab_offset;    /* where the buffer begins in the slab */
    uint64_t size_bytes;     /* the size that was requested */
    uint64_t reserved_bytes; /* the size that the slab has reserved */
    /* the VkBuffer of the whole slab; this buffer begins at slab_offset in it */
    VkBuffer handle;
    uint64_t address; /* the address of this buffer's first byte */
    void *host;       /* the host's address of the first byte; NULL if it is not mapped */
    /* the host's address of the first byte if the host may only write the memory, because reading
     * it over the bus is very slow; otherwise NULL */
    void *direct;
    atomic_uint references;
    atomic_uint held; /* how many of `references` belong to batches */
    /* true if only batches have references, and last_timeline->left_bytes counts the buffer */
    atomic_bool left;
    /* The stream that used the buffer last, and the point at which that use is complete; see
     * device/timeline.h. */
    struct tsr__timeline *last_timeline;
    uint64_t last_point;
} tsr__buffer;

/* Creates a buffer, aligned to at least 256 bytes. The caller gets its only reference. If
 * size_bytes is 0, the buffer still has some memory, so that its address is valid. */
tsr_status tsr__buffer_create(tsr_device *device, tsr__buffer_kind kind, uint64_t size_bytes,
                              tsr__buffer **out);
void tsr__buffer_retain(tsr__buffer *buffer);
void tsr__buffer_release(tsr__buffer *buffer);

/* Retain and release for batches, which keep references to the buffers that their commands use. If
 * only batches have references to a buffer, its memory becomes free when these batches are
 * complete; until then, left_bytes of the buffer's timeline counts it. */
void tsr__buffer_hold(tsr__buffer *buffer);
void tsr__buffer_unhold(tsr__buffer *buffer);

#endif
