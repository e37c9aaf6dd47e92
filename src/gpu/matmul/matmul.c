/* tsr_matmul and the fused products of gpu/internal.h. Each checks its arguments, reduces the call
 * to a problem, resolves a plan and records it. */
#include "tessera/matmul.h"

#include "base/error.h"
#include "base/struct_size.h"
#include "gpu/internal.h"
#include "gpu/matmul/matmul.h"
#include "gpu/matmul/narrowed.h"
#include "gpu/matmul/plan.h"
#include "gpu/matmul/quantized_weights.h"
#include "tensor/check.h"

static tsr_status check(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                        const tsr_tensor *b, const tsr_tensor *bias)
{
    TSR__TRY(tsr__require_float("matmul", "y", stream, y));
    TSR__TRY(tsr__require_float("matmul", "a", stream, a));
    TSR__TRY(tsr__require_on_device("matmul", "b", stream, b));
    TSR__REQUIRE(tsr__dtype_is_float(b->layout.dtype) || tsr__dtype_is_block(b->layout.dtype),
                 "matmul: b is %s; f32, f16, bf16 or a block format is needed",
                 tsr_dtype_name(b->layout.dtype));
    if (bias)
        TSR__TRY(tsr__require_float("matmul", "bias", stream, bias));
    return TSR_OK;
}

static tsr_status check_overlap(const tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b,
                                const tsr_tensor *bias)
{
    TSR__TRY(tsr__require_disjoint("matmul", "y", y, "a", a, false));
    TSR__TRY(tsr__require_disjoint("matmul", "y", y, "b", b, false));
    if (bias)
        TSR__TRY(tsr__require_disjoint("matmul", "y", y, "bias", bias, false));
    return TSR_OK;
}

tsr_status tsr__matmul_check(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_matmul_params *params,
                             tsr__matmul_problem *out)
{
    const tsr_tensor *bias = params ? params->bias : NULL;

    TSR__TRY(check(stream, y, a, b, bias));
    /* The description of the product (tsr__matmul_problem) has only positions of elements, which do
     * not depend on the dtype. */
    tsr_layout b_layout = b->layout;
    if (tsr__dtype_is_block(b->layout.dtype)) {
        TSR__TRY(tsr__matmul_check_quant(b, params));
        b_layout.dtype = TSR_F32;
    }
    TSR__TRY(tsr__matmul_problem_init(&y->layout, &a->layout, &b_layout,
                                      bias ? &bias->layout : NULL, params, out));
    return check_overlap(y, a, b, bias);
}

/* Resolves how the call is computed, and records it unless `only_ask` is true. Sets *recorded,
 * which may be NULL, to whether a kernel computes it. */
static tsr_status plan_and_record(const tsr__matmul_call *call,
                                  const tsr__matmul_override *override, bool only_ask,
                                  bool *recorded)
{
    const tsr__matmul_problem *p = call->problem;
    tsr__matmul_plan plan = {.method = TSR__MATMUL_NOTHING};

    if (p->m > 0 && p->n > 0 && p->batch_count > 0) {
        TSR__TRY(tsr__matmul_plan_narrowed(call, override, &plan));
        if (call->sums && plan.method != TSR__MATMUL_NOTHING) {
            *recorded = false;
            return TSR_OK;
        }
        if (plan.method == TSR__MATMUL_NOTHING && !call->gate) {
            if (!call->added && tsr__dtype_is_block(call->b->layout.dtype))
                tsr__matmul_plan_blocks(call, &plan);
            else if (!tsr__dtype_is_block(call->b->layout.dtype))
                TSR__TRY(tsr__matmul_plan_floats(call, override, &plan));
        }
    }
    if (plan.method == TSR__MATMUL_FLOATS && !only_ask)
        TSR__TRY(plan.config->family->run(call, &plan));
    else if (plan.method == TSR__MATMUL_NARROWED && !only_ask)
        TSR__TRY(tsr__matmul_record_narrowed(call, &plan));
    else if (!only_ask)
        TSR__TRY(tsr__matmul_record_blocks(call, &plan));
    if (recorded)
        *recorded = plan.method != TSR__MATMUL_NOTHING;
    return TSR_OK;
}

tsr_status tsr__matmul_run(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                           const tsr_tensor *b, const tsr_matmul_params *params,
                           const tsr__matmul_override *override)
{
    tsr__matmul_problem problem;

    TSR__TRY(tsr__matmul_check(stream, y, a, b, params, &problem));
    const bool swapped = problem.swapped && !tsr__dtype_is_block(b->layout.dtype);
    const tsr__matmul_call call = {.stream = stream,
                                   .problem = &problem,
                                   .y = y,
                                   .a = swapped ? b : a,
                                   .b = swapped ? a : b,
                                   .bias = params ? params->bias : NULL,
                                   .params = params};
    return plan_and_record(&call, override, false, NULL);
}

tsr_status tsr_matmul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b,
                      const tsr_matmul_params *params)
{
    TSR__TAKE(tsr_matmul_params, params);
    return tsr__matmul_run(stream, y, a, b, params, NULL);
}

/* Products with an activation function or its slope -------------------------------------------- */

bool tsr__matmul_may_fuse(const tsr_stream *stream, tsr_dtype dtype)
{
    tsr_device *gpu = tsr_stream_device(stream);
    const tsr__matmul_device device = tsr__matmul_device_of(gpu);
    const tsr__matmul_config *config;
    if (!gpu->traits.slow_pipelines)
        return true;
    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++)
        if (dtype == TSR_F32 && config->family->fuses && tsr__matmul_config_runs(config, &device))
            return true;
    return false;
}

static tsr_status check_slope(const tsr_stream *stream, const tsr__matmul_call *call)
{
    const tsr_tensor *slope = call->slope;
    TSR__TRY(tsr__require_float("matmul", "slope", stream, slope));
    TSR__REQUIRE(tsr__layout_same_shape(&slope->layout, &call->y->layout),
                 "matmul: slope is %s; y is %s",
                 TSR__SHAPE(slope->layout.ndim, slope->layout.shape),
                 TSR__SHAPE(call->y->layout.ndim, call->y->layout.shape));
    TSR__TRY(tsr__require_disjoint("matmul", "slope", slope, "y", call->y, false));
    TSR__TRY(tsr__require_disjoint("matmul", "slope", slope, "a", call->a, false));
    TSR__TRY(tsr__require_disjoint("matmul", "slope", slope, "b", call->b, false));
    return call->bias ? tsr__require_disjoint("matmul", "slope", slope, "bias", call->bias, false)
                      : TSR_OK;
}

static bool same_layout(const tsr_tensor *a, const tsr_tensor *b)
{
    for (int d = 0; d < a->layout.ndim; d++)
        if (a->layout.strides[d] != b->layout.strides[d])
            return false;
    return a->layout.dtype == b->layout.dtype;
}

tsr_status tsr__matmul_with_slope(tsr_stream *stream, tsr_tensor *y, tsr_tensor *slope,
                                  const tsr_tensor *a, const tsr_tensor *b, const tsr_tensor *bias,
                                  tsr_activation activation, bool *recorded)
{
    tsr__matmul_problem problem;
    const tsr__matmul_call call = {.stream = stream,
                                   .problem = &problem,
                                   .y = y,
                                   .a = a,
                                   .b = b,
                                   .bias = bias,
                                   .slope = slope};
    *recorded = false;
    TSR__TRY(tsr__matmul_check(
        stream, y, a, b,
        tsr_matmul_params(.transpose_b = true, .bias = bias, .activation = activation), &problem));
    TSR__TRY(check_slope(stream, &call));
    if (!same_layout(slope, y) || activation == TSR_ACT_NONE)
        return TSR_OK;
    return plan_and_record(&call, NULL, false, recorded);
}

tsr_status tsr__matmul_times(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_tensor *factor, bool *recorded)
{
    tsr__matmul_problem problem;
    const tsr__matmul_call call = {.stream = stream,
                                   .problem = &problem,
                                   .y = y,
                                   .a = a,
                                   .b = b,
                                   .bias = factor,
                                   .times = true};
    *recorded = false;
    TSR__TRY(tsr__matmul_check(stream, y, a, b, tsr_matmul_params(.bias = factor), &problem));
    return plan_and_record(&call, NULL, false, recorded);
}

tsr_status tsr__matmul_with_row_sums(tsr_stream *stream, tsr_tensor *y, tsr_tensor *sums,
                                     const tsr_tensor *a, const tsr_tensor *b, bool accumulate,
                                     bool *recorded)
{
    tsr__matmul_problem problem;
    const tsr__matmul_call call = {
        .stream = stream, .problem = &problem, .y = y, .a = a, .b = b, .sums = sums};
    *recorded = false;
    TSR__TRY(tsr__matmul_check(stream, y, a, b,
                               tsr_matmul_params(.transpose_a = true, .accumulate = accumulate),
                               &problem));
    TSR__TRY(tsr__require_float("matmul", "sums", stream, sums));
    TSR__REQUIRE(sums->layout.ndim == 1 && y->layout.ndim == 2 &&
                     sums->layout.shape[0] == y->layout.shape[0],
                 "matmul: sums is %s; y is %s", TSR__SHAPE(sums->layout.ndim, sums->layout.shape),
                 TSR__SHAPE(y->layout.ndim, y->layout.shape));
    TSR__TRY(tsr__require_disjoint("matmul", "sums", sums, "y", y, false));
    TSR__TRY(tsr__require_disjoint("matmul", "sums", sums, "a", a, false));
    TSR__TRY(tsr__require_disjoint("matmul", "sums", sums, "b", b, false));
    if (sums->layout.dtype != TSR_F32 || !tsr_layout_is_contiguous(&sums->layout) ||
        problem.swapped || tsr__dtype_is_block(b->layout.dtype))
        return TSR_OK;
    return plan_and_record(&call, NULL, false, recorded);
}

/* Gated products ------------------------------------------------------------------------------- */

/* Makes *out a view of the first half of a tensor's rows. */
static tsr_status first_half(const tsr_stream *stream, const char *name, const tsr_tensor *tensor,
                             tsr_tensor *out)
{
    TSR__TRY(tsr__require_on_device("matmul", name, stream, tensor));
    const tsr_layout *l = &tensor->layout;
    TSR__REQUIRE(l->ndim >= 1 && l->shape[0] % 2 == 0,
                 "matmul: %s is %s; a gated product needs an even number of rows", name,
                 TSR__SHAPE(l->ndim, l->shape));
    out->buffer = tensor->buffer;
    return tsr_layout_slice(l, 0, 0, l->shape[0] / 2, 1, &out->layout);
}

/* True if the kernels can load the norm's weight. */
static bool norm_fits(const tsr__matmul_norm *norm, const tsr__matmul_problem *problem)
{
    const tsr_layout *l = &norm->weight->layout;
    return l->ndim == 1 && l->shape[0] == problem->k && l->strides[0] == 1 &&
           tsr__dtype_is_float(l->dtype) &&
           tsr__tensor_address(norm->weight) % (4 * tsr_dtype_size(l->dtype)) == 0;
}

/* Kernels for CPU drivers read rows that are normalised. */
static bool may_normalise(const tsr__matmul_call *call)
{
    return !call->norm || (!tsr_stream_device(call->stream)->traits.few_invocations &&
                           norm_fits(call->norm, call->problem));
}

static tsr_status check_added(const tsr_stream *stream, const tsr_tensor *added,
                              const tsr_tensor *y)
{
    TSR__TRY(tsr__require_float("matmul", "added", stream, added));
    TSR__REQUIRE(tsr__layout_same_shape(&added->layout, &y->layout), "matmul: added is %s; y is %s",
                 TSR__SHAPE(added->layout.ndim, added->layout.shape),
                 TSR__SHAPE(y->layout.ndim, y->layout.shape));
    return tsr__require_disjoint("matmul", "y", y, "added", added, false);
}

static tsr_status check_gate(const tsr_stream *stream, const tsr__matmul_gate *gate,
                             const tsr_tensor *y, const tsr_tensor *a)
{
    TSR__TRY(tsr__require_float("matmul", "up", stream, gate->up));
    TSR__REQUIRE(tsr__layout_same_shape(&gate->up->layout, &a->layout) && same_layout(gate->up, a),
                 "matmul: up is %s; a is %s with the same strides",
                 TSR__SHAPE(gate->up->layout.ndim, gate->up->layout.shape),
                 TSR__SHAPE(a->layout.ndim, a->layout.shape));
    return tsr__require_disjoint("matmul", "y", y, "up", gate->up, false);
}

tsr_status tsr__matmul_fused(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr__matmul_fusion *fusion, bool *recorded)
{
    const tsr_tensor *bias = fusion->bias;
    tsr__matmul_problem problem;
    tsr_tensor gate, gate_bias;
    const tsr_tensor *own = b, *own_bias = bias;
    *recorded = false;
    if (fusion->gated) {
        TSR__TRY(first_half(stream, "b", b, &gate));
        own = &gate;
    }
    if (fusion->gated && bias) {
        TSR__TRY(first_half(stream, "bias", bias, &gate_bias));
        own_bias = &gate_bias;
    }
    TSR__TRY(tsr__matmul_check(
        stream, y, a, own,
        tsr_matmul_params(.transpose_b = true, .bias = own_bias, .activation = fusion->activation,
                          .allow_int8 = fusion->allow_int8, .precision = fusion->precision),
        &problem));
    if (fusion->gated)
        TSR__TRY(tsr__require_disjoint("matmul", "y", y, "b", b, false));
    if (fusion->gated && bias)
        TSR__TRY(tsr__require_disjoint("matmul", "y", y, "bias", bias, false));
    if (fusion->norm)
        TSR__TRY(tsr__require_disjoint("matmul", "y", y, "the norm", fusion->norm->weight, false));
    if (fusion->gate)
        TSR__TRY(check_gate(stream, fusion->gate, y, a));
    if (fusion->added)
        TSR__TRY(check_added(stream, fusion->added, y));
    const tsr__matmul_call call = {.stream = stream,
                                   .problem = &problem,
                                   .y = y,
                                   .a = a,
                                   .b = b,
                                   .bias = bias,
                                   .gated = fusion->gated,
                                   .norm = fusion->norm,
                                   .gate = fusion->gate,
                                   .added = fusion->added};
    if (!may_normalise(&call) || (fusion->added && !same_layout(fusion->added, y)))
        return TSR_OK;
    return plan_and_record(&call, NULL, fusion->only_ask, recorded);
}

tsr_status tsr__matmul_gated(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_tensor *bias, tsr_activation activation,
                             bool allow_int8, bool *recorded)
{
    return tsr__matmul_fused(
        stream, y, a, b,
        &(tsr__matmul_fusion){
            .gated = true, .bias = bias, .activation = activation, .allow_int8 = allow_int8},
        recorded);
}
