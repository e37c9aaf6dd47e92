#include "gpu/memory/tensor.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "gpu/internal.h"
#include "shaders/params/types.h"
#include "tensor/check.h"

_Static_assert(TSR_F32 == TSR_DT_F32 && TSR_F16 == TSR_DT_F16 && TSR_BF16 == TSR_DT_BF16 &&
                   TSR_I32 == TSR_DT_I32 && TSR_U32 == TSR_DT_U32 && TSR_I64 == TSR_DT_I64 &&
                   TSR_U8 == TSR_DT_U8 && TSR_Q4_0 == TSR_DT_Q4_0 && TSR_Q8_0 == TSR_DT_Q8_0,
               "shaders and C number the dtypes differently");

static tsr_status wrap(tsr__buffer *buffer, const tsr_layout *layout, tsr_tensor **out)
{
    tsr_tensor *tensor = tsr__calloc(1, sizeof *tensor);
    if (!tensor)
        return TSR_ERR_NO_MEMORY;
    tensor->layout = *layout;
    tensor->buffer = buffer;
    *out = tensor;
    return TSR_OK;
}

static tsr_status create(const char *op, tsr_device *device, tsr__buffer_kind kind, tsr_dtype dtype,
                         int ndim, const int64_t *shape, tsr_tensor **out)
{
    TSR__REQUIRE(device != NULL && out != NULL, "%s: %s is NULL", op, device ? "out" : "device");
    tsr_layout layout;
    /* tsr_layout_init makes the same checks. Here the error texts name the caller's function. */
    TSR__TRY(tsr__shape_check_bytes(op, dtype, ndim, shape));
    TSR__TRY(tsr_layout_init(dtype, ndim, shape, &layout));
    uint64_t size = tsr__dtype_bytes(dtype, (uint64_t)tsr_layout_count(&layout));
    tsr__buffer *buffer;
    TSR__TRY(tsr__buffer_create(device, kind, size, &buffer));
    tsr_status status = wrap(buffer, &layout, out);
    if (status != TSR_OK)
        tsr__buffer_release(buffer);
    return status;
}

tsr_status tsr_tensor_create(tsr_device *device, tsr_dtype dtype, int ndim, const int64_t *shape,
                             tsr_tensor **out)
{
    return create("tensor_create", device, TSR__BUFFER_DEVICE, dtype, ndim, shape, out);
}

tsr_status tsr_tensor_create_host(tsr_device *device, tsr_dtype dtype, int ndim,
                                  const int64_t *shape, tsr_tensor **out)
{
    return create("tensor_create_host", device, TSR__BUFFER_SHARED, dtype, ndim, shape, out);
}

void tsr_tensor_destroy(tsr_tensor **tensor)
{
    if (!tensor || !*tensor)
        return;
    tsr__buffer_release((*tensor)->buffer);
    tsr__free(*tensor);
    *tensor = NULL;
}

const tsr_layout *tsr_tensor_layout(const tsr_tensor *tensor)
{
    return tensor ? &tensor->layout : NULL;
}

tsr_device *tsr__tensor_device(const tsr_tensor *tensor)
{
    return tensor ? tensor->buffer->device : NULL;
}

int64_t tsr__row_pitch(const tsr_device *device, tsr_dtype dtype, int64_t size)
{
    const int64_t unit = 128 / (int64_t)tsr_dtype_size(dtype);
    return device->traits.narrow_accesses ? size : (size + unit - 1) / unit * unit;
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
    *out = (uint8_t *)tensor->buffer->host +
           tsr__dtype_bytes(tensor->layout.dtype, (uint64_t)tensor->layout.offset);
    return TSR_OK;
}

/* Views ---------------------------------------------------------------------------------------- */

static tsr_status view_of(const tsr_tensor *in, const tsr_layout *layout, tsr_tensor **out)
{
    TSR__TRY(wrap(in->buffer, layout, out));
    tsr__buffer_retain(in->buffer);
    return TSR_OK;
}

/* Defines the body of a view function: it calls a layout function and creates a tensor with the
 * resulting layout. */
#define VIEW(name, ...)                                                                            \
    do {                                                                                           \
        tsr_layout layout;                                                                         \
        TSR__REQUIRE(in != NULL && out != NULL, "tensor_" #name ": %s is NULL",                    \
                     in ? "out" : "in");                                                           \
        TSR__TRY(tsr_layout_##name(&in->layout, __VA_ARGS__, &layout));                            \
        return view_of(in, &layout, out);                                                          \
    } while (0)

tsr_status tsr_tensor_slice(const tsr_tensor *in, int dim, int64_t start, int64_t stop,
                            int64_t step, tsr_tensor **out)
{
    VIEW(slice, dim, start, stop, step);
}

tsr_status tsr_tensor_select(const tsr_tensor *in, int dim, int64_t index, tsr_tensor **out)
{
    VIEW(select, dim, index);
}

tsr_status tsr_tensor_transpose(const tsr_tensor *in, int dim0, int dim1, tsr_tensor **out)
{
    VIEW(transpose, dim0, dim1);
}

tsr_status tsr_tensor_broadcast(const tsr_tensor *in, int ndim, const int64_t *shape,
                                tsr_tensor **out)
{
    VIEW(broadcast, ndim, shape);
}

tsr_status tsr_tensor_reshape(const tsr_tensor *in, int ndim, const int64_t *shape,
                              tsr_tensor **out)
{
    VIEW(reshape, ndim, shape);
}

/* Computes the number of bytes from the tensor's first byte to the end of the last element that a
 * layout reaches. The caller of the library made the layout. It must have elements. Returns false
 * on overflow. */
static bool reach_of(const tsr_layout *layout, uint64_t *out)
{
    uint64_t last = (uint64_t)layout->offset;
    for (int i = 0; i < layout->ndim; i++) {
        uint64_t span;
        if (!tsr__mul_u64((uint64_t)layout->shape[i] - 1, (uint64_t)layout->strides[i], &span) ||
            !tsr__add_u64(last, span, &last))
            return false;
    }
    const uint64_t block = tsr__dtype_block(layout->dtype);
    return tsr__add_u64(last, 1, &last) &&
           tsr__mul_u64(last / block, tsr__dtype_block_bytes(layout->dtype), out);
}

tsr_status tsr_tensor_view(const tsr_tensor *in, const tsr_layout *layout, tsr_tensor **out)
{
    TSR__REQUIRE(in != NULL && layout != NULL && out != NULL, "tensor_view: %s is NULL",
                 !in       ? "in"
                 : !layout ? "layout"
                           : "out");
    TSR__TRY(tsr__shape_check_bytes("tensor_view", layout->dtype, layout->ndim, layout->shape));
    TSR__REQUIRE(layout->offset >= 0, "tensor_view: offset is %lld", (long long)layout->offset);
    for (int i = 0; i < layout->ndim; i++)
        TSR__REQUIRE(layout->strides[i] >= 0, "tensor_view: stride %d is %lld", i,
                     (long long)layout->strides[i]);
    TSR__TRY(tsr__layout_check_blocks("tensor_view", layout));
    /* A layout without elements may have any offset that is a valid address. */
    if (tsr_layout_count(layout) == 0) {
        TSR__TRY(tsr__layout_check("tensor_view", layout));
        return view_of(in, layout, out);
    }
    uint64_t reach = 0;
    TSR__REQUIRE(reach_of(layout, &reach) && reach <= in->buffer->size_bytes,
                 "tensor_view: the layout reaches past the buffer's %llu bytes",
                 (unsigned long long)in->buffer->size_bytes);
    return view_of(in, layout, out);
}

/* Inside the library --------------------------------------------------------------------------- */

uint64_t tsr__tensor_address(const tsr_tensor *tensor)
{
    return tensor->buffer->address +
           tsr__dtype_bytes(tensor->layout.dtype, (uint64_t)tensor->layout.offset);
}

tsr_tensor tsr__tensor_of_bytes(const tsr_tensor *tensor)
{
    return (tsr_tensor){.layout = tsr__layout_of_bytes(&tensor->layout), .buffer = tensor->buffer};
}

tsr_tensor tsr__tensor_alias(const tsr_tensor *tensor, const tsr_layout *layout)
{
    return (tsr_tensor){.layout = *layout, .buffer = tensor->buffer};
}
