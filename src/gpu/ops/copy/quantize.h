/* Copies from floats to block formats. */
#ifndef TSR_GPU_OPS_COPY_QUANTIZE_H
#define TSR_GPU_OPS_COPY_QUANTIZE_H

#include "gpu/stream/stream.h"

/* Quantises src, which has been broadcast to dst's shape and may be on another device. The host
 * does this: the function waits for the work that src depends on. On failure dst is not changed. */
tsr_status tsr__copy_quantize(tsr_stream *stream, tsr_tensor *dst,
                              const tsr_tensor *src) TSR_NODISCARD;

#endif
