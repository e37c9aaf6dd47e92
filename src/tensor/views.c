/* Views that slice, remove, reorder or repeat dimensions. Each function builds its result in a
 * local variable, so that `out` may be `in`. */
#include <inttypes.h>

#include "base/error.h"
#include "tensor/check.h"

/* Checks that `dim` is in range. Converts a negative `dim`, which counts from the end, to the
 * dimension's index. */
static tsr_status find_dim(const char *who, const tsr_layout *in, int dim, int *out_dim)
{
    TSR__REQUIRE(dim >= -in->ndim && dim < in->ndim, "%s: dim %d is out of range for shape %s", who,
                 dim, TSR__SHAPE(in->ndim, in->shape));
    *out_dim = dim < 0 ? dim + in->ndim : dim;
    return TSR_OK;
}

static tsr_status check_view(const char *who, const tsr_layout *in, const tsr_layout *out)
{
    TSR__TRY(tsr__layout_check(who, in));
    TSR__REQUIRE(out, "%s: out is NULL", who);
    return TSR_OK;
}

/* Converts a bound of a slice as Python does: a negative bound counts from the end, and the result
 * is limited to 0..size. */
static int64_t clamp_bound(int64_t bound, int64_t size)
{
    if (bound < 0)
        bound += size;
    if (bound < 0)
        return 0;
    return bound < size ? bound : size;
}

tsr_status tsr_layout_slice(const tsr_layout *in, int dim, int64_t start, int64_t stop,
                            int64_t step, tsr_layout *out)
{
    TSR__TRY(check_view("slice", in, out));
    TSR__TRY(find_dim("slice", in, dim, &dim));
    TSR__REQUIRE(step > 0, "slice: step %" PRId64 " is not positive", step);

    int64_t first = clamp_bound(start, in->shape[dim]);
    int64_t end = clamp_bound(stop, in->shape[dim]);
    int64_t size = first < end ? (end - first - 1) / step + 1 : 0;

    tsr_layout view = *in;
    view.shape[dim] = size;
    if (size > 0) /* an empty view keeps its offset, as `first` may be beyond the last element */
        view.offset += first * in->strides[dim];
    if (size > 1) /* otherwise the stride does not matter, and the product might overflow */
        view.strides[dim] *= step;
    TSR__TRY(tsr__layout_check_blocks("slice", &view));
    *out = view;
    return TSR_OK;
}

tsr_status tsr_layout_select(const tsr_layout *in, int dim, int64_t index, tsr_layout *out)
{
    TSR__TRY(check_view("select", in, out));
    TSR__TRY(find_dim("select", in, dim, &dim));
    int64_t size = in->shape[dim];
    TSR__REQUIRE(index >= -size && index < size,
                 "select: index %" PRId64 " is out of range for dim %d of shape %s", index, dim,
                 TSR__SHAPE(in->ndim, in->shape));
    if (index < 0)
        index += size;

    tsr_layout view = {.dtype = in->dtype, .ndim = in->ndim - 1, .offset = in->offset};
    for (int i = 0; i < view.ndim; i++) {
        int from = i < dim ? i : i + 1;
        view.shape[i] = in->shape[from];
        view.strides[i] = in->strides[from];
    }
    if (tsr_layout_count(in) > 0) /* an empty view keeps its offset, as in slice */
        view.offset += index * in->strides[dim];
    TSR__TRY(tsr__layout_check_blocks("select", &view));
    *out = view;
    return TSR_OK;
}

tsr_status tsr_layout_transpose(const tsr_layout *in, int dim0, int dim1, tsr_layout *out)
{
    TSR__TRY(check_view("transpose", in, out));
    TSR__TRY(find_dim("transpose", in, dim0, &dim0));
    TSR__TRY(find_dim("transpose", in, dim1, &dim1));

    tsr_layout view = *in;
    view.shape[dim0] = in->shape[dim1];
    view.strides[dim0] = in->strides[dim1];
    view.shape[dim1] = in->shape[dim0];
    view.strides[dim1] = in->strides[dim0];
    TSR__TRY(tsr__layout_check_blocks("transpose", &view));
    *out = view;
    return TSR_OK;
}

tsr_status tsr_layout_permute(const tsr_layout *in, const int *order, tsr_layout *out)
{
    TSR__TRY(check_view("permute", in, out));
    TSR__REQUIRE(order || in->ndim == 0, "permute: order is NULL");

    tsr_layout view = *in;
    bool used[TSR_MAX_DIMS] = {false};
    for (int i = 0; i < in->ndim; i++) {
        int from = 0;
        TSR__TRY(find_dim("permute", in, order[i], &from));
        TSR__REQUIRE(!used[from], "permute: dim %d of shape %s appears twice in the order", from,
                     TSR__SHAPE(in->ndim, in->shape));
        used[from] = true;
        view.shape[i] = in->shape[from];
        view.strides[i] = in->strides[from];
    }
    TSR__TRY(tsr__layout_check_blocks("permute", &view));
    *out = view;
    return TSR_OK;
}

tsr_status tsr_layout_broadcast(const tsr_layout *in, int ndim, const int64_t *shape,
                                tsr_layout *out)
{
    TSR__TRY(check_view("broadcast", in, out));
    TSR__TRY(tsr__shape_check_bytes("broadcast", in->dtype, ndim, shape));
    TSR__REQUIRE(ndim >= in->ndim, "broadcast: %s has more dimensions than %s",
                 TSR__SHAPE(in->ndim, in->shape), TSR__SHAPE(ndim, shape));

    tsr_layout view = {.dtype = in->dtype, .ndim = ndim, .offset = in->offset};
    int added = ndim - in->ndim;
    for (int i = 0; i < ndim; i++) {
        int64_t size = i < added ? 1 : in->shape[i - added];
        TSR__REQUIRE(size == shape[i] || size == 1,
                     "broadcast: %s does not broadcast to %s: size %" PRId64
                     " does not match size %" PRId64,
                     TSR__SHAPE(in->ndim, in->shape), TSR__SHAPE(ndim, shape), size, shape[i]);
        view.shape[i] = shape[i];
        view.strides[i] = i < added || size != shape[i] ? 0 : in->strides[i - added];
    }
    TSR__TRY(tsr__layout_check_blocks("broadcast", &view));
    *out = view;
    return TSR_OK;
}
