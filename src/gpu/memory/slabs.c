/* Slabs of device memory, and the buffers in them; slabs.h describes both. A kind is a
 * tsr__buffer_kind. */
#define _DEFAULT_SOURCE /* for madvise */

#include "gpu/memory/slabs.h"

#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/environment.h"
#include "gpu/device/probe.h"
#include "gpu/device/transfer_queue.h"
#include "gpu/internal.h"
#include "gpu/memory/host_import.h"
#include "gpu/memory/usage.h"

#define PAGE_BYTES (UINT64_C(4) << 10)
#define SLAB_BYTES (UINT64_C(16) << 20)
/* A buffer of at least this size gets its own slab, because it would fill most of a shared one. */
#define DEDICATED_BYTES (UINT64_C(4) << 20)
/* Empty slabs that are kept for later buffers may occupy 1/KEPT_SHARE of their heap. */
#define KEPT_SHARE 16
#define KIND_COUNT 4
/* The sizes of separate slabs (device_memory.separate) are multiples of this. Kernels load aligned
 * groups of four elements, of which the first exists. */
#define SEPARATE_BYTES 32

typedef struct device_memory {
    VkPhysicalDeviceMemoryProperties properties;
    uint32_t type[KIND_COUNT]; /* the memory type of each kind of buffer */
    uint64_t limit_bytes;      /* a limit that the caller has set; 0: none */
    pthread_mutex_t lock;
    tsr__slab *slabs;
    uint64_t allocated_bytes, used_bytes;
    uint64_t most_used_bytes; /* the highest value of used_bytes so far */
    bool mapped;              /* whether the host maps tensors */
    /* whether the host maps tensors to write them, but never reads them through the mapping */
    bool direct;
    /* whether each buffer has a slab of just its size, from TESSERA_SEPARATE_MEMORY: tools that
     * check accesses to memory then notice those beyond the end of a buffer */
    bool separate;
    /* how often any slab has become empty; tsr__slab.emptied is the value at that time */
    uint64_t emptied;
} device_memory;

/* Slabs ---------------------------------------------------------------------------------------- */

static void slab_free(tsr_device *device, tsr__slab *slab)
{
    if (slab->buffer)
        device->vk.DestroyBuffer(device->handle, slab->buffer, NULL);
    if (slab->memory)
        device->vk.FreeMemory(device->handle, slab->memory, NULL);
    tsr__free(slab->own);
    tsr__free(slab->page_map);
    tsr__free(slab);
}

/* The attachment ------------------------------------------------------------------------------- */

/* Returns the memory types to which the library's buffers can be bound. */
static tsr_status allowed_types(tsr_device *device, uint32_t *out)
{
    VkBuffer buffer;
    VkMemoryRequirements requirements;
    TSR__TRY(tsr__memory_create_buffer(device, PAGE_BYTES, NULL, &buffer, &requirements));
    device->vk.DestroyBuffer(device->handle, buffer, NULL);
    *out = requirements.memoryTypeBits;
    return TSR_OK;
}

static tsr_status choose_types(tsr_device *device, device_memory *memory)
{
    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    /* Use only coherent memory, because other memory would need a flush at every use. All known
     * drivers have a coherent type. */
    const VkMemoryPropertyFlags host =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    /* Map tensors only if the host caches the memory, because reading uncached memory is a hundred
     * times slower. On CPU drivers this is not required, because they have only one kind of
     * memory. */
    const VkMemoryPropertyFlags mapped =
        local | host | (device->info.type == TSR_DEVICE_CPU ? 0 : cached);
    uint32_t allowed = 0;
    TSR__TRY(allowed_types(device, &allowed));

    const VkPhysicalDeviceMemoryProperties *properties = &memory->properties;
    uint32_t *type = memory->type;
    memory->mapped = device->wants_mapping;
    if (memory->mapped)
        type[TSR__BUFFER_DEVICE] = tsr__memory_find_type(properties, allowed, mapped, cached, 0);
    if (!memory->mapped || type[TSR__BUFFER_DEVICE] == UINT32_MAX) {
        memory->mapped = false;
        type[TSR__BUFFER_DEVICE] = tsr__memory_find_type(properties, allowed, local, 0, host);
    }
    const uint32_t direct = tsr__transfer_direct_type(properties, allowed);
    memory->direct = !memory->mapped && device->wants_direct_uploads && direct != UINT32_MAX;
    if (memory->direct)
        type[TSR__BUFFER_DEVICE] = direct;
    type[TSR__BUFFER_UPLOAD] = tsr__memory_find_type(properties, allowed, host, 0, local | cached);
    type[TSR__BUFFER_READBACK] = tsr__memory_find_type(properties, allowed, host, cached, local);
    /* the type for TSR__BUFFER_SHARED if host memory cannot be imported */
    type[TSR__BUFFER_SHARED] = type[TSR__BUFFER_READBACK];
    return TSR_OK;
}

static tsr_status create_memory(tsr_device *device, void **out)
{
    device_memory *memory = tsr__calloc(1, sizeof *memory);
    if (!memory)
        return TSR_ERR_NO_MEMORY;
    memory->properties = device->memory_properties;
    memory->limit_bytes = device->memory_limit_bytes;
    memory->separate = tsr__env_switch("TESSERA_SEPARATE_MEMORY");
    tsr_status status = choose_types(device, memory);
    if (status != TSR_OK) {
        tsr__free(memory);
        return status;
    }
    pthread_mutex_init(&memory->lock, NULL);
    *out = memory;
    return TSR_OK;
}

/* Frees all slabs. All buffers must have been released. */
static void destroy_memory(tsr_device *device, void *attachment)
{
    device_memory *memory = attachment;
    while (memory->slabs) {
        tsr__slab *slab = memory->slabs;
        memory->slabs = slab->next;
        slab_free(device, slab);
    }
    pthread_mutex_destroy(&memory->lock);
    tsr__free(memory);
}

static const tsr__attachment_kind memory_kind = {.create = create_memory,
                                                 .destroy = destroy_memory};

static tsr_status memory_of(tsr_device *device, device_memory **out)
{
    void *memory;
    TSR__TRY(tsr__device_attach(device, &memory_kind, &memory));
    *out = memory;
    return TSR_OK;
}

static tsr_status out_of_memory(const tsr_device *device, const device_memory *memory,
                                tsr__buffer_kind kind, uint64_t request, const char *reason,
                                uint64_t reason_bytes)
{
    uint32_t heap = memory->properties.memoryTypes[memory->type[kind]].heapIndex;
    return tsr__fail(
        TSR_ERR_DEVICE_MEMORY,
        "out of device memory on %s: %llu bytes requested from heap %u of %llu bytes; %llu "
        "bytes allocated, %llu of them in use; %s %llu bytes",
        device->info.name, (unsigned long long)request, (unsigned)heap,
        (unsigned long long)memory->properties.memoryHeaps[heap].size,
        (unsigned long long)memory->allocated_bytes, (unsigned long long)memory->used_bytes, reason,
        (unsigned long long)reason_bytes);
}

static uint64_t allocated_in(const device_memory *memory, uint32_t heap)
{
    uint64_t bytes = 0;
    for (const tsr__slab *slab = memory->slabs; slab; slab = slab->next)
        bytes += slab->heap == heap ? slab->size_bytes : 0;
    return bytes;
}

static uint32_t slab_count(const device_memory *memory)
{
    uint32_t count = 0;
    for (const tsr__slab *slab = memory->slabs; slab; slab = slab->next)
        count++;
    return count;
}

/* Returns the budget of a heap (how many bytes of it the process may use), and writes how many are
 * in use. */
static uint64_t budget_of(const tsr_device *device, const device_memory *memory, uint32_t heap,
                          uint64_t *in_use)
{
    tsr_heap_info heaps[TSR__MAX_HEAPS];
    memcpy(heaps, device->facts.heaps, sizeof heaps);
    tsr__probe_budget(device->instance, device->physical, &device->info, heaps);
    *in_use = device->info.memory_budget ? heaps[heap].usage_bytes : allocated_in(memory, heap);
    return heaps[heap].budget_bytes;
}

/* Fails without calling the driver if an allocation cannot succeed, because some drivers then kill
 * the process instead of returning an error. */
static tsr_status check_room(const tsr_device *device, const device_memory *memory,
                             tsr__buffer_kind kind, uint64_t size)
{
    uint64_t total;
    if (size > device->info.max_allocation_bytes)
        return out_of_memory(device, memory, kind, size, "one allocation may have at most",
                             device->info.max_allocation_bytes);
    if (!tsr__add_u64(memory->allocated_bytes, size, &total) ||
        (memory->limit_bytes != 0 && total > memory->limit_bytes))
        return out_of_memory(device, memory, kind, size, "the limit set for this device is",
                             memory->limit_bytes);

    if (slab_count(memory) >= device->max_allocations)
        return tsr__fail(TSR_ERR_DEVICE_MEMORY,
                         "out of device memory on %s: %llu bytes requested; the driver allows %u "
                         "allocations at the same time",
                         device->info.name, (unsigned long long)size, device->max_allocations);

    uint64_t in_use;
    const uint32_t heap = memory->properties.memoryTypes[memory->type[kind]].heapIndex;
    const uint64_t budget = budget_of(device, memory, heap, &in_use);
    if (size > budget || in_use > budget - size)
        return out_of_memory(device, memory, kind, size, "the heap's budget is", budget);
    return TSR_OK;
}

/* Asks the system for pages of 2 MiB, for memory of a driver for the CPU. A model's weights then
 * have a thousand pages instead of half a million, and filling them takes half of the time. Nothing
 * changes if the system does not have such pages. */
static void use_large_pages(const tsr_device *device, const tsr__slab *slab)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t large = (uintptr_t)2 << 20, start = (uintptr_t)slab->host,
                    first = (start + large - 1) / large * large,
                    end = (start + slab->size_bytes) / large * large;
    if (device->info.type == TSR_DEVICE_CPU && end > first)
        (void)madvise((char *)slab->host + (first - start), end - first, MADV_HUGEPAGE);
#else
    (void)device;
    (void)slab;
#endif
}

/* Maps the slab so that the host can write it. If the system has no addresses left for the mapping,
 * uploads to this slab are staged. */
static void map_to_write(tsr_device *device, tsr__slab *slab)
{
    void *host = NULL;
    const VkResult result =
        TSR__VK(&device->vk, MapMemory, device->handle, slab->memory, 0, VK_WHOLE_SIZE, 0, &host);
    if (result < 0) {
        tsr__log(TSR_LOG_INFO, "%s: %llu bytes of its memory cannot be mapped for uploads: %s",
                 device->info.name, (unsigned long long)slab->size_bytes,
                 tsr__vk_result_name(result));
        return;
    }
    slab->host = host;
    slab->write_only = true;
}

static tsr_status slab_allocate(tsr_device *device, const device_memory *memory, tsr__slab *slab)
{
    VkMemoryRequirements requirements;
    TSR__TRY(
        tsr__memory_create_buffer(device, slab->size_bytes, NULL, &slab->buffer, &requirements));
    VkResult result = tsr__memory_allocate(device, requirements.size, memory->type[slab->kind],
                                           NULL, &slab->memory);
    if (result < 0) {
        /* This device object stays within the driver's limit of allocations (check_room).
         * VK_ERROR_TOO_MANY_OBJECTS therefore means that other code in the process has used up a
         * part of the limit. */
        if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_TOO_MANY_OBJECTS)
            return out_of_memory(device, memory, slab->kind, slab->size_bytes,
                                 "vkAllocateMemory refused", slab->size_bytes);
        return tsr__device_fail(device, result, "vkAllocateMemory");
    }
    TSR__DEVICE_TRY(device, BindBufferMemory, device->handle, slab->buffer, slab->memory, 0);
    if (slab->kind == TSR__BUFFER_DEVICE && memory->direct)
        map_to_write(device, slab);
    else if (slab->kind != TSR__BUFFER_DEVICE || memory->mapped) {
        void *host = NULL;
        TSR__DEVICE_TRY(device, MapMemory, device->handle, slab->memory, 0, VK_WHOLE_SIZE, 0,
                        &host);
        slab->host = host;
        use_large_pages(device, slab);
    }
    return TSR_OK;
}

static tsr_status slab_bind(tsr_device *device, const device_memory *memory, tsr__slab *slab)
{
    if (slab->kind == TSR__BUFFER_SHARED)
        TSR__TRY(tsr__host_import(device, &memory->properties, slab));
    if (!slab->memory)
        TSR__TRY(slab_allocate(device, memory, slab));
    VkBufferDeviceAddressInfo address = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
        .buffer = slab->buffer,
    };
    slab->address = device->vk.GetBufferDeviceAddress(device->handle, &address);
    return TSR_OK;
}

static tsr_status slab_create(tsr_device *device, device_memory *memory, tsr__buffer_kind kind,
                              uint64_t size, bool paged, tsr__slab **out)
{
    TSR__TRY(check_room(device, memory, kind, size));
    tsr__slab *slab = tsr__calloc(1, sizeof *slab);
    if (!slab)
        return TSR_ERR_NO_MEMORY;
    slab->kind = kind;
    slab->size_bytes = size;
    slab->heap = memory->properties.memoryTypes[memory->type[kind]].heapIndex;
    if (paged) {
        slab->page_count = size / PAGE_BYTES;
        slab->page_map = tsr__calloc((slab->page_count + 63) / 64, sizeof *slab->page_map);
        if (!slab->page_map) {
            tsr__free(slab);
            return TSR_ERR_NO_MEMORY;
        }
    }
    tsr_status status = slab_bind(device, memory, slab);
    if (status != TSR_OK) {
        slab_free(device, slab);
        return status;
    }
    slab->next = memory->slabs;
    memory->slabs = slab;
    memory->allocated_bytes += size;
    *out = slab;
    return TSR_OK;
}

static void slab_destroy(tsr_device *device, device_memory *memory, tsr__slab *slab)
{
    for (tsr__slab **link = &memory->slabs; *link; link = &(*link)->next)
        if (*link == slab) {
            *link = slab->next;
            break;
        }
    memory->allocated_bytes -= slab->size_bytes;
    slab_free(device, slab);
}

/* Empty slabs ---------------------------------------------------------------------------------- */

/* Returns the smallest empty slab of a single buffer that is at most an eighth larger than `size`,
 * or NULL if there is none. */
static tsr__slab *find_kept(const device_memory *memory, tsr__buffer_kind kind, uint64_t size)
{
    tsr__slab *best = NULL;
    for (tsr__slab *slab = memory->slabs; slab; slab = slab->next)
        if (slab->page_count == 0 && slab->used_bytes == 0 && slab->kind == kind &&
            slab->size_bytes >= size && slab->size_bytes - size <= size / 8 &&
            (!best || slab->size_bytes < best->size_bytes))
            best = slab;
    return best;
}

/* True if the slab is the only slab of pages of its kind. If it is empty, it is always kept, so
 * that a program that repeatedly creates and destroys one tensor does not call the driver each
 * time. */
static bool only_of_kind(const device_memory *memory, const tsr__slab *slab)
{
    for (const tsr__slab *other = memory->slabs; other; other = other->next)
        if (other != slab && other->kind == slab->kind && other->page_count > 0)
            return false;
    return slab->page_count > 0;
}

/* Frees the empty slabs that became empty first, until the others occupy at most 1/KEPT_SHARE of
 * the heap. Some are kept because a program whose steps allocate the same memory again and again
 * would otherwise get new memory each time: operating systems fill new memory with zeros page by
 * page, which takes many times as long as using it. */
static void trim_kept(tsr_device *device, device_memory *memory, uint32_t heap)
{
    for (;;) {
        uint64_t kept = 0;
        tsr__slab *first = NULL;
        for (tsr__slab *slab = memory->slabs; slab; slab = slab->next)
            if (slab->used_bytes == 0 && slab->heap == heap && !only_of_kind(memory, slab)) {
                kept += slab->size_bytes;
                first = first && first->emptied < slab->emptied ? first : slab;
            }
        if (!first || kept <= memory->properties.memoryHeaps[heap].size / KEPT_SHARE)
            return;
        slab_destroy(device, memory, first);
    }
}

/* Frees all empty slabs. Returns false if there were none. */
static bool drop_empty(tsr_device *device, device_memory *memory)
{
    bool any = false;
    tsr__slab *next;
    for (tsr__slab *slab = memory->slabs; slab; slab = next) {
        next = slab->next;
        if (slab->used_bytes == 0) {
            slab_destroy(device, memory, slab);
            any = true;
        }
    }
    return any;
}

/* Pages ---------------------------------------------------------------------------------------- */

static bool page_taken(const tsr__slab *slab, uint64_t page)
{
    return (slab->page_map[page / 64] >> (page % 64)) & 1;
}

static void mark_pages(tsr__slab *slab, uint64_t first, uint64_t count, bool taken)
{
    for (uint64_t page = first; page < first + count; page++) {
        uint64_t bit = UINT64_C(1) << (page % 64);
        if (taken)
            slab->page_map[page / 64] |= bit;
        else
            slab->page_map[page / 64] &= ~bit;
    }
}

/* Finds the first `count` free pages that follow each other. */
static bool find_pages(const tsr__slab *slab, uint64_t count, uint64_t *out)
{
    uint64_t run = 0;
    for (uint64_t page = 0; page < slab->page_count; page++) {
        if (run == 0 && page % 64 == 0 && slab->page_map[page / 64] == UINT64_MAX) {
            page += 63;
            continue;
        }
        run = page_taken(slab, page) ? 0 : run + 1;
        if (run == count) {
            *out = page + 1 - count;
            return true;
        }
    }
    return false;
}

static tsr_status take_pages(tsr_device *device, device_memory *memory, tsr__buffer_kind kind,
                             uint64_t pages, tsr__slab **out_slab, uint64_t *out_page)
{
    for (tsr__slab *slab = memory->slabs; slab; slab = slab->next)
        if (slab->kind == kind && slab->page_count > 0 && find_pages(slab, pages, out_page)) {
            *out_slab = slab;
            return TSR_OK;
        }
    /* Try a slab of SLAB_BYTES first, which later buffers can share. If there is no memory for it,
     * there may still be enough for a slab of only `pages` pages. */
    tsr_status status = slab_create(device, memory, kind, SLAB_BYTES, true, out_slab);
    if (status == TSR_ERR_DEVICE_MEMORY)
        status = slab_create(device, memory, kind, pages * PAGE_BYTES, true, out_slab);
    if (status == TSR_OK)
        *out_page = 0;
    return status;
}

static tsr_status take_locked(tsr_device *device, device_memory *memory, tsr__buffer_kind kind,
                              uint64_t size, tsr__slab **out_slab, uint64_t *out_offset)
{
    if (size >= DEDICATED_BYTES || kind == TSR__BUFFER_SHARED || memory->separate) {
        *out_offset = 0;
        *out_slab = memory->separate ? NULL : find_kept(memory, kind, size);
        return *out_slab ? TSR_OK : slab_create(device, memory, kind, size, false, out_slab);
    }
    uint64_t page = 0;
    uint64_t pages = size / PAGE_BYTES;
    TSR__TRY(take_pages(device, memory, kind, pages, out_slab, &page));
    mark_pages(*out_slab, page, pages, true);
    *out_offset = page * PAGE_BYTES;
    return TSR_OK;
}

tsr_status tsr__memory_take(tsr_device *device, tsr__buffer_kind kind, uint64_t size_bytes,
                            tsr__slab **out_slab, uint64_t *out_offset, uint64_t *out_reserved)
{
    device_memory *memory;
    TSR__TRY(memory_of(device, &memory));
    if (size_bytes > UINT64_MAX - PAGE_BYTES)
        return tsr__fail(TSR_ERR_OVERFLOW, "%llu bytes of device memory do not fit 64 bits",
                         (unsigned long long)size_bytes);
    if (memory->type[kind] == UINT32_MAX)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "%s has no memory for %s", device->info.name,
                         kind == TSR__BUFFER_DEVICE ? "tensors" : "transfers");
    uint64_t size = tsr__align_up_u64(size_bytes, memory->separate ? SEPARATE_BYTES : PAGE_BYTES);
    pthread_mutex_lock(&memory->lock);
    tsr_status status = take_locked(device, memory, kind, size, out_slab, out_offset);
    if (status == TSR_ERR_DEVICE_MEMORY && drop_empty(device, memory))
        status = take_locked(device, memory, kind, size, out_slab, out_offset);
    if (status == TSR_OK) {
        (*out_slab)->used_bytes += size;
        memory->used_bytes += size;
        memory->most_used_bytes = tsr__max_u64(memory->most_used_bytes, memory->used_bytes);
        *out_reserved = size;
    }
    pthread_mutex_unlock(&memory->lock);
    return status;
}

void tsr__memory_give(tsr_device *device, tsr__slab *slab, uint64_t offset, uint64_t reserved)
{
    device_memory *memory = tsr__device_attachment(device, &memory_kind);
    pthread_mutex_lock(&memory->lock);
    slab->used_bytes -= reserved;
    memory->used_bytes -= reserved;
    if (slab->page_count > 0)
        mark_pages(slab, offset / PAGE_BYTES, reserved / PAGE_BYTES, false);
    if (slab->used_bytes == 0 && memory->separate) {
        slab_destroy(device, memory, slab);
    } else if (slab->used_bytes == 0) {
        slab->emptied = ++memory->emptied;
        trim_kept(device, memory, slab->heap);
    }
    pthread_mutex_unlock(&memory->lock);
}

tsr_status tsr__memory_size(tsr_device *device, uint64_t *out)
{
    device_memory *memory;
    TSR__TRY(memory_of(device, &memory));
    const uint32_t type = memory->type[TSR__BUFFER_DEVICE];
    const VkPhysicalDeviceMemoryProperties *properties = &memory->properties;
    uint64_t size = type == UINT32_MAX
                        ? 0
                        : properties->memoryHeaps[properties->memoryTypes[type].heapIndex].size;
    *out = memory->limit_bytes != 0 && memory->limit_bytes < size ? memory->limit_bytes : size;
    return TSR_OK;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Memory of slabs that no buffer uses counts as left, too. */
tsr_status tsr__memory_left(tsr_device *device, uint64_t *out)
{
    device_memory *memory;
    TSR__TRY(memory_of(device, &memory));
    const uint32_t type = memory->type[TSR__BUFFER_DEVICE];
    uint64_t left = 0, in_use;
    if (type != UINT32_MAX) {
        pthread_mutex_lock(&memory->lock);
        const uint64_t unused = minus(memory->allocated_bytes, memory->used_bytes),
                       budget = budget_of(device, memory,
                                          memory->properties.memoryTypes[type].heapIndex, &in_use);
        left = minus(budget, minus(in_use, unused));
        if (memory->limit_bytes != 0)
            left = tsr__min_u64(left, minus(memory->limit_bytes, memory->used_bytes));
        pthread_mutex_unlock(&memory->lock);
    }
    *out = left;
    return TSR_OK;
}

bool tsr__memory_is_mapped(const tsr_device *device)
{
    const device_memory *memory = tsr__device_attachment(device, &memory_kind);
    return memory && memory->mapped;
}

uint64_t tsr__device_most_used(const tsr_device *device)
{
    device_memory *memory = device ? tsr__device_attachment(device, &memory_kind) : NULL;
    if (!memory)
        return 0;
    pthread_mutex_lock(&memory->lock);
    const uint64_t bytes = memory->most_used_bytes;
    pthread_mutex_unlock(&memory->lock);
    return bytes;
}

void tsr_device_memory_usage(const tsr_device *device, uint64_t *allocated_bytes,
                             uint64_t *used_bytes)
{
    uint64_t allocated = 0, used = 0;
    device_memory *memory = device ? tsr__device_attachment(device, &memory_kind) : NULL;
    if (memory) {
        pthread_mutex_lock(&memory->lock);
        allocated = memory->allocated_bytes;
        used = memory->used_bytes;
        pthread_mutex_unlock(&memory->lock);
    }
    if (allocated_bytes)
        *allocated_bytes = allocated;
    if (used_bytes)
        *used_bytes = used;
}
