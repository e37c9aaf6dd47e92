/* tsr_copy: checks the arguments. Copies between two devices are made through the host. */
#include "gpu/ops/copy/copy.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "gpu/quant/dequantize.h"
#include "tensor/check.h"
#include "tensor/float_conversion.h"
#include "tensor/overlap.h"
#include "tessera/ops.h"

/* To block formats ----------------------------------------------------------------------------- */

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
static tsr_status fetch_floats(tsr_stream *stream, const tsr_tensor *src, float *values,
                               uint64_t count)
{
    tsr_stream *other;
    if (src->buffer->device == tsr_stream_device(stream))
        return read_floats(stream, src, values, count);
    TSR__TRY(tsr_stream_create(src->buffer->device, &other));
    tsr_status status = read_floats(other, src, values, count);
    tsr_stream_destroy(&other);
    return status;
}

/* Quantises src, which has been broadcast to dst's shape and may be on another device. The host
 * does this: the function waits for the work that src depends on. On failure dst is not changed. */
static tsr_status quantize(tsr_stream *stream, tsr_tensor *dst, const tsr_tensor *src)
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
    tsr_status status = blocks ? fetch_floats(stream, src, values, count) : TSR_ERR_NO_MEMORY;
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

/* Others --------------------------------------------------------------------------------------- */

/* Copies on one device. */
static tsr_status copy_on_device(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src)
{
    if (tsr__dtype_is_block(dst->layout.dtype)) {
        const tsr_tensor to = tsr__tensor_of_bytes(dst), from = tsr__tensor_of_bytes(src);
        return tsr__copy_local(stream, &to, &from);
    }
    if (tsr__dtype_is_block(src->layout.dtype))
        return tsr__dequantize(stream, dst, src);
    return tsr__copy_local(stream, dst, src);
}

/* Creates a contiguous tensor with the shape and dtype of src on the stream's device, and uploads
 * `data`, which are the elements of src. */
static tsr_status bring_over(tsr_stream *stream, const tsr_tensor *src, const void *data,
                             uint64_t size_bytes, tsr_tensor **out)
{
    tsr_tensor *packed;
    TSR__TRY(tsr_tensor_create(tsr_stream_device(stream), src->layout.dtype, src->layout.ndim,
                               src->layout.shape, &packed));
    tsr_status status = tsr_tensor_upload(stream, packed, data, size_bytes);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&packed);
        return status;
    }
    *out = packed;
    return TSR_OK;
}

static tsr_status upload_to(tsr_stream *stream, tsr_tensor *dst, const tsr_tensor *src,
                            const void *data, uint64_t size_bytes)
{
    if (dst->layout.dtype == src->layout.dtype &&
        tsr__layout_same_shape(&dst->layout, &src->layout))
        return tsr_tensor_upload(stream, dst, data, size_bytes);
    tsr_tensor *packed;
    tsr_layout layout;
    TSR__TRY(bring_over(stream, src, data, size_bytes, &packed));
    tsr_status status = tsr__require_broadcast("copy", "src", packed, "dst", dst, &layout);
    if (status == TSR_OK) {
        tsr_tensor source = tsr__tensor_alias(packed, &layout);
        status = copy_on_device(stream, dst, &source);
    }
    tsr_tensor_destroy(&packed); /* the stream keeps the tensor's buffer until the copy has run */
    return status;
}

static tsr_status download_from(const tsr_tensor *src, void *data, uint64_t size_bytes)
{
    tsr_stream *stream;
    TSR__TRY(tsr_stream_create(src->buffer->device, &stream));
    tsr_status status = tsr_tensor_download(stream, src, data, size_bytes);
    tsr_stream_destroy(&stream);
    return status;
}

static tsr_status copy_across(tsr_stream *stream, tsr_tensor *dst, const tsr_tensor *src)
{
    uint64_t size_bytes =
        tsr__dtype_bytes(src->layout.dtype, (uint64_t)tsr_layout_count(&src->layout));
    if (size_bytes > SIZE_MAX)
        return tsr__fail(TSR_ERR_NO_MEMORY, "copy: %llu bytes do not fit the host's memory",
                         (unsigned long long)size_bytes);
    void *data = tsr__calloc(1, (size_t)size_bytes);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = download_from(src, data, size_bytes);
    if (status == TSR_OK)
        status = upload_to(stream, dst, src, data, size_bytes);
    tsr__free(data);
    return status;
}

/* Checks that the dtypes can be copied: block formats only to and from floats, and to the same
 * block format. */
static tsr_status check_dtypes(tsr_dtype dst, tsr_dtype src)
{
    const bool dst_is_block = tsr__dtype_is_block(dst), src_is_block = tsr__dtype_is_block(src);
    const bool allowed = dst_is_block && src_is_block ? dst == src
                         : dst_is_block               ? tsr__dtype_is_float(src)
                         : src_is_block               ? tsr__dtype_is_float(dst)
                                                      : true;
    TSR__REQUIRE(allowed,
                 "copy: dst is %s, src is %s; a block format is copied to and from f32, f16 and "
                 "bf16, and to itself",
                 tsr_dtype_name(dst), tsr_dtype_name(src));
    return TSR_OK;
}

tsr_status tsr_copy(tsr_stream *stream, tsr_tensor *dst, const tsr_tensor *src)
{
    TSR__TRY(tsr__require_on_device("copy", "dst", stream, dst));
    TSR__REQUIRE(src != NULL, "copy: src is NULL");
    TSR__TRY(check_dtypes(dst->layout.dtype, src->layout.dtype));
    tsr_layout source_layout;
    TSR__TRY(tsr__require_broadcast("copy", "src", src, "dst", dst, &source_layout));
    tsr_tensor source = tsr__tensor_alias(src, &source_layout);
    TSR__TRY(tsr__require_disjoint("copy", "dst", dst, "src", &source, true));
    TSR__TRY(tsr__device_check(dst->buffer->device));
    TSR__TRY(tsr__device_check(src->buffer->device));
    if (tsr_layout_count(&dst->layout) == 0)
        return TSR_OK;

    if (tsr__dtype_is_block(dst->layout.dtype) && dst->layout.dtype != src->layout.dtype)
        return quantize(stream, dst, &source);
    if (src->buffer->device != dst->buffer->device)
        return copy_across(stream, dst, src);
    bool same_view = src->buffer == dst->buffer &&
                     tsr__layout_overlap(&dst->layout, &source_layout) == TSR__OVERLAP_SAME;
    if (same_view)
        return TSR_OK;
    return copy_on_device(stream, dst, &source);
}
