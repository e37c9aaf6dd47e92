/* Transposed inputs on Mesa's CPU driver, which reads neighbours tens of times as fast as what lies
 * apart: copied to scratch memory in the order of the result. */
#ifndef TSR_GPU_OPS_STRAIGHTEN_H
#define TSR_GPU_OPS_STRAIGHTEN_H

#include "gpu/stream.h"

/* inputs[0 … count − 1], of which there are at most two, have y's shape; those that are worth it
 * become packed copies, which are the stream's until the operation has been recorded. Asks for
 * scratch, so before the operation has recorded anything. */
tsr_status tsr__straighten(tsr_stream *stream, const tsr_tensor *y, tsr_tensor *inputs,
                           int count) TSR_NODISCARD;

#endif
