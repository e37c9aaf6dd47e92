#include "gpu/stream/hazards.h"

#include "tensor/overlap.h"

static tsr__access access_of(const tsr_tensor *tensor, bool write)
{
    tsr__extent extent = tsr__layout_extent(&tensor->layout);
    return (tsr__access){tensor->buffer, extent.begin_bytes, extent.end_bytes, write};
}

tsr__access tsr__read_of(const tsr_tensor *tensor)
{
    return access_of(tensor, false);
}

tsr__access tsr__write_of(const tsr_tensor *tensor)
{
    return access_of(tensor, true);
}

static tsr__access whole(tsr__buffer *buffer, bool write)
{
    return (tsr__access){buffer, 0, buffer->reserved_bytes, write};
}

tsr__access tsr__read_buffer(tsr__buffer *buffer)
{
    return whole(buffer, false);
}

tsr__access tsr__write_buffer(tsr__buffer *buffer)
{
    return whole(buffer, true);
}

uint64_t tsr__access_address(tsr__access access)
{
    return access.buffer->address + access.begin_bytes;
}

static bool depends(const tsr__access *earlier, const tsr__access *later)
{
    return earlier->buffer == later->buffer && (earlier->write || later->write) &&
           earlier->begin_bytes < later->end_bytes && later->begin_bytes < earlier->end_bytes;
}

bool tsr__hazards_conflict(const tsr__hazards *pending, const tsr__access *access, int count,
                           uint32_t independent_group)
{
    if (pending->count + count > TSR__HAZARDS_MAX)
        return true;
    for (int i = 0; i < pending->count; i++)
        for (int j = 0; j < count; j++)
            if ((independent_group == 0 || independent_group != pending->independent_group[i]) &&
                depends(&pending->access[i], &access[j]))
                return true;
    return false;
}

void tsr__hazards_add(tsr__hazards *pending, const tsr__access *access, int count,
                      uint32_t independent_group)
{
    for (int i = 0; i < count; i++) {
        pending->independent_group[pending->count] = independent_group;
        pending->access[pending->count++] = access[i];
    }
}

void tsr__hazards_clear(tsr__hazards *pending)
{
    pending->count = 0;
}
