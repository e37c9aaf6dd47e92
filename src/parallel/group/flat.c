/* Converts operands to the form that the communicator needs: contiguous, with the ranks' blocks in
 * the order of ranks. */
#include "parallel/group/group.h"
#include "tessera/ops.h"

bool tsr__group_is_flat(const tsr_layout *layout, int dim)
{
    for (int d = 0; d < dim; d++)
        if (layout->shape[d] > 1)
            return false;
    return tsr_layout_is_contiguous(layout);
}

tsr_status tsr__group_flatten(const tsr_tensor *tensor, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    return tsr_tensor_reshape(tensor, 1, (int64_t[]){tsr_layout_count(layout)}, out);
}

tsr_status tsr__group_new_flat(const tsr_group *group, const tsr_layout *like, tsr_tensor **out)
{
    return tsr_tensor_create(tsr_stream_device(group->stream), like->dtype, 1,
                             (int64_t[]){tsr_layout_count(like)}, out);
}

/* Creates a view of the elements of a flat tensor from element `first` on, with the shape of
 * `like`. The dtypes may differ; copies convert. */
static tsr_status view_as(const tsr_tensor *flat, int64_t first, const tsr_layout *like,
                          tsr_tensor **out)
{
    const tsr_layout *from = tsr_tensor_layout(flat);
    tsr_layout layout;
    TSR__TRY(tsr_layout_init(from->dtype, like->ndim, like->shape, &layout));
    layout.offset = from->offset + first;
    return tsr_tensor_view(flat, &layout, out);
}

static tsr_status copy_in(tsr_stream *stream, const tsr_tensor *flat, int64_t first,
                          const tsr_tensor *tensor)
{
    tsr_tensor *block = NULL;
    TSR__TRY(view_as(flat, first, tsr_tensor_layout(tensor), &block));
    tsr_status status = tsr_copy(stream, block, tensor);
    tsr_tensor_destroy(&block);
    return status;
}

static tsr_status copy_out(tsr_stream *stream, const tsr_tensor *flat, int64_t first,
                           tsr_tensor *tensor)
{
    tsr_tensor *block = NULL;
    TSR__TRY(view_as(flat, first, tsr_tensor_layout(tensor), &block));
    tsr_status status = tsr_copy(stream, tensor, block);
    tsr_tensor_destroy(&block);
    return status;
}

static tsr_status copy_blocks(const tsr__group_request *request, const tsr_tensor *flat,
                              const tsr_tensor *whole, bool to_flat)
{
    tsr_stream *stream = request->group->stream;
    int64_t offset = 0, first = 0;
    for (int r = 0; r < request->group->size; r++) {
        int64_t count = 0;
        if (request->sizes[r] > 0) {
            tsr_tensor *part = NULL;
            TSR__TRY(tsr_tensor_slice(whole, request->dim, offset, offset + request->sizes[r], 1,
                                      &part));
            count = tsr_layout_count(tsr_tensor_layout(part));
            tsr_status status =
                to_flat ? copy_in(stream, flat, first, part) : copy_out(stream, flat, first, part);
            tsr_tensor_destroy(&part);
            TSR__TRY(status);
        }
        offset += request->sizes[r];
        first += count;
    }
    return TSR_OK;
}

tsr_status tsr__group_copy_to_flat(tsr_stream *stream, tsr_tensor *flat, const tsr_tensor *tensor)
{
    return copy_in(stream, flat, 0, tensor);
}

tsr_status tsr__group_copy_from_flat(tsr_stream *stream, const tsr_tensor *flat, tsr_tensor *tensor)
{
    return copy_out(stream, flat, 0, tensor);
}

tsr_status tsr__group_copy_to_blocks(const tsr__group_request *request, tsr_tensor *flat,
                                     const tsr_tensor *whole)
{
    return copy_blocks(request, flat, whole, true);
}

tsr_status tsr__group_copy_from_blocks(const tsr__group_request *request, const tsr_tensor *flat,
                                       tsr_tensor *whole)
{
    return copy_blocks(request, flat, whole, false);
}
