/* Copies on one device. dst and src have one shape: broadcasting has been done. They do not
 * overlap, unless they are the same view. */
#ifndef TSR_GPU_OPS_COPY_COPY_H
#define TSR_GPU_OPS_COPY_COPY_H

#include "gpu/ops/common/walk.h"

/* Copies in the fastest of the ways below. */
tsr_status tsr__copy_local(tsr_stream *stream, const tsr_tensor *dst,
                           const tsr_tensor *src) TSR_NODISCARD;

/* Whether the host copies at once, as it does on CPU drivers where it can access both tensors and
 * no recorded work uses them: that is several times as fast as any shader. */
bool tsr__copy_suits_host(const tsr_device *device, const tsr_tensor *dst, const tsr_tensor *src);

/* Whether one vkCmdCopyBuffer region for each row is the fastest way: dst and src have one dtype,
 * and rows are long and without gaps. */
bool tsr__copy_rows_suits(const tsr_device *device, const tsr_tensor *dst, const tsr_tensor *src);
tsr_status tsr__copy_rows(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src);

/* Copies any views of any dtypes, by shader. */
tsr_status tsr__copy_shader(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src);

/* Transposes on Mesa's CPU driver. A piece is first cut in two, as by tsr__vectors_cut. */
bool tsr__copy_transpose_cut(const tsr__piece *piece, const tsr_tensor *dst, const tsr_tensor *src,
                             tsr__piece *vectors, tsr__piece *rest);
tsr_status tsr__copy_transpose(tsr_stream *stream, const tsr__piece *piece, const tsr_tensor *dst,
                               const tsr_tensor *src) TSR_NODISCARD;

#endif
