/* Device memory: slabs of pages that buffers are cut from, one VkBuffer and (where the type is host
 * visible) one lasting mapping per slab. Large buffers get a slab of their own, some of which are
 * kept when they are given back: drivers take long to make memory. Thread-safe. */
#ifndef TSR_GPU_MEMORY_MEMORY_H
#define TSR_GPU_MEMORY_MEMORY_H

#include "gpu/memory/buffer.h"

typedef struct tsr__slab {
    struct tsr__slab *next;
    tsr__buffer_kind kind;
    uint32_t heap;
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint64_t address;
    uint8_t *host; /* NULL where not mapped */
    void *own;     /* what `host` is a part of where it is the process's own: host_import.h */
    uint64_t size_bytes;
    uint64_t used_bytes;
    uint64_t page_count; /* 0 for a slab of one buffer */
    uint64_t *page_map;  /* one bit per page, set when taken */
    uint64_t emptied;    /* a slab of no buffer: the higher, the later it was given back */
} tsr__slab;

/* A buffer as all of tessera's are, and what memory it needs. `next` extends what is asked for. */
tsr_status tsr__memory_create_buffer(tsr_device *device, uint64_t size, const void *next,
                                     VkBuffer *out,
                                     VkMemoryRequirements *requirements) TSR_NODISCARD;
/* Memory that such a buffer can be bound to; the driver's answer. On failure *out is no memory. */
VkResult tsr__memory_allocate(tsr_device *device, uint64_t size, uint32_t type, const void *next,
                              VkDeviceMemory *out);

/* The first allowed type with all of `required`, preferring one with `wanted` as well and without
 * `unwanted`; UINT32_MAX: there is none. */
uint32_t tsr__memory_find_type(const VkPhysicalDeviceMemoryProperties *properties, uint32_t allowed,
                               VkMemoryPropertyFlags required, VkMemoryPropertyFlags wanted,
                               VkMemoryPropertyFlags unwanted);

/* A range of a slab. size_bytes is not 0. */
tsr_status tsr__memory_take(tsr_device *device, tsr__buffer_kind kind, uint64_t size_bytes,
                            tsr__slab **out_slab, uint64_t *out_offset, uint64_t *out_reserved);
void tsr__memory_give(tsr_device *device, tsr__slab *slab, uint64_t offset, uint64_t reserved);

/* The size in bytes of the heap that tensors are allocated from, or the caller's limit if that is
 * lower. */
tsr_status tsr__memory_size(tsr_device *device, uint64_t *out) TSR_NODISCARD;

/* Whether tensors are in memory that the host maps. Only meaningful once the device has a stream or
 * a buffer. */
bool tsr__memory_is_mapped(const tsr_device *device);

#endif
