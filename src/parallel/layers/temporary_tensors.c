/* Temporary tensors of one pass of a layer. */
#include "parallel/layers/layer.h"

#include "base/alloc.h"

tsr_status tsr__temp_keep(tsr__temps *temps, tsr_tensor *tensor)
{
    void *item = temps->item;
    tsr_status status = tsr__grow(&item, &temps->capacity, temps->count + 1, sizeof(tsr_tensor *));
    temps->item = item;
    if (status != TSR_OK) {
        tsr_tensor_destroy(&tensor);
        return status;
    }
    temps->item[temps->count++] = tensor;
    return TSR_OK;
}

static tsr_status keep_as(tsr__temps *temps, tsr_tensor *tensor, tsr_tensor **out)
{
    TSR__TRY(tsr__temp_keep(temps, tensor));
    *out = tensor;
    return TSR_OK;
}

void tsr__temps_finish(tsr__temps *temps)
{
    while (temps->count > 0)
        tsr_tensor_destroy(&temps->item[--temps->count]);
    tsr__free(temps->item);
    temps->item = NULL;
    temps->capacity = 0;
}

tsr_status tsr__temp_new(tsr__temps *temps, tsr_dtype dtype, int ndim, const int64_t *shape,
                         tsr_tensor **out)
{
    tsr_tensor *tensor = NULL;
    tsr_device *device = tsr_stream_device(temps->stream);
    tsr_status status = tsr_tensor_create(device, dtype, ndim, shape, &tensor);
    if (status == TSR_ERR_DEVICE_MEMORY) {
        /* Memory that earlier passes no longer need becomes free only when the device has completed
         * their work, so wait for the device and try again. */
        TSR__TRY(tsr_stream_wait(temps->stream));
        status = tsr_tensor_create(device, dtype, ndim, shape, &tensor);
    }
    TSR__TRY(status);
    return keep_as(temps, tensor, out);
}

tsr_status tsr__temp_slice(tsr__temps *temps, const tsr_tensor *in, int dim, int64_t start,
                           int64_t count, tsr_tensor **out)
{
    tsr_tensor *tensor = NULL;
    TSR__TRY(tsr_tensor_slice(in, dim, start, start + count, 1, &tensor));
    return keep_as(temps, tensor, out);
}

tsr_status tsr__temp_transpose(tsr__temps *temps, const tsr_tensor *in, int dim0, int dim1,
                               tsr_tensor **out)
{
    tsr_tensor *tensor = NULL;
    TSR__TRY(tsr_tensor_transpose(in, dim0, dim1, &tensor));
    return keep_as(temps, tensor, out);
}

tsr_status tsr__temp_reshape(tsr__temps *temps, const tsr_tensor *in, int ndim,
                             const int64_t *shape, tsr_tensor **out)
{
    tsr_tensor *tensor = NULL;
    TSR__TRY(tsr_tensor_reshape(in, ndim, shape, &tensor));
    return keep_as(temps, tensor, out);
}

/* Returns whether a view with this shape exists. Does not record an error if there is none. */
static bool has_view(const tsr_layout *layout, int ndim, const int64_t *shape)
{
    if (tsr_layout_is_contiguous(layout))
        return true;
    tsr_layout view;
    const tsr__error before = tsr__error_take();
    const bool has = tsr_layout_reshape(layout, ndim, shape, &view) == TSR_OK;
    tsr__error_put_back(&before);
    return has;
}

tsr_status tsr__temp_reshape_any(tsr__temps *temps, const tsr_tensor *in, int ndim,
                                 const int64_t *shape, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(in);
    if (has_view(layout, ndim, shape))
        return tsr__temp_reshape(temps, in, ndim, shape, out);
    tsr_tensor *packed;
    TSR__TRY(tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, &packed));
    TSR__TRY(tsr_copy(temps->stream, packed, in));
    return tsr__temp_reshape(temps, packed, ndim, shape, out);
}

tsr_status tsr__temp_flatten(tsr__temps *temps, const tsr_tensor *in, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(in);
    int64_t shape[2] = {1, layout->shape[layout->ndim - 1]};
    for (int d = 0; d < layout->ndim - 1; d++)
        shape[0] *= layout->shape[d];
    return tsr__temp_reshape_any(temps, in, 2, shape, out);
}

tsr_status tsr__temp_by_rows(tsr__temps *temps, const tsr_tensor *in, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(in);
    const int last = layout->ndim - 1;
    int64_t shape[3] = {1, layout->shape[last - 1], layout->shape[last]};
    for (int d = 0; d < last - 1; d++)
        shape[0] *= layout->shape[d];
    return tsr__temp_reshape(temps, in, 3, shape, out);
}

tsr_status tsr__temp_like(tsr__temps *temps, const tsr_tensor *in, tsr_dtype dtype, int dim,
                          int64_t size, tsr_tensor **out)
{
    tsr_layout layout = *tsr_tensor_layout(in);
    layout.shape[dim < 0 ? dim + layout.ndim : dim] = size;
    return tsr__temp_new(temps, dtype, layout.ndim, layout.shape, out);
}

tsr_tensor *tsr__temp_take(tsr__temps *temps, tsr_tensor *tensor)
{
    for (size_t i = 0; i < temps->count; i++)
        if (temps->item[i] == tensor) {
            temps->item[i] = temps->item[--temps->count];
            break;
        }
    return tensor;
}
