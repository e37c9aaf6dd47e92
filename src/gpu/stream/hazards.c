#include "gpu/stream/hazards.h"

static bool depends(const tsr__access *earlier, const tsr__access *later)
{
    return earlier->buffer == later->buffer && (earlier->write || later->write) &&
           earlier->begin_bytes < later->end_bytes && later->begin_bytes < earlier->end_bytes;
}

bool tsr__hazards_conflict(const tsr__hazards *pending, const tsr__access *access, int count)
{
    if (pending->count + count > TSR__HAZARDS_MAX)
        return true;
    for (int i = 0; i < pending->count; i++)
        for (int j = 0; j < count; j++)
            if (depends(&pending->access[i], &access[j]))
                return true;
    return false;
}

void tsr__hazards_add(tsr__hazards *pending, const tsr__access *access, int count)
{
    for (int i = 0; i < count; i++)
        pending->access[pending->count++] = access[i];
}

void tsr__hazards_clear(tsr__hazards *pending)
{
    pending->count = 0;
}
