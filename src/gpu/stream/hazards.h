/* Which accesses of a stream are not behind a barrier yet: a barrier is recorded only where a
 * command depends on one of them. */
#ifndef TSR_GPU_STREAM_HAZARDS_H
#define TSR_GPU_STREAM_HAZARDS_H

#include "gpu/stream/stream.h"

#define TSR__HAZARDS_MAX 64

typedef struct tsr__hazards {
    int count;
    tsr__access access[TSR__HAZARDS_MAX];
} tsr__hazards;

/* True when one of the accesses must wait for one of those pending (or there is no room to remember
 * them). */
bool tsr__hazards_conflict(const tsr__hazards *pending, const tsr__access *access, int count);
/* Remembers accesses; after a conflict the caller has recorded a barrier and cleared first. */
void tsr__hazards_add(tsr__hazards *pending, const tsr__access *access, int count);
void tsr__hazards_clear(tsr__hazards *pending);

#endif
