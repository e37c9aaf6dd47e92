/* What the operations that draw random numbers share. */
#ifndef TSR_GPU_OPS_RANDOM_RANDOM_H
#define TSR_GPU_OPS_RANDOM_RANDOM_H

#include "gpu/stream/stream.h"
#include "shaders/params/random.h"
#include "tessera/ops.h"

/* Checks y and the params, and makes of the params a layout of y's shape whose strides are the
 * index strides and whose offset is 0: it walks beside y as one more operand. */
tsr_status tsr__random_check(const char *op, const tsr_stream *stream, const tsr_tensor *y,
                             const tsr_random_params *params, tsr_layout *index);

/* Records `shader` over y (and x, where not NULL, of y's shape). spec_count constants follow the
 * workgroup size and DENSE; of `push`, what distributes words over elements is filled in here. */
tsr_status tsr__random_record(tsr_stream *stream, tsr__shader shader, const uint32_t *spec,
                              int spec_count, tsr_tensor *y, const tsr_tensor *x,
                              const tsr_random_params *params, const tsr_layout *index,
                              struct tsr_random_fill_params push);

#endif
