/* Copies between tensors of one device. src has been broadcast to dst's shape. The tensors must not
 * overlap, except if they are the same view. */
#ifndef TSR_GPU_OPS_COPY_COPY_H
#define TSR_GPU_OPS_COPY_COPY_H

#include "gpu/ops/common/walk.h"

/* Copies with the fastest of the methods below. */
tsr_status tsr__copy_local(tsr_stream *stream, const tsr_tensor *dst,
                           const tsr_tensor *src) TSR_NODISCARD;

/* True if the host should copy immediately. It should on CPU drivers if it can access both tensors
 * and no recorded work uses them; this is several times as fast as any shader. */
bool tsr__copy_suits_host(const tsr_device *device, const tsr_tensor *dst, const tsr_tensor *src);

/* True if the fastest method is a vkCmdCopyBuffer with one region for each row. This requires that
 * dst and src have the same dtype and that rows are long and have no gaps. */
bool tsr__copy_rows_suits(const tsr_device *device, const tsr_tensor *dst, const tsr_tensor *src);
tsr_status tsr__copy_rows(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src);

/* Copies with shaders. Supports all views and dtypes. */
tsr_status tsr__copy_shader(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src);

#endif
