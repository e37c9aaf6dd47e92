#include "gpu/matmul/activated.h"

#include "gpu/matmul/chooser.h"
#include "gpu/matmul/kernels/configs.h"
#include "gpu/matmul/matmul.h"
#include "gpu/matmul/self_test.h"
#include "gpu/matmul/tuning/tuned.h"
#include "tensor/check.h"

bool tsr__matmul_may_fuse(const tsr_stream *stream)
{
    const tsr__matmul_device device = tsr__matmul_device_of(tsr_stream_device(stream));
    const tsr__matmul_config *config;
    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++)
        if (config->family->fuses && tsr__matmul_config_runs(config, &device))
            return true;
    return false;
}

static bool is_f32(const tsr_tensor *tensor)
{
    return !tensor || tensor->layout.dtype == TSR_F32;
}

/* Records the product if the kernel that tsr_matmul would choose computes it with `slope` or
 * `times`. */
static tsr_status run(const tsr__matmul_call *call, bool *recorded)
{
    const tsr__matmul_problem *p = call->problem;
    tsr_device *gpu = tsr_stream_device(call->stream);
    tsr__matmul_plan plan;
    tsr__tuned *tuned;
    if (p->m == 0 || p->n == 0 || p->k == 0 || p->batch_count == 0 || p->swapped ||
        !is_f32(call->y) || !is_f32(call->a) || !is_f32(call->b) || !is_f32(call->bias))
        return TSR_OK;
    TSR__TRY(tsr__tuned_of(gpu, &tuned));
    TSR__TRY(tsr__matmul_choose_tested(gpu, tuned, p, NULL, &plan));
    if (!plan.config->family->fuses || !plan.config->family->fuses(call))
        return TSR_OK;
    TSR__TRY(plan.config->family->run(call, &plan));
    *recorded = true;
    return TSR_OK;
}

static tsr_status check_slope(const tsr_stream *stream, const tsr__matmul_call *call)
{
    const tsr_tensor *slope = call->slope;
    TSR__TRY(tsr__require_float("matmul", "slope", stream, slope));
    TSR__REQUIRE(tsr_layout_same_shape(&slope->layout, &call->y->layout),
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
    return same_layout(slope, y) && activation != TSR_ACT_NONE ? run(&call, recorded) : TSR_OK;
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
    return run(&call, recorded);
}
