/* The accesses to buffers that a stream has recorded since its last barrier. A barrier is recorded
 * only before a command that depends on one of these accesses. */
#ifndef TSR_GPU_STREAM_HAZARDS_H
#define TSR_GPU_STREAM_HAZARDS_H

#include "gpu/stream/stream.h"

#define TSR__HAZARDS_MAX 64

typedef struct tsr__hazards {
    int count;
    tsr__access access[TSR__HAZARDS_MAX];
    /* for each access, the member `independent_group` of its dispatch (tsr__dispatch): accesses of
     * dispatches with the same number other than 0 do not conflict */
    uint32_t independent_group[TSR__HAZARDS_MAX];
} tsr__hazards;

/* True if one of the accesses of a command must wait for a pending access, or if there is no room
 * to add the accesses. */
bool tsr__hazards_conflict(const tsr__hazards *pending, const tsr__access *access, int count,
                           uint32_t independent_group);
/* Adds the accesses of a command to the pending ones. If tsr__hazards_conflict was true, the caller
 * must first have recorded a barrier and called tsr__hazards_clear. */
void tsr__hazards_add(tsr__hazards *pending, const tsr__access *access, int count,
                      uint32_t independent_group);
void tsr__hazards_clear(tsr__hazards *pending);

#endif
