/* Reshapes a layout without copying the elements. The dimensions of both shapes are divided into
 * groups that have the same number of elements. This is possible only if, within each group of the
 * old shape, all elements that follow each other in row-major order have the same distance in
 * memory. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "tensor/check.h"

/* Replaces a size of -1 by the size that gives the right number of elements. The other sizes need
 * not be valid. */
static tsr_status fill_in_size(const tsr_layout *in, int ndim, int64_t *shape)
{
    int unknown = -1;
    int64_t known = 1, count = tsr_layout_count(in);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == -1) {
            TSR__REQUIRE(unknown < 0, "reshape: more than one size of %s is -1",
                         TSR__SHAPE(ndim, shape));
            unknown = i;
        }
    }
    if (unknown < 0)
        return TSR_OK;

    shape[unknown] = 1;
    tsr_status status = tsr__shape_check_bytes("reshape", in->dtype, ndim, shape);
    for (int i = 0; i < ndim && status == TSR_OK; i++)
        known *= shape[i];
    shape[unknown] = -1;
    TSR__TRY(status);
    TSR__REQUIRE(known > 0 && count % known == 0,
                 "reshape: no size for -1 gives %s the %" PRId64 " elements of %s",
                 TSR__SHAPE(ndim, shape), count, TSR__SHAPE(in->ndim, in->shape));
    shape[unknown] = count / known;
    return TSR_OK;
}

/* Computes the strides with which the shape view->shape has the same elements as `in`, in the same
 * order. Returns false if there are no such strides. No size may be 0. */
static bool regroup(const tsr_layout *in, tsr_layout *view)
{
    int from = in->ndim - 1, to = view->ndim - 1;
    uint64_t stride = 1;
    while (from >= 0) {
        if (in->shape[from] == 1) {
            from--;
            continue;
        }
        /* Form one group of dimensions of `in`: add the next outer dimension to the group while its
         * stride is the group's inner stride times the group's size. */
        uint64_t size = (uint64_t)in->shape[from];
        uint64_t inner = (uint64_t)in->strides[from];
        uint64_t next = inner * size; /* (size − 1)·stride fits 63 bits, so this fits 64 */
        for (from--; from >= 0; from--) {
            if (in->shape[from] == 1)
                continue;
            if ((uint64_t)in->strides[from] != next)
                break;
            size *= (uint64_t)in->shape[from];
            next = (uint64_t)in->strides[from] * (uint64_t)in->shape[from];
        }
        /* Assign strides to the dimensions of the view that together have exactly as many elements
         * as the group. */
        stride = inner;
        uint64_t left = size;
        for (; to >= 0 && left > 1; to--) {
            uint64_t dim_size = (uint64_t)view->shape[to];
            if (left % dim_size != 0)
                return false;
            view->strides[to] = stride <= INT64_MAX ? (int64_t)stride : 0;
            stride *= dim_size;
            left /= dim_size;
        }
    }
    /* The remaining sizes are 1, and any stride is valid for them. Use the
     * usual stride if it fits. */
    for (; to >= 0; to--)
        view->strides[to] = stride <= INT64_MAX ? (int64_t)stride : 0;
    return true;
}

tsr_status tsr_layout_reshape(const tsr_layout *in, int ndim, const int64_t *shape, tsr_layout *out)
{
    TSR__TRY(tsr__layout_check("reshape", in));
    TSR__REQUIRE(out, "reshape: out is NULL");
    TSR__REQUIRE(ndim >= 0 && ndim <= TSR_MAX_DIMS, "reshape: %d dimensions are outside 0..%d",
                 ndim, TSR_MAX_DIMS);
    TSR__REQUIRE(shape || ndim == 0, "reshape: shape is NULL");

    int64_t sizes[TSR_MAX_DIMS] = {0};
    if (ndim > 0)
        memcpy(sizes, shape, (size_t)ndim * sizeof *sizes);
    TSR__TRY(fill_in_size(in, ndim, sizes));
    TSR__TRY(tsr__shape_check_bytes("reshape", in->dtype, ndim, sizes));

    tsr_layout view;
    /* sets row-major strides, which an empty view keeps */
    TSR__TRY(tsr_layout_init(in->dtype, ndim, sizes, &view));
    view.offset = in->offset;
    int64_t count = tsr_layout_count(in);
    TSR__REQUIRE(
        tsr_layout_count(&view) == count, "reshape: %s has %" PRId64 " elements, %s has %" PRId64,
        TSR__SHAPE(in->ndim, in->shape), count, TSR__SHAPE(ndim, sizes), tsr_layout_count(&view));
    TSR__REQUIRE(count == 0 || regroup(in, &view),
                 "reshape: strides %s of shape %s do not allow %s without a copy",
                 TSR__SHAPE(in->ndim, in->strides), TSR__SHAPE(in->ndim, in->shape),
                 TSR__SHAPE(ndim, sizes));
    TSR__TRY(tsr__layout_check_blocks("reshape", &view));
    *out = view;
    return TSR_OK;
}
