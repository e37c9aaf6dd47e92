/* Transposed inputs on Mesa's CPU driver, which reads neighbours tens of times as fast as what lies
 * apart: copied in the order of the result. */
#ifndef TSR_GPU_CPU_DRIVERS_COPY_CONTIGUOUS_H
#define TSR_GPU_CPU_DRIVERS_COPY_CONTIGUOUS_H

#include "gpu/memory/tensor.h"
#include "gpu/stream/stream.h"

#define TSR__MAX_CONTIGUOUS 2

/* Inputs of y's shape: the caller's, or packed copies of them. Not scratch: the operation whose
 * part this is may have scratch already, which a stream lends before the first command only. */
typedef struct tsr__contiguous {
    int count;
    tsr_tensor input[TSR__MAX_CONTIGUOUS]; /* aliases */
    tsr_tensor *packed[TSR__MAX_CONTIGUOUS];
} tsr__contiguous;

/* `out` starts as the inputs, with no copies. Copies those that are worth it; to be finished in any
 * case, when the operation has been recorded. */
tsr_status tsr__make_contiguous(tsr_stream *stream, const tsr_tensor *y,
                                tsr__contiguous *out) TSR_NODISCARD;
void tsr__contiguous_finish(tsr__contiguous *inputs);

#endif
