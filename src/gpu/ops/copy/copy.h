/* Copies on one device. dst and src have the same shape: src has been broadcast. They must not
 * overlap, unless they are the same view. */
#ifndef TSR_GPU_OPS_COPY_COPY_H
#define TSR_GPU_OPS_COPY_COPY_H

#include "gpu/ops/common/walk.h"

/* Copies with the fastest of the methods below. */
tsr_status tsr__copy_local(tsr_stream *stream, const tsr_tensor *dst,
                           const tsr_tensor *src) TSR_NODISCARD;

/* Whether the host copies immediately. It does so on CPU drivers if it can access both tensors and
 * no recorded work uses them, which is several times as fast as any shader. */
bool tsr__copy_suits_host(const tsr_device *device, const tsr_tensor *dst, const tsr_tensor *src);

/* Whether one vkCmdCopyBuffer region for each row is the fastest method: dst and src have the same
 * dtype, and rows are long and have no gaps. */
bool tsr__copy_rows_suits(const tsr_device *device, const tsr_tensor *dst, const tsr_tensor *src);
tsr_status tsr__copy_rows(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src);

/* Copies any views of any dtypes with shaders. */
tsr_status tsr__copy_shader(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src);

/* Transposes on Mesa's CPU driver. The piece is first divided in two parts, as by
 * tsr__vectors_cut. */
bool tsr__copy_transpose_cut(const tsr__piece *piece, const tsr_tensor *dst, const tsr_tensor *src,
                             tsr__piece *vectors, tsr__piece *rest);
tsr_status tsr__copy_transpose(tsr_stream *stream, const tsr__piece *piece, const tsr_tensor *dst,
                               const tsr_tensor *src) TSR_NODISCARD;

#endif
