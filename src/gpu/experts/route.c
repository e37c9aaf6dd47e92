/* The choice of experts, and its gradient. */
#include "shaders/params/route.h"
#include "base/given.h"
#include "base/struct_size.h"
#include "gpu/device/device.h"
#include "gpu/experts/experts.h"
#include "gpu/internal.h"
#include "tensor/check.h"

_Static_assert(TSR_GATING_SOFTMAX == TSR_ROUTE_SOFTMAX && TSR_GATING_SIGMOID == TSR_ROUTE_SIGMOID &&
                   TSR_GATING_SOFTMAX_CHOSEN == TSR_ROUTE_CHOSEN,
               "shaders and C number the gating functions differently");
_Static_assert(TSR_MAX_EXPERTS == TSR_ROUTE_MOST_EXPERTS &&
                   TSR_MAX_EXPERTS_USED == TSR_ROUTE_MOST_CHOSEN,
               "shaders and C have different limits");

/* Checks [tokens,experts] of f32 with contiguous rows, and gets the stride. */
static tsr_status require_logits(const char *op, const char *name, const tsr_stream *stream,
                                 const tsr_tensor *tensor, uint32_t *stride)
{
    TSR__TRY(tsr__require_float(op, name, stream, tensor));
    const tsr_layout *l = &tensor->layout;
    TSR__REQUIRE(l->dtype == TSR_F32 && l->ndim == 2,
                 "%s: %s is %s %s; f32 [tokens,experts] is needed", op, name,
                 tsr_dtype_name(l->dtype), TSR__SHAPE(l->ndim, l->shape));
    TSR__REQUIRE((l->strides[1] == 1 || l->shape[1] <= 1) && l->strides[0] >= 0 &&
                     l->strides[0] <= INT32_MAX / 4,
                 "%s: the rows of %s must be contiguous", op, name);
    *stride = l->shape[0] > 1 ? (uint32_t)l->strides[0] : 0;
    return TSR_OK;
}

static tsr_status require_per_expert(const char *op, const char *name, const tsr_stream *stream,
                                     const tsr_tensor *tensor, int64_t experts)
{
    TSR__TRY(tsr__require_float(op, name, stream, tensor));
    const tsr_layout *l = &tensor->layout;
    TSR__REQUIRE(l->dtype == TSR_F32 && l->ndim == 1 && l->shape[0] == experts &&
                     (l->strides[0] == 1 || experts == 1),
                 "%s: %s is %s %s; a contiguous f32 vector of %lld experts is needed", op, name,
                 tsr_dtype_name(l->dtype), TSR__SHAPE(l->ndim, l->shape), (long long)experts);
    return TSR_OK;
}

tsr_status tsr__route_check(const char *op, const tsr_route_params *params, int64_t experts,
                            int64_t chosen)
{
    TSR__REQUIRE((unsigned)params->gating <= TSR_GATING_SOFTMAX_CHOSEN,
                 "%s: gating %d is not a tsr_gating", op, (int)params->gating);
    TSR__REQUIRE(experts >= 1 && experts <= TSR_MAX_EXPERTS,
                 "%s: there are %lld experts; 1 to %d are possible", op, (long long)experts,
                 TSR_MAX_EXPERTS);
    TSR__REQUIRE(chosen >= 1 && chosen <= experts && chosen <= TSR_MAX_EXPERTS_USED,
                 "%s: %lld experts are to be chosen from %lld; 1 to %d, and at most all, are "
                 "possible",
                 op, (long long)chosen, (long long)experts, TSR_MAX_EXPERTS_USED);
    TSR__REQUIRE(params->groups >= 0 && (params->groups <= 1 || experts % params->groups == 0),
                 "%s: %d groups do not divide %lld experts", op, params->groups,
                 (long long)experts);
    TSR__REQUIRE(params->groups <= 1 ||
                     (params->groups_used >= 1 && params->groups_used <= params->groups &&
                      experts / params->groups * params->groups_used >= chosen),
                 "%s: %d of %d groups of %lld experts are used; they must be 1 to %d, and have the "
                 "%lld experts that are chosen",
                 op, params->groups_used, params->groups, (long long)(experts / params->groups),
                 params->groups, (long long)chosen);
    TSR__REQUIRE(params->least_sum >= 0 && params->epsilon >= 0,
                 "%s: least_sum is %g and epsilon %g; they must not be negative", op,
                 (double)params->least_sum, (double)params->epsilon);
    return TSR_OK;
}

/* What the choice and its gradient need alike: logits and ids of the same tokens, and parameters
   that fit them. */
static tsr_status require_choice(const char *op, tsr_stream *stream, const tsr_tensor *logits,
                                 const tsr_tensor *ids, const tsr_route_params *params,
                                 tsr__pairs *pairs, uint32_t *logits_stride)
{
    TSR__TRY(tsr__pairs_of(op, stream, ids, pairs));
    TSR__TRY(require_logits(op, "logits", stream, logits, logits_stride));
    TSR__REQUIRE(logits->layout.shape[0] == pairs->tokens, "%s: logits are %s, and ids are %s", op,
                 TSR__SHAPE(2, logits->layout.shape), TSR__SHAPE(2, ids->layout.shape));
    return tsr__route_check(op, params, logits->layout.shape[1], pairs->chosen);
}

/* A workgroup is larger for more experts, so that each invocation compares few with all others. */
static uint32_t threads_for(const tsr_device *device, int64_t experts)
{
    const uint32_t few = 64, many = 256;
    return experts > 128 && device->info.max_workgroup_invocations >= many ? many : few;
}

static void set_dispatch(tsr__dispatch *dispatch, const tsr__pairs *pairs, int64_t experts,
                         const tsr_route_params *params)
{
    dispatch->spec_count = 3;
    dispatch->spec[0] = threads_for(pairs->ids->buffer->device, experts);
    dispatch->spec[1] = ((uint32_t)experts + dispatch->spec[0] - 1) / dispatch->spec[0];
    dispatch->spec[2] = (uint32_t)params->gating;
    dispatch->work = (double)pairs->tokens * (double)experts * (double)experts;
    tsr__groups_for(pairs->tokens, 1, dispatch->groups);
}

static tsr_status check_local(const char *op, const tsr_stream *stream, const tsr_tensor *ids,
                              int64_t experts, const tsr_tensor *local, const tsr_tensor *here)
{
    TSR__TRY(tsr__require_tensor(op, "local", stream, local));
    TSR__TRY(tsr__require_tensor(op, "here", stream, here));
    const tsr_layout *l = &local->layout;
    TSR__REQUIRE(l->dtype == TSR_I32 && l->ndim == 1 && l->shape[0] == experts &&
                     (l->strides[0] == 1 || experts == 1),
                 "%s: local is %s %s; a contiguous i32 vector of %lld experts is needed", op,
                 tsr_dtype_name(l->dtype), TSR__SHAPE(l->ndim, l->shape), (long long)experts);
    TSR__REQUIRE(here->layout.dtype == TSR_I32 &&
                     tsr__layout_same_shape(&here->layout, &ids->layout) &&
                     here->layout.strides[0] == ids->layout.strides[0] &&
                     here->layout.strides[1] == ids->layout.strides[1],
                 "%s: here must have the shape and the strides of ids", op);
    return tsr__require_disjoint(op, "here", here, "ids", ids, false);
}

tsr_status tsr_route(tsr_stream *stream, tsr_tensor *ids, tsr_tensor *weights,
                     const tsr_tensor *logits, const tsr_route_params *params)
{
    return tsr__route_local(stream, ids, weights, logits, params, NULL, NULL);
}

tsr_status tsr__route_local(tsr_stream *stream, tsr_tensor *ids, tsr_tensor *weights,
                            const tsr_tensor *logits, const tsr_route_params *params,
                            const tsr_tensor *local, tsr_tensor *here)
{
    const char *op = "route";
    tsr__pairs pairs;
    uint32_t logits_stride, weights_stride;
    TSR__TAKE(tsr_route_params, params);
    TSR__TRY(require_choice(op, stream, logits, ids, params, &pairs, &logits_stride));
    const int64_t experts = logits->layout.shape[1];
    TSR__TRY(tsr__pair_numbers(op, "weights", stream, weights, &pairs, &weights_stride));
    if (params->bias)
        TSR__TRY(require_per_expert(op, "bias", stream, params->bias, experts));
    if (local)
        TSR__TRY(check_local(op, stream, ids, experts, local, here));
    TSR__TRY(tsr__require_disjoint(op, "ids", ids, "logits", logits, false));
    TSR__TRY(tsr__require_disjoint(op, "weights", weights, "logits", logits, false));
    TSR__TRY(tsr__require_disjoint(op, "weights", weights, "ids", ids, false));
    if (pairs.tokens == 0)
        return TSR_OK;
    const struct tsr_route_push push = {
        .logits = tsr__tensor_address(logits),
        .ids = tsr__tensor_address(ids),
        .weights = tsr__tensor_address(weights),
        .bias = params->bias ? tsr__tensor_address(params->bias) : 0,
        .local = local ? tsr__tensor_address(local) : 0,
        .here = local ? tsr__tensor_address(here) : 0,
        .tokens = pairs.tokens,
        .experts = (uint32_t)experts,
        .chosen = pairs.chosen,
        .logits_stride = logits_stride,
        .ids_stride = pairs.ids_stride,
        .weights_stride = weights_stride,
        .groups = params->groups > 1 ? (uint32_t)params->groups : 0,
        .groups_used = (uint32_t)params->groups_used,
        .scale = tsr__given_float(params->scale, 1),
        .least_sum = params->least_sum,
        .epsilon = params->epsilon,
        .normalise = params->normalise,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ROUTE,
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 3,
        .access = {tsr__read_of(logits), tsr__write_of(ids), tsr__write_of(weights)},
    };
    if (params->bias)
        dispatch.access[dispatch.access_count++] = tsr__read_of(params->bias);
    if (local) {
        dispatch.access[dispatch.access_count++] = tsr__read_of(local);
        dispatch.access[dispatch.access_count++] = tsr__write_of(here);
    }
    set_dispatch(&dispatch, &pairs, experts, params);
    return tsr__stream_dispatch(stream, &dispatch);
}

tsr_status tsr_route_grad(tsr_stream *stream, tsr_tensor *dlogits, const tsr_tensor *logits,
                          const tsr_tensor *ids, const tsr_tensor *dweights,
                          const tsr_tensor *dprobabilities, const tsr_route_params *params)
{
    const char *op = "route_grad";
    tsr__pairs pairs;
    uint32_t logits_stride, result_stride, weights_stride = 0;
    TSR__TAKE(tsr_route_params, params);
    TSR__REQUIRE(dweights || dprobabilities, "%s: dweights and dprobabilities are both NULL", op);
    TSR__TRY(require_choice(op, stream, logits, ids, params, &pairs, &logits_stride));
    TSR__TRY(require_logits(op, "dlogits", stream, dlogits, &result_stride));
    const int64_t experts = logits->layout.shape[1];
    TSR__TRY(tsr__require_same_shape(op, "dlogits", dlogits, "logits", logits));
    if (dweights)
        TSR__TRY(tsr__pair_numbers(op, "dweights", stream, dweights, &pairs, &weights_stride));
    if (dprobabilities)
        TSR__TRY(require_per_expert(op, "dprobabilities", stream, dprobabilities, experts));
    const tsr_tensor *inputs[] = {ids, dweights, dprobabilities};
    const char *const names[] = {"ids", "dweights", "dprobabilities"};
    for (int i = 0; i < 3; i++)
        if (inputs[i])
            TSR__TRY(tsr__require_disjoint(op, "dlogits", dlogits, names[i], inputs[i], false));
    TSR__TRY(tsr__require_disjoint(op, "dlogits", dlogits, "logits", logits, true));
    if (pairs.tokens == 0)
        return TSR_OK;
    const struct tsr_route_grad_push push = {
        .logits = tsr__tensor_address(logits),
        .ids = tsr__tensor_address(ids),
        .weights = dweights ? tsr__tensor_address(dweights) : 0,
        .probabilities = dprobabilities ? tsr__tensor_address(dprobabilities) : 0,
        .result = tsr__tensor_address(dlogits),
        .tokens = pairs.tokens,
        .experts = (uint32_t)experts,
        .chosen = pairs.chosen,
        .logits_stride = logits_stride,
        .ids_stride = pairs.ids_stride,
        .weights_stride = weights_stride,
        .result_stride = result_stride,
        .scale = tsr__given_float(params->scale, 1),
        .least_sum = params->least_sum,
        .epsilon = params->epsilon,
        .normalise = params->normalise,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ROUTE_GRAD,
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 3,
        .access = {tsr__read_of(logits), tsr__read_of(ids), tsr__write_of(dlogits)},
    };
    if (dweights)
        dispatch.access[dispatch.access_count++] = tsr__read_of(dweights);
    if (dprobabilities)
        dispatch.access[dispatch.access_count++] = tsr__read_of(dprobabilities);
    set_dispatch(&dispatch, &pairs, experts, params);
    return tsr__stream_dispatch(stream, &dispatch);
}
