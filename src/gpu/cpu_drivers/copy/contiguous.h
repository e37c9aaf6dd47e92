/* Makes transposed inputs contiguous before an operation on Mesa's CPU driver, which reads
 * neighbouring elements tens of times as fast as scattered ones. */
#ifndef TSR_GPU_CPU_DRIVERS_COPY_CONTIGUOUS_H
#define TSR_GPU_CPU_DRIVERS_COPY_CONTIGUOUS_H

#include "gpu/memory/tensor.h"
#include "gpu/stream/stream.h"

#define TSR__MAX_CONTIGUOUS 3

/* The inputs of an operation. All have y's shape, and each is either the caller's tensor or a
 * contiguous copy of it. Copies are tensors and not scratch memory, because a stream provides
 * scratch memory only before an operation's first command. */
typedef struct tsr__contiguous {
    int count;
    tsr_tensor input[TSR__MAX_CONTIGUOUS]; /* aliases */
    tsr_tensor *packed[TSR__MAX_CONTIGUOUS];
} tsr__contiguous;

/* Replaces inputs by contiguous copies if that makes the operation faster, including the time of
 * the copies. On entry, `out` contains the inputs and no copies. Call tsr__contiguous_finish after
 * the operation has been recorded, also after a failure. */
tsr_status tsr__make_contiguous(tsr_stream *stream, const tsr_tensor *y,
                                tsr__contiguous *out) TSR_NODISCARD;
void tsr__contiguous_finish(tsr__contiguous *inputs);

#endif
