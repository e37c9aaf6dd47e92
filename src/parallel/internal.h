/* What models (src/model) use of this module besides the public headers. */
#ifndef TSR_PARALLEL_INTERNAL_H
#define TSR_PARALLEL_INTERNAL_H

#include "base/error.h"
#include "tessera/fsdp.h"

/* fsdp/pass.c: Ends the use of a unit whose pass has failed, and discards the gradients of that
 * pass. */
void tsr__fsdp_abandon(tsr_fsdp *model, int unit);

/* layers/layer.c: Records writing the initial values of elements first, first + 1, … of this rank's
 * shard of parameter `index`, in row-major order, to `out`, a contiguous tensor of one dimension.
 * They are the values that the layer is created with. */
tsr_status tsr__layer_initial(const tsr_layer *layer, int index, tsr_stream *stream, int64_t first,
                              tsr_tensor *out) TSR_NODISCARD;

#endif
