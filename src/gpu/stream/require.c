#include "gpu/stream/require.h"

#include "gpu/memory/tensor.h"
#include "tensor/check.h"
#include "tensor/overlap.h"

/* The shape of a tensor as text, for example "[3,4]". It is valid until the end of the enclosing
 * block. */
#define SHAPE(tensor)                                                                              \
    tsr__shape_format((tensor)->layout.ndim, (tensor)->layout.shape, (char[TSR__SHAPE_TEXT]){0},   \
                      TSR__SHAPE_TEXT)

tsr_status tsr__require_on_device(const char *op, const char *name, const tsr_stream *stream,
                                  const tsr_tensor *tensor)
{
    TSR__REQUIRE(stream != NULL, "%s: stream is NULL", op);
    TSR__REQUIRE(tensor != NULL, "%s: %s is NULL", op, name);
    const tsr_device *device = tsr_stream_device(stream);
    if (tensor->buffer->device == device)
        return TSR_OK;
    const tsr_device_info *where = &tensor->buffer->device->info;
    /* The tensor's device may be the same physical device, opened a second time; the error text
     * then says so. */
    TSR__REQUIRE(where->index != device->info.index,
                 "%s: %s is on device %d (%s), the stream on another device object", op, name,
                 where->index, where->name);
    return tsr__fail(TSR_ERR_INVALID, "%s: %s is on device %d (%s), the stream on device %d (%s)",
                     op, name, where->index, where->name, device->info.index, device->info.name);
}

tsr_status tsr__require_no_blocks(const char *op, const char *name, const tsr_tensor *tensor)
{
    TSR__REQUIRE(!tsr__dtype_is_block(tensor->layout.dtype),
                 "%s: %s is %s; block formats are supported only by copy, as b of matmul and as "
                 "x of index_select",
                 op, name, tsr_dtype_name(tensor->layout.dtype));
    return TSR_OK;
}

tsr_status tsr__require_tensor(const char *op, const char *name, const tsr_stream *stream,
                               const tsr_tensor *tensor)
{
    TSR__TRY(tsr__require_on_device(op, name, stream, tensor));
    return tsr__require_no_blocks(op, name, tensor);
}

tsr_status tsr__require_float(const char *op, const char *name, const tsr_stream *stream,
                              const tsr_tensor *tensor)
{
    TSR__TRY(tsr__require_on_device(op, name, stream, tensor));
    TSR__REQUIRE(tsr__dtype_is_float(tensor->layout.dtype),
                 "%s: %s is %s; f32, f16 or bf16 is needed", op, name,
                 tsr_dtype_name(tensor->layout.dtype));
    return TSR_OK;
}

tsr_status tsr__require_writable(const char *op, const char *name, const tsr_tensor *out)
{
    TSR__REQUIRE(!tsr__layout_repeats(&out->layout),
                 "%s: %s is a view %s that names an element more than once and cannot be written",
                 op, name, SHAPE(out));
    return TSR_OK;
}

tsr_status tsr__require_disjoint(const char *op, const char *out_name, const tsr_tensor *out,
                                 const char *in_name, const tsr_tensor *in, bool allow_same)
{
    TSR__TRY(tsr__require_writable(op, out_name, out));
    if (out->buffer != in->buffer)
        return TSR_OK;
    tsr__overlap overlap = tsr__layout_overlap(&out->layout, &in->layout);
    if (overlap == TSR__OVERLAP_NONE || (overlap == TSR__OVERLAP_SAME && allow_same))
        return TSR_OK;
    return tsr__fail(TSR_ERR_INVALID, "%s: %s %s overlaps %s %s in one buffer%s", op, out_name,
                     SHAPE(out), in_name, SHAPE(in),
                     overlap == TSR__OVERLAP_SAME            ? " (they are the same view)"
                     : out->layout.dtype != in->layout.dtype ? " as another dtype"
                                                             : "");
}

tsr_status tsr__require_broadcast(const char *op, const char *name, const tsr_tensor *in,
                                  const char *target_name, const tsr_tensor *target,
                                  tsr_layout *out)
{
    if (tsr_layout_broadcast(&in->layout, target->layout.ndim, target->layout.shape, out) != TSR_OK)
        return tsr__fail(TSR_ERR_INVALID, "%s: %s %s does not broadcast to %s %s", op, name,
                         SHAPE(in), target_name, SHAPE(target));
    return TSR_OK;
}

tsr_status tsr__require_same_shape(const char *op, const char *a_name, const tsr_tensor *a,
                                   const char *b_name, const tsr_tensor *b)
{
    TSR__REQUIRE(tsr__layout_same_shape(&a->layout, &b->layout), "%s: %s is %s, %s is %s", op,
                 a_name, SHAPE(a), b_name, SHAPE(b));
    return TSR_OK;
}
