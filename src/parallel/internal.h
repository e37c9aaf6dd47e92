/* What models (src/model) use of this module besides the public headers. */
#ifndef TSR_PARALLEL_INTERNAL_H
#define TSR_PARALLEL_INTERNAL_H

#include "base/error.h"
#include "tessera/fsdp.h"

/* fsdp/pass.c: Ends the use of a unit whose pass has failed, and discards the gradients of that
 * pass. */
void tsr__fsdp_abandon(tsr_fsdp *model, int unit);

#endif
