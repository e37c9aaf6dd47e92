/* Chooses the fastest method to copy between tensors of one device. */
#include "gpu/host/copy.h"
#include "gpu/ops/copy/copy.h"

bool tsr__copy_suits_host(const tsr_device *device, const tsr_tensor *dst, const tsr_tensor *src)
{
    return device->host_copies && tsr__copy_host_knows(dst->layout.dtype, src->layout.dtype) &&
           dst->buffer->host && src->buffer->host && tsr__buffer_idle(dst->buffer) &&
           tsr__buffer_idle(src->buffer);
}

tsr_status tsr__copy_local(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src)
{
    const tsr_device *device = tsr_stream_device(stream);
    if (tsr__copy_suits_host(device, dst, src)) {
        tsr__copy_host(&dst->layout, dst->buffer->host, &src->layout, src->buffer->host);
        return TSR_OK;
    }
    if (tsr__copy_rows_suits(device, dst, src))
        return tsr__copy_rows(stream, dst, src);
    return tsr__copy_shader(stream, dst, src);
}
