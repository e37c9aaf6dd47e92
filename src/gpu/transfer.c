/* Tensors to and from the host. */
#include <string.h>

#include "gpu/staging.h"
#include "tessera/ops.h"

static tsr_status check_transfer(const char *op, const tsr_stream *stream, const tsr_tensor *tensor,
                                 const void *data, uint64_t size_bytes)
{
    TSR__TRY(tsr__require_tensor(op, "tensor", stream, tensor));
    uint64_t expected =
        (uint64_t)tsr_layout_count(&tensor->layout) * tsr_dtype_size(tensor->layout.dtype);
    char shape[TSR_SHAPE_TEXT];
    TSR__REQUIRE(size_bytes == expected, "%s: %llu bytes given for a %s tensor %s of %llu bytes",
                 op, (unsigned long long)size_bytes, tsr_dtype_name(tensor->layout.dtype),
                 tsr_shape_format(tensor->layout.ndim, tensor->layout.shape, shape, sizeof shape),
                 (unsigned long long)expected);
    TSR__REQUIRE(data != NULL || size_bytes == 0, "%s: data is NULL", op);
    return tsr__device_check(tensor->buffer->device);
}

/* Walks a mapped view in row-major order and copies to packed memory or, where there is none, from
 * it. */
typedef struct host_copy {
    const tsr_layout *layout;
    size_t element;
    uint8_t *to;
    const uint8_t *from;
} host_copy;

static void copy_run(host_copy *copy, uint8_t *view, size_t bytes)
{
    if (copy->to) {
        memcpy(copy->to, view, bytes);
        copy->to += bytes;
    } else {
        memcpy(view, copy->from, bytes);
        copy->from += bytes;
    }
}

static void copy_dimension(host_copy *copy, int dim, uint8_t *view)
{
    const tsr_layout *layout = copy->layout;
    if (dim == layout->ndim) {
        copy_run(copy, view, copy->element);
        return;
    }
    size_t count = (size_t)layout->shape[dim];
    size_t step = (size_t)layout->strides[dim] * copy->element;
    if (dim == layout->ndim - 1 && (step == copy->element || count == 1)) {
        if (count > 0)
            copy_run(copy, view, count * copy->element);
        return;
    }
    for (size_t i = 0; i < count; i++)
        copy_dimension(copy, dim + 1, view + i * step);
}

static uint8_t *host_start(const tsr_tensor *tensor)
{
    return (uint8_t *)tensor->buffer->host +
           (uint64_t)tensor->layout.offset * tsr_dtype_size(tensor->layout.dtype);
}

static void copy_mapped(const tsr_tensor *tensor, void *to, const void *from, uint64_t bytes)
{
    host_copy copy = {&tensor->layout, (size_t)tsr_dtype_size(tensor->layout.dtype), to, from};
    if (tsr_layout_is_contiguous(&tensor->layout))
        copy_run(&copy, host_start(tensor), bytes);
    else
        copy_dimension(&copy, 0, host_start(tensor));
}

/* A packed stand-in for a strided view, in scratch. */
static tsr_status packed_alias(tsr_stream *stream, const tsr_tensor *tensor, tsr_tensor *out)
{
    uint64_t bytes =
        (uint64_t)tsr_layout_count(&tensor->layout) * tsr_dtype_size(tensor->layout.dtype);
    TSR__TRY(tsr_layout_init(tensor->layout.dtype, tensor->layout.ndim, tensor->layout.shape,
                             &out->layout));
    return tsr__stream_scratch(stream, bytes, &out->buffer);
}

tsr_status tsr_tensor_upload(tsr_stream *stream, tsr_tensor *tensor, const void *data,
                             uint64_t size_bytes)
{
    TSR__TRY(check_transfer("tensor_upload", stream, tensor, data, size_bytes));
    TSR__TRY(tsr__require_writable("tensor_upload", "tensor", tensor));
    if (size_bytes == 0)
        return TSR_OK;
    if (tensor->buffer->host && tsr__buffer_idle(tensor->buffer)) {
        copy_mapped(tensor, NULL, data, size_bytes);
        return TSR_OK;
    }
    uint64_t element = tsr_dtype_size(tensor->layout.dtype);
    if (tsr_layout_is_contiguous(&tensor->layout))
        return tsr__staging_upload(stream, tensor->buffer,
                                   (uint64_t)tensor->layout.offset * element, data, size_bytes);
    tsr_tensor packed;
    TSR__TRY(packed_alias(stream, tensor, &packed));
    TSR__TRY(tsr__staging_upload(stream, packed.buffer, 0, data, size_bytes));
    return tsr_copy(stream, tensor, &packed);
}

tsr_status tsr_tensor_download(tsr_stream *stream, const tsr_tensor *tensor, void *data,
                               uint64_t size_bytes)
{
    TSR__TRY(check_transfer("tensor_download", stream, tensor, data, size_bytes));
    if (size_bytes == 0)
        return tsr_stream_wait(stream);
    if (tensor->buffer->host) {
        TSR__TRY(tsr_stream_wait(stream));
        TSR__TRY(tsr__buffer_wait(tensor->buffer));
        copy_mapped(tensor, data, NULL, size_bytes);
        return TSR_OK;
    }
    uint64_t element = tsr_dtype_size(tensor->layout.dtype);
    if (tsr_layout_is_contiguous(&tensor->layout))
        return tsr__staging_download(stream, tensor->buffer,
                                     (uint64_t)tensor->layout.offset * element, data, size_bytes);
    tsr_tensor packed;
    TSR__TRY(packed_alias(stream, tensor, &packed));
    TSR__TRY(tsr_copy(stream, &packed, tensor));
    return tsr__staging_download(stream, packed.buffer, 0, data, size_bytes);
}

tsr_status tsr_tensor_map(tsr_tensor *tensor, void **out)
{
    TSR__REQUIRE(tensor != NULL && out != NULL, "tensor_map: %s is NULL",
                 tensor ? "out" : "tensor");
    TSR__TRY(tsr__device_check(tensor->buffer->device));
    if (!tensor->buffer->host)
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "tensor_map: the memory of %s cannot be mapped; upload and download instead",
            tensor->buffer->device->info.name);
    *out = host_start(tensor);
    return TSR_OK;
}
