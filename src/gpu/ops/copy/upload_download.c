/* Uploads tensors from the host and downloads them to it. */
#include "gpu/host/copy.h"
#include "gpu/ops/copy/copy.h"
#include "gpu/stream/staging.h"
#include "tensor/check.h"

static tsr_status check_transfer(const char *op, const tsr_stream *stream, const tsr_tensor *tensor,
                                 const void *data, uint64_t size_bytes)
{
    TSR__TRY(tsr__require_on_device(op, "tensor", stream, tensor));
    uint64_t expected =
        tsr__dtype_bytes(tensor->layout.dtype, (uint64_t)tsr_layout_count(&tensor->layout));
    char shape[TSR__SHAPE_TEXT];
    TSR__REQUIRE(size_bytes == expected, "%s: %llu bytes given for a %s tensor %s of %llu bytes",
                 op, (unsigned long long)size_bytes, tsr_dtype_name(tensor->layout.dtype),
                 tsr__shape_format(tensor->layout.ndim, tensor->layout.shape, shape, sizeof shape),
                 (unsigned long long)expected);
    TSR__REQUIRE(data != NULL || size_bytes == 0, "%s: data is NULL", op);
    return tsr__device_check(tensor->buffer->device);
}

static tsr_status pack(const tsr_layout *view, tsr_layout *out)
{
    return tsr_layout_init(view->dtype, view->ndim, view->shape, out);
}

/* Copies between a tensor whose buffer is mapped at `mapped` and contiguous host memory. Copies
 * from the tensor to `to`, or from `from` to the tensor; the other one is NULL. */
static tsr_status copy_mapped(const tsr_tensor *tensor, void *mapped, void *to, const void *from)
{
    const tsr_layout *view = &tensor->layout;
    tsr_layout packed;
    TSR__TRY(pack(view, &packed));
    if (to)
        tsr__copy_host(&packed, to, view, mapped);
    else
        tsr__copy_host(view, mapped, &packed, from);
    return TSR_OK;
}

/* Initialises `out` as a contiguous tensor with the shape and dtype of `tensor`, in scratch memory.
 */
static tsr_status packed_alias(tsr_stream *stream, const tsr_tensor *tensor, tsr_tensor *out)
{
    uint64_t bytes =
        (uint64_t)tsr_layout_count(&tensor->layout) * tsr_dtype_size(tensor->layout.dtype);
    TSR__TRY(pack(&tensor->layout, &out->layout));
    return tsr__stream_scratch(stream, bytes, &out->buffer);
}

static tsr_status upload(tsr_stream *stream, const tsr_tensor *tensor, const void *data,
                         uint64_t size_bytes)
{
    /* The host writes a tensor over a bus only if the elements are contiguous: the bus is slow if
     * they are written one by one. */
    void *mapped = tensor->buffer->host;
    if (tensor->buffer->direct && tsr_layout_is_contiguous(&tensor->layout))
        mapped = tensor->buffer->direct;
    if (mapped && tsr__buffer_idle(tensor->buffer))
        return copy_mapped(tensor, mapped, NULL, data);
    uint64_t element = tsr_dtype_size(tensor->layout.dtype);
    if (tsr_layout_is_contiguous(&tensor->layout))
        return tsr__staging_upload(stream, tensor->buffer,
                                   (uint64_t)tensor->layout.offset * element, data, size_bytes);
    tsr_tensor packed;
    TSR__TRY(packed_alias(stream, tensor, &packed));
    TSR__TRY(tsr__staging_upload(stream, packed.buffer, 0, data, size_bytes));
    return tsr__copy_local(stream, tensor, &packed);
}

tsr_status tsr_tensor_upload(tsr_stream *stream, tsr_tensor *tensor, const void *data,
                             uint64_t size_bytes)
{
    TSR__TRY(check_transfer("tensor_upload", stream, tensor, data, size_bytes));
    TSR__TRY(tsr__require_writable("tensor_upload", "tensor", tensor));
    if (size_bytes == 0)
        return TSR_OK;
    if (!tsr__dtype_is_block(tensor->layout.dtype))
        return upload(stream, tensor, data, size_bytes);
    const tsr_tensor bytes = tsr__tensor_of_bytes(tensor);
    return upload(stream, &bytes, data, size_bytes);
}

static tsr_status download(tsr_stream *stream, const tsr_tensor *tensor, void *data,
                           uint64_t size_bytes)
{
    if (tensor->buffer->host) {
        TSR__TRY(tsr_stream_wait(stream));
        TSR__TRY(tsr__buffer_wait(tensor->buffer));
        return copy_mapped(tensor, tensor->buffer->host, data, NULL);
    }
    uint64_t element = tsr_dtype_size(tensor->layout.dtype);
    if (tsr_layout_is_contiguous(&tensor->layout))
        return tsr__staging_download(stream, tensor->buffer,
                                     (uint64_t)tensor->layout.offset * element, data, size_bytes);
    tsr_tensor packed;
    TSR__TRY(packed_alias(stream, tensor, &packed));
    TSR__TRY(tsr__copy_local(stream, &packed, tensor));
    return tsr__staging_download(stream, packed.buffer, 0, data, size_bytes);
}

tsr_status tsr_tensor_download(tsr_stream *stream, const tsr_tensor *tensor, void *data,
                               uint64_t size_bytes)
{
    TSR__TRY(check_transfer("tensor_download", stream, tensor, data, size_bytes));
    if (size_bytes == 0)
        return tsr_stream_wait(stream);
    if (!tsr__dtype_is_block(tensor->layout.dtype))
        return download(stream, tensor, data, size_bytes);
    const tsr_tensor bytes = tsr__tensor_of_bytes(tensor);
    return download(stream, &bytes, data, size_bytes);
}
