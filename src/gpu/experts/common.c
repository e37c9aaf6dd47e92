/* Checks of tensors of pairs, and what the kernels of grouped products share. */
#include <math.h>

#include "gpu/experts/grouped.h"

#include "base/checked.h"
#include "tensor/check.h"

/* Strides of rows, in bytes, fit 32 bits. */
enum { MOST_STRIDE = INT32_MAX / 4 };

tsr_status tsr__pairs_of(const char *op, const tsr_stream *stream, const tsr_tensor *ids,
                         tsr__pairs *out)
{
    TSR__TRY(tsr__require_tensor(op, "ids", stream, ids));
    const tsr_layout *l = &ids->layout;
    TSR__REQUIRE(l->dtype == TSR_I32 && l->ndim == 2,
                 "%s: ids are %s %s; i32 [tokens,chosen] is needed", op, tsr_dtype_name(l->dtype),
                 TSR__SHAPE(l->ndim, l->shape));
    TSR__REQUIRE(l->shape[1] >= 1, "%s: ids are %s; each token needs at least one expert", op,
                 TSR__SHAPE(l->ndim, l->shape));
    TSR__REQUIRE((l->strides[1] == 1 || l->shape[1] == 1) && l->strides[0] >= 0 &&
                     l->strides[0] <= MOST_STRIDE,
                 "%s: the rows of ids must be contiguous", op);
    TSR__REQUIRE(l->shape[0] <= INT32_MAX / l->shape[1],
                 "%s: ids are %s; at most 2^31 - 1 pairs are possible", op,
                 TSR__SHAPE(l->ndim, l->shape));
    *out = (tsr__pairs){ids, (uint32_t)l->shape[0], (uint32_t)l->shape[1],
                        l->shape[0] > 1 ? (uint32_t)l->strides[0] : 0};
    return TSR_OK;
}

tsr_status tsr__pair_rows_of(const char *op, const char *name, const tsr_stream *stream,
                             const tsr_tensor *tensor, int64_t tokens, int64_t chosen,
                             tsr__pair_rows *out)
{
    TSR__TRY(tsr__require_float(op, name, stream, tensor));
    const tsr_layout *l = &tensor->layout;
    const bool per_pair = l->ndim == 3;
    TSR__REQUIRE((l->ndim == 2 || (per_pair && l->shape[1] == chosen)) && l->shape[0] == tokens,
                 "%s: %s is %s; [%lld,%lld,…] with a row for each pair, or [%lld,…] is needed", op,
                 name, TSR__SHAPE(l->ndim, l->shape), (long long)tokens, (long long)chosen,
                 (long long)tokens);
    const int64_t width = l->shape[l->ndim - 1];
    TSR__REQUIRE(width <= INT32_MAX, "%s: %s is %s; rows may have at most %d elements", op, name,
                 TSR__SHAPE(l->ndim, l->shape), INT32_MAX);
    int64_t stride = tokens > 1 ? l->strides[0] : 0;
    bool equal = true;
    if (per_pair && chosen > 1) {
        equal = tokens <= 1 || l->strides[0] == chosen * l->strides[1];
        stride = l->strides[1];
    }
    TSR__REQUIRE(tsr_layout_count(l) == 0 ||
                     (equal && (l->strides[l->ndim - 1] == 1 || width == 1) && stride >= 0 &&
                      stride <= MOST_STRIDE),
                 "%s: the rows of %s must be contiguous, and at equal distances of at most %d "
                 "elements",
                 op, name, MOST_STRIDE);
    *out = (tsr__pair_rows){.tensor = tensor,
                            .width = width,
                            .per_pair = per_pair,
                            .stride = tsr_layout_count(l) == 0 ? 0 : (uint32_t)stride,
                            .divide = per_pair ? 1 : (uint32_t)chosen};
    return TSR_OK;
}

bool tsr__pair_rows_aligned(const tsr__pair_rows *rows)
{
    const uint64_t size = tsr_dtype_size(rows->tensor->layout.dtype);
    return rows->width % 4 == 0 && rows->stride % 4 == 0 &&
           tsr__tensor_address(rows->tensor) % (4 * size) == 0;
}

tsr_status tsr__pair_numbers(const char *op, const char *name, const tsr_stream *stream,
                             const tsr_tensor *tensor, const tsr__pairs *pairs, uint32_t *stride)
{
    TSR__TRY(tsr__require_float(op, name, stream, tensor));
    const tsr_layout *l = &tensor->layout;
    TSR__REQUIRE(l->dtype == TSR_F32 && l->ndim == 2 && l->shape[0] == pairs->tokens &&
                     l->shape[1] == pairs->chosen,
                 "%s: %s is %s %s; f32 [%u,%u] is needed, as the ids", op, name,
                 tsr_dtype_name(l->dtype), TSR__SHAPE(l->ndim, l->shape), pairs->tokens,
                 pairs->chosen);
    TSR__REQUIRE((l->strides[1] == 1 || l->shape[1] == 1) && l->strides[0] >= 0 &&
                     l->strides[0] <= MOST_STRIDE,
                 "%s: the rows of %s must be contiguous", op, name);
    *stride = pairs->tokens > 1 ? (uint32_t)l->strides[0] : 0;
    return TSR_OK;
}

static tsr_status require_list(const char *op, const char *name, const tsr_stream *stream,
                               const tsr_tensor *tensor)
{
    TSR__TRY(tsr__require_tensor(op, name, stream, tensor));
    const tsr_layout *l = &tensor->layout;
    TSR__REQUIRE(l->dtype == TSR_I32 && l->ndim == 1 && (l->strides[0] == 1 || l->shape[0] <= 1),
                 "%s: %s is %s %s; a contiguous vector of i32 is needed", op, name,
                 tsr_dtype_name(l->dtype), TSR__SHAPE(l->ndim, l->shape));
    return TSR_OK;
}

tsr_status tsr__sorted_of(const char *op, const tsr_stream *stream, const tsr_tensor *order,
                          const tsr_tensor *offsets, int64_t pairs, int64_t *experts,
                          tsr__sorted *out)
{
    TSR__TRY(require_list(op, "order", stream, order));
    TSR__TRY(require_list(op, "offsets", stream, offsets));
    TSR__REQUIRE(order->layout.shape[0] == pairs,
                 "%s: order has %lld elements; there are %lld pairs", op,
                 (long long)order->layout.shape[0], (long long)pairs);
    TSR__REQUIRE(offsets->layout.shape[0] >= 1 && offsets->layout.shape[0] <= INT32_MAX,
                 "%s: offsets has %lld elements; it needs one more than there are experts", op,
                 (long long)offsets->layout.shape[0]);
    *experts = offsets->layout.shape[0] - 1;
    *out = (tsr__sorted){tsr__read_of(order), tsr__read_of(offsets)};
    return TSR_OK;
}

bool tsr__grouped_pairs_up(const tsr__grouped *call)
{
    const tsr_layout *w = &call->w->layout;
    const tsr_matmul_grouped_params *params = call->params;
    const tsr_tensor *up = params->up;
    if (params->bias && params->up_bias &&
        (params->bias->layout.strides[0] != params->up_bias->layout.strides[0] ||
         params->bias->layout.dtype != params->up_bias->layout.dtype))
        return false;
    return up && up->layout.strides[0] == w->strides[0] && up->layout.strides[1] == w->strides[1] &&
           up->layout.strides[2] == w->strides[2];
}

double tsr__grouped_read_bytes(const tsr__grouped *call, const tsr_tensor *w)
{
    const double pairs = (double)call->pairs.tokens * call->pairs.chosen;
    return fmin(pairs, call->experts) *
           (double)tsr__dtype_bytes(w->layout.dtype, (uint64_t)call->n * call->k);
}
