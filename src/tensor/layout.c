/* Layouts and their simple properties. The functions that make views are in
 * views.c and reshape.c. */
#include "tessera/layout.h"

#include "base/error.h"
#include "tensor/check.h"

tsr_status tsr_layout_init(tsr_dtype dtype, int ndim, const int64_t *shape, tsr_layout *out)
{
    TSR__TRY(tsr__shape_check_bytes("layout_init", dtype, ndim, shape));
    TSR__REQUIRE(out, "layout_init: out is NULL");

    tsr_layout layout = {.dtype = dtype, .ndim = ndim};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        layout.shape[i] = shape[i];
        layout.strides[i] = stride;
        stride *= shape[i] > 0 ? shape[i] : 1;
    }
    *out = layout;
    return TSR_OK;
}

int64_t tsr_layout_count(const tsr_layout *layout)
{
    if (layout == NULL)
        return 0;
    int64_t count = 1;
    for (int i = 0; i < layout->ndim; i++) {
        if (layout->shape[i] == 0)
            return 0;
        count *= layout->shape[i];
    }
    return count;
}

bool tsr_layout_is_contiguous(const tsr_layout *layout)
{
    if (layout == NULL)
        return false;
    if (tsr_layout_count(layout) == 0)
        return true;
    int64_t expected = 1;
    for (int i = layout->ndim - 1; i >= 0; i--) {
        if (layout->shape[i] == 1)
            continue;
        if (layout->strides[i] != expected)
            return false;
        expected *= layout->shape[i];
    }
    return true;
}

bool tsr__layout_same_shape(const tsr_layout *a, const tsr_layout *b)
{
    if (a == NULL || b == NULL || a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] != b->shape[i])
            return false;
    }
    return true;
}
