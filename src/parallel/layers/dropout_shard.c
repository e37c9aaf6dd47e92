/* Dropout of a rank's shard of a tensor. The mask is the shard's range of the full tensor's mask,
 * so the result does not depend on how the tensor is divided. */
#include "base/checked.h"
#include "base/struct_size.h"
#include "parallel/layers/layer.h"

tsr_status tsr_dropout_shard(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float p,
                             int dim, int64_t offset, int64_t global_size,
                             const tsr_random_params *params)
{
    const char *who = "dropout_shard";
    TSR__REQUIRE(x && params, "%s: %s is NULL", who, x ? "params" : "x");
    TSR__TAKE(tsr_random_params, params);
    const tsr_layout *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(dim >= -layout->ndim && dim < layout->ndim,
                 "%s: dim %d is outside a tensor of %d dimensions", who, dim, layout->ndim);
    dim = dim < 0 ? dim + layout->ndim : dim;
    TSR__REQUIRE(offset >= 0 && global_size >= layout->shape[dim] &&
                     offset <= global_size - layout->shape[dim],
                 "%s: dim %d of %s, from offset %lld on, is outside a global_size of %lld", who,
                 dim, TSR__SHAPE_OF(x), (long long)offset, (long long)global_size);

    int64_t strides[TSR_MAX_DIMS];
    uint64_t stride = 1, first = 0;
    bool fits = true;
    for (int d = layout->ndim - 1; d >= 0; d--) {
        strides[d] = (int64_t)stride;
        if (d == dim)
            fits = fits && tsr__mul_u64((uint64_t)offset, stride, &first);
        fits = fits &&
               tsr__mul_u64(stride, (uint64_t)(d == dim ? global_size : layout->shape[d]), &stride);
        fits = fits && stride <= INT64_MAX;
    }
    if (!fits)
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: %s with %lld in dim %d has too many elements", who,
                         TSR__SHAPE_OF(x), (long long)global_size, dim);
    const tsr_random_params whole = {
        .struct_size = sizeof whole,
        .seed = params->seed,
        .subsequence = params->subsequence,
        .offset = first,
        .index_strides = strides,
    };
    return tsr_dropout(stream, y, x, p, &whole);
}
