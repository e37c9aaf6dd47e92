/* Device memory. Buffers are ranges of pages in slabs. A slab has one VkBuffer. If its memory type
 * is host-visible, it also has one mapping, which is never unmapped. A large buffer has its own
 * slab. Some empty slabs are kept, because allocation by the driver is slow. Thread-safe. */
#ifndef TSR_GPU_MEMORY_SLABS_H
#define TSR_GPU_MEMORY_SLABS_H

#include "gpu/memory/buffer.h"

typedef struct tsr__slab {
    struct tsr__slab *next;
    tsr__buffer_kind kind;
    uint32_t heap;
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint64_t address;
    uint8_t *host;   /* the slab's mapping; NULL if it is not mapped */
    bool write_only; /* the host must not read the mapping: it is device memory over a bus */
    /* the allocation of the process that contains `host` if the memory is imported (host_import.h),
     * or NULL */
    void *own;
    uint64_t size_bytes;
    uint64_t used_bytes;
    uint64_t page_count; /* the number of pages; 0 if the slab is for a single buffer */
    uint64_t *page_map;  /* one bit for each page, set if the page is taken */
    /* grows with each slab that becomes empty, so the lowest value marks the slab that has been
     * empty longest */
    uint64_t emptied;
} tsr__slab;

/* Creates a VkBuffer with the usage flags of all buffers of this library, and returns its memory
 * requirements. `next` extends the create info. */
tsr_status tsr__memory_create_buffer(tsr_device *device, uint64_t size, const void *next,
                                     VkBuffer *out,
                                     VkMemoryRequirements *requirements) TSR_NODISCARD;
/* Allocates memory to which a VkBuffer of tsr__memory_create_buffer can be bound, and returns the
 * driver's result. On failure *out is VK_NULL_HANDLE. */
VkResult tsr__memory_allocate(tsr_device *device, uint64_t size, uint32_t type, const void *next,
                              VkDeviceMemory *out);

/* Returns the first allowed memory type that has all flags of `required`. Prefers types that also
 * have `wanted`; among equal ones, types without `unwanted`. Returns UINT32_MAX if no allowed type
 * has `required`. */
uint32_t tsr__memory_find_type(const VkPhysicalDeviceMemoryProperties *properties, uint32_t allowed,
                               VkMemoryPropertyFlags required, VkMemoryPropertyFlags wanted,
                               VkMemoryPropertyFlags unwanted);

/* tsr__memory_take reserves a range of a slab for a buffer, tsr__memory_give gives it back.
 * size_bytes must not be 0. */
tsr_status tsr__memory_take(tsr_device *device, tsr__buffer_kind kind, uint64_t size_bytes,
                            tsr__slab **out_slab, uint64_t *out_offset, uint64_t *out_reserved);
void tsr__memory_give(tsr_device *device, tsr__slab *slab, uint64_t offset, uint64_t reserved);

/* Returns the size in bytes of the heap from which tensors are allocated, or the limit that the
 * caller has set if that is lower. */
tsr_status tsr__memory_size(tsr_device *device, uint64_t *out) TSR_NODISCARD;

/* True if the host maps tensors. Valid only after the device's first stream or buffer. */
bool tsr__memory_is_mapped(const tsr_device *device);

#endif
