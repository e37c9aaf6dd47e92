/* Deferred collectives (deferred.c), which models use. */
#ifndef TSR_PARALLEL_GROUP_DEFERRED_H
#define TSR_PARALLEL_GROUP_DEFERRED_H

#include "base/error.h"
#include "tessera/group.h"

/* Between these calls the group's collectives are deferred where they can be: the call returns
 * before the operation has taken place, without a request, and what is recorded later runs
 * after it. Operations that take place later and fail, fail the group. In between, the caller
 * must not use the group's communicator before it has waited for the stream. */
void tsr__group_defer_begin(tsr_group *group);
/* Returns when all deferred operations have taken place. If one has failed, returns its error. */
tsr_status tsr__group_defer_end(tsr_group *group) TSR_NODISCARD;

#endif
