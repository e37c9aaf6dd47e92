#include "gpu/ops/copy/quantize.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "tensor/float_conversion.h"

/* Reads the elements of src as f32. */
static tsr_status read_floats(tsr_stream *stream, const tsr_tensor *src, float *values,
                              uint64_t count)
{
    const tsr_dtype dtype = src->layout.dtype;
    const uint64_t size_bytes = count * tsr_dtype_size(dtype);
    if (dtype == TSR_F32)
        return tsr_tensor_download(stream, src, values, size_bytes);
    void *halves = tsr__calloc((size_t)size_bytes, 1);
    if (!halves)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr_tensor_download(stream, src, halves, size_bytes);
    if (status == TSR_OK)
        tsr__converter(TSR_F32, dtype)(values, halves, (size_t)count);
    tsr__free(halves);
    return status;
}

/* Reads src with `stream` if it is on the same device, and otherwise with a new stream of src's
 * device. */
static tsr_status fetch(tsr_stream *stream, const tsr_tensor *src, float *values, uint64_t count)
{
    tsr_stream *other;
    if (src->buffer->device == tsr_stream_device(stream))
        return read_floats(stream, src, values, count);
    TSR__TRY(tsr_stream_create(src->buffer->device, &other));
    tsr_status status = read_floats(other, src, values, count);
    tsr_stream_destroy(&other);
    return status;
}

tsr_status tsr__copy_quantize(tsr_stream *stream, tsr_tensor *dst, const tsr_tensor *src)
{
    const tsr_dtype dtype = dst->layout.dtype;
    const uint64_t count = (uint64_t)tsr_layout_count(&dst->layout);
    const uint64_t size_bytes = tsr__dtype_bytes(dtype, count);
    uint64_t float_bytes;
    if (!tsr__mul_u64(count, sizeof(float), &float_bytes) || float_bytes > SIZE_MAX)
        return tsr__fail(TSR_ERR_NO_MEMORY, "copy: %llu elements do not fit the host's memory",
                         (unsigned long long)count);
    float *values = tsr__calloc((size_t)count, sizeof *values);
    void *blocks = values ? tsr__calloc((size_t)size_bytes, 1) : NULL;
    tsr_status status = blocks ? fetch(stream, src, values, count) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        status = tsr_quantize(dtype, values, (int64_t)count, blocks, size_bytes);
        if (status != TSR_OK)
            status = tsr__fail_context(status, "copy");
    }
    if (status == TSR_OK)
        status = tsr_tensor_upload(stream, dst, blocks, size_bytes);
    tsr__free(blocks);
    tsr__free(values);
    return status;
}
