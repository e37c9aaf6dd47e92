/* Operations on rows of pairs: the activation, its gradient, and weighted sums. */
#include "base/checked.h"
#include "gpu/experts/grouped.h"
#include "gpu/internal.h"
#include "tensor/check.h"

_Static_assert(TSR_EXPERT_SWIGLU == TSR_EXPERT_ACT_SILU &&
                   TSR_EXPERT_GEGLU == TSR_EXPERT_ACT_GELU &&
                   TSR_EXPERT_SWIGLU_OAI == TSR_EXPERT_ACT_SWIGLU_OAI,
               "shaders and C number the activations differently");

enum { WORKGROUP = 64 };

tsr_status tsr__pair_sum_record(tsr_stream *stream, const tsr__pair_rows *y, uint64_t x,
                                tsr__access x_access, tsr_dtype x_dtype, uint32_t x_stride,
                                const tsr__pairs *pairs, uint32_t experts,
                                const tsr_tensor *weights, const tsr_tensor *added, bool accumulate)
{
    const struct tsr_pair_sum_push push = {
        .x = x,
        .y = tsr__tensor_address(y->tensor),
        .weights = weights ? tsr__tensor_address(weights) : 0,
        .ids = tsr__tensor_address(pairs->ids),
        .added = added ? tsr__tensor_address(added) : 0,
        .tokens = pairs->tokens,
        .chosen = pairs->chosen,
        .experts = experts,
        .n = (uint32_t)y->width,
        .x_stride = x_stride,
        .y_stride = y->stride,
        .weights_stride = weights && pairs->tokens > 1 ? (uint32_t)weights->layout.strides[0] : 0,
        .ids_stride = pairs->ids_stride,
        .flags = (accumulate ? TSR_GROUPED_ACCUMULATE : 0) | (added ? TSR_GROUPED_ADDED : 0),
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_PAIR_SUM,
        .spec_count = 3,
        .spec = {WORKGROUP, (uint32_t)x_dtype, (uint32_t)y->tensor->layout.dtype},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 3,
        .access = {x_access, tsr__write_of(y->tensor), tsr__read_of(pairs->ids)},
    };
    if (weights)
        dispatch.access[dispatch.access_count++] = tsr__read_of(weights);
    if (added)
        dispatch.access[dispatch.access_count++] = tsr__read_of(added);
    tsr__groups_for(pairs->tokens * tsr__div_up_u64(push.n, WORKGROUP), 1, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

tsr_status tsr__pair_activate_record(tsr_stream *stream, const tsr__grouped *call,
                                     const tsr__access *rows)
{
    const uint32_t pairs = call->pairs.tokens * call->pairs.chosen;
    const struct tsr_pair_activate_push push = {
        .hidden = tsr__access_address(*rows),
        .y = tsr__tensor_address(call->y.tensor),
        .ids = tsr__tensor_address(call->pairs.ids),
        .pairs = pairs,
        .chosen = call->pairs.chosen,
        .experts = call->experts,
        .n = call->n,
        .hidden_stride = 2 * call->n,
        .y_stride = call->y.stride,
        .ids_stride = call->pairs.ids_stride,
        .limit = call->limit,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_PAIR_ACTIVATE,
        .spec_count = 5,
        .spec = {WORKGROUP, TSR_F32, (uint32_t)call->y.tensor->layout.dtype,
                 (uint32_t)call->params->activation, 0},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 3,
        .access = {*rows, tsr__write_of(call->y.tensor), tsr__read_of(call->pairs.ids)},
    };
    tsr__groups_for(pairs, 1, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

tsr_status tsr__pair_sum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                         const tsr_tensor *ids, int64_t experts, const tsr_tensor *weights,
                         bool accumulate)
{
    const char *op = "pair_sum";
    tsr__pairs pairs;
    tsr__pair_rows of_x, of_y;
    uint32_t weights_stride;
    TSR__TRY(tsr__pairs_of(op, stream, ids, &pairs));
    TSR__TRY(tsr__pair_rows_of(op, "x", stream, x, pairs.tokens, pairs.chosen, &of_x));
    TSR__TRY(tsr__pair_rows_of(op, "y", stream, y, pairs.tokens, pairs.chosen, &of_y));
    if (weights)
        TSR__TRY(tsr__pair_numbers(op, "weights", stream, weights, &pairs, &weights_stride));
    TSR__REQUIRE(of_x.per_pair && !of_y.per_pair && of_x.width == of_y.width,
                 "%s: x is %s and y %s", op, TSR__SHAPE(x->layout.ndim, x->layout.shape),
                 TSR__SHAPE(y->layout.ndim, y->layout.shape));
    TSR__TRY(tsr__require_disjoint(op, "y", y, "x", x, false));
    if (tsr_layout_count(&y->layout) == 0)
        return TSR_OK;
    return tsr__pair_sum_record(stream, &of_y, tsr__tensor_address(x), tsr__read_of(x),
                                x->layout.dtype, of_x.stride, &pairs, (uint32_t)experts, weights,
                                NULL, accumulate);
}

tsr_status tsr__pair_activate(tsr_stream *stream, const tsr__pair_activation *c)
{
    const char *op = "pair_activate";
    const bool gradient = c->dy != NULL;
    tsr__pairs pairs;
    tsr__pair_rows hidden, y, dy = {0}, dhidden = {0};
    uint32_t weights_stride = 0, dweights_stride = 0;
    TSR__TRY(tsr__pairs_of(op, stream, c->ids, &pairs));
    const int64_t tokens = pairs.tokens, chosen = pairs.chosen;
    TSR__TRY(tsr__pair_rows_of(op, "hidden", stream, c->hidden, tokens, chosen, &hidden));
    TSR__TRY(tsr__pair_rows_of(op, "y", stream, c->y, tokens, chosen, &y));
    TSR__REQUIRE(hidden.per_pair && y.per_pair && hidden.width == 2 * y.width,
                 "%s: hidden is %s and y %s", op,
                 TSR__SHAPE(c->hidden->layout.ndim, c->hidden->layout.shape),
                 TSR__SHAPE(c->y->layout.ndim, c->y->layout.shape));
    if (gradient) {
        TSR__TRY(tsr__pair_rows_of(op, "dy", stream, c->dy, tokens, chosen, &dy));
        TSR__TRY(tsr__pair_rows_of(op, "dhidden", stream, c->dhidden, tokens, chosen, &dhidden));
        TSR__REQUIRE(
            dy.per_pair && dhidden.per_pair && dy.width == y.width &&
                dhidden.width == hidden.width && c->dy->layout.dtype == c->y->layout.dtype &&
                c->dhidden->layout.dtype == c->y->layout.dtype,
            "%s: dy is %s and dhidden %s", op, TSR__SHAPE(c->dy->layout.ndim, c->dy->layout.shape),
            TSR__SHAPE(c->dhidden->layout.ndim, c->dhidden->layout.shape));
        TSR__TRY(tsr__pair_numbers(op, "weights", stream, c->weights, &pairs, &weights_stride));
        TSR__TRY(tsr__pair_numbers(op, "dweights", stream, c->dweights, &pairs, &dweights_stride));
    }
    if (pairs.tokens == 0)
        return TSR_OK;
    const struct tsr_pair_activate_push push = {
        .hidden = tsr__tensor_address(c->hidden),
        .y = tsr__tensor_address(c->y),
        .dy = gradient ? tsr__tensor_address(c->dy) : 0,
        .dhidden = gradient ? tsr__tensor_address(c->dhidden) : 0,
        .weights = gradient ? tsr__tensor_address(c->weights) : 0,
        .dweights = gradient ? tsr__tensor_address(c->dweights) : 0,
        .ids = tsr__tensor_address(c->ids),
        .pairs = pairs.tokens * pairs.chosen,
        .chosen = pairs.chosen,
        .experts = (uint32_t)c->experts,
        .n = (uint32_t)y.width,
        .hidden_stride = hidden.stride,
        .y_stride = y.stride,
        .dy_stride = dy.stride,
        .dhidden_stride = dhidden.stride,
        .weights_stride = weights_stride,
        .dweights_stride = dweights_stride,
        .ids_stride = pairs.ids_stride,
        .limit = c->limit > 0 ? c->limit : 7,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_PAIR_ACTIVATE,
        .spec_count = 5,
        .spec = {WORKGROUP, (uint32_t)c->hidden->layout.dtype, (uint32_t)c->y->layout.dtype,
                 (uint32_t)c->activation, gradient},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = gradient ? 7 : 3,
        .access = {tsr__read_of(c->hidden), tsr__write_of(c->y), tsr__read_of(c->ids)},
    };
    if (gradient) {
        dispatch.access[3] = tsr__read_of(c->dy);
        dispatch.access[4] = tsr__write_of(c->dhidden);
        dispatch.access[5] = tsr__read_of(c->weights);
        dispatch.access[6] = tsr__write_of(c->dweights);
    }
    tsr__groups_for(push.pairs, 1, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}
