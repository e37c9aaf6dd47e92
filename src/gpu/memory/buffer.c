#include "gpu/memory/buffer.h"

#include "base/alloc.h"
#include "gpu/device/timeline.h"
#include "gpu/memory/slabs.h"

tsr_status tsr__buffer_create(tsr_device *device, tsr__buffer_kind kind, uint64_t size_bytes,
                              tsr__buffer **out)
{
    TSR__TRY(tsr__device_check(device));
    tsr__buffer *buffer = tsr__calloc(1, sizeof *buffer);
    if (!buffer)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__memory_take(device, kind, size_bytes ? size_bytes : 1, &buffer->slab,
                                         &buffer->slab_offset, &buffer->reserved_bytes);
    if (status != TSR_OK) {
        tsr__free(buffer);
        return status;
    }
    buffer->device = device;
    buffer->size_bytes = size_bytes;
    buffer->handle = buffer->slab->buffer;
    buffer->address = buffer->slab->address + buffer->slab_offset;
    void *mapped = buffer->slab->host ? buffer->slab->host + buffer->slab_offset : NULL;
    buffer->host = buffer->slab->write_only ? NULL : mapped;
    buffer->direct = buffer->slab->write_only ? mapped : NULL;
    atomic_init(&buffer->references, 1);
    atomic_init(&buffer->held, 0);
    atomic_init(&buffer->left, false);
    tsr__device_retain(device);
    *out = buffer;
    return TSR_OK;
}

void tsr__buffer_retain(tsr__buffer *buffer)
{
    atomic_fetch_add(&buffer->references, 1);
}

static void drop_reference(tsr__buffer *buffer)
{
    if (atomic_fetch_sub(&buffer->references, 1) > 1)
        return;
    tsr_device *device = buffer->device;
    if (atomic_load(&buffer->left))
        atomic_fetch_sub(&buffer->last_timeline->left_bytes, buffer->reserved_bytes);
    tsr__timeline_release(device, buffer->last_timeline);
    tsr__memory_give(device, buffer->slab, buffer->slab_offset, buffer->reserved_bytes);
    tsr__free(buffer);
    tsr__device_release(device);
}

void tsr__buffer_release(tsr__buffer *buffer)
{
    if (!buffer || tsr__device_is_inherited(buffer->device))
        return;
    /* If two threads release references at the same time, each may still count the other's
     * reference. left_bytes then lacks this buffer, which only lets the stream record a little more
     * before it waits. */
    const unsigned held = atomic_load(&buffer->held);
    if (held > 0 && atomic_load(&buffer->references) == held + 1 &&
        !atomic_exchange(&buffer->left, true))
        atomic_fetch_add(&buffer->last_timeline->left_bytes, buffer->reserved_bytes);
    drop_reference(buffer);
}

void tsr__buffer_hold(tsr__buffer *buffer)
{
    tsr__buffer_retain(buffer);
    atomic_fetch_add(&buffer->held, 1);
}

void tsr__buffer_unhold(tsr__buffer *buffer)
{
    atomic_fetch_sub(&buffer->held, 1);
    drop_reference(buffer);
}
