/* Device memory. Buffers are allocated in pages from slabs. A slab has one VkBuffer and, if its
 * memory type is host-visible, one mapping, which is never unmapped. Large buffers get a slab of
 * their own. Some of these are kept when they are released, since allocation by the driver is slow.
 * Thread-safe. */
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
    uint8_t *host; /* NULL if it is not mapped */
    void *own;     /* the process's own memory that contains `host`, or NULL: host_import.h */
    uint64_t size_bytes;
    uint64_t used_bytes;
    uint64_t page_count; /* 0: the slab is for a single buffer */
    uint64_t *page_map;  /* one bit for each page, set if the page is taken */
    uint64_t emptied;    /* in a single-buffer slab: the order of emptying */
} tsr__slab;

/* Creates a buffer with the usage flags that all our buffers have, and gives its memory
 * requirements. `next` extends the create info. */
tsr_status tsr__memory_create_buffer(tsr_device *device, uint64_t size, const void *next,
                                     VkBuffer *out,
                                     VkMemoryRequirements *requirements) TSR_NODISCARD;
/* Allocates memory that such a buffer can be bound to, and returns the driver's result. On failure
 * *out is VK_NULL_HANDLE. */
VkResult tsr__memory_allocate(tsr_device *device, uint64_t size, uint32_t type, const void *next,
                              VkDeviceMemory *out);

/* Finds the first allowed memory type with all flags of `required`. Types that also have `wanted`
 * come first, then those without `unwanted`. UINT32_MAX: there is none. */
uint32_t tsr__memory_find_type(const VkPhysicalDeviceMemoryProperties *properties, uint32_t allowed,
                               VkMemoryPropertyFlags required, VkMemoryPropertyFlags wanted,
                               VkMemoryPropertyFlags unwanted);

/* Takes a range of a slab, and gives it back. size_bytes is not 0. */
tsr_status tsr__memory_take(tsr_device *device, tsr__buffer_kind kind, uint64_t size_bytes,
                            tsr__slab **out_slab, uint64_t *out_offset, uint64_t *out_reserved);
void tsr__memory_give(tsr_device *device, tsr__slab *slab, uint64_t offset, uint64_t reserved);

/* Gives the size in bytes of the heap that tensors are allocated from, or the caller's limit if
 * that is lower. */
tsr_status tsr__memory_size(tsr_device *device, uint64_t *out) TSR_NODISCARD;

/* True if the host maps tensors. Valid only after the device's first stream or buffer. */
bool tsr__memory_is_mapped(const tsr_device *device);

#endif
