#include "gpu/matmul/gated.h"

#include "gpu/matmul/common/loads.h"
#include "gpu/matmul/kernels/kernels.h"
#include "gpu/matmul/matmul.h"
#include "gpu/matmul/quant.h"
#include "gpu/matmul/self_test.h"
#include "gpu/matmul/tuning/tuned.h"
#include "tensor/check.h"

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

/* Records the product if the kernel for few rows and columns along k computes it. */
static tsr_status run_vector(const tsr__matmul_call *call, bool *recorded)
{
    const tsr__matmul_problem *p = call->problem;
    tsr_device *gpu = tsr_stream_device(call->stream);
    tsr__matmul_plan plan;
    tsr__tuned *tuned;
    TSR__TRY(tsr__tuned_of(gpu, &tuned));
    TSR__TRY(tsr__matmul_choose_tested(gpu, tuned, p, NULL, &plan));
    if (plan.config->family != &tsr__matmul_vector_k || plan.splits > 1 || p->k == 0 ||
        p->batch_dims > 0 || !tsr__matmul_side_narrow(&p->b, p->k, 2 * p->n))
        return TSR_OK;
    plan.gated = true;
    TSR__TRY(plan.config->family->run(call, &plan));
    *recorded = true;
    return TSR_OK;
}

tsr_status tsr__matmul_gated(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_tensor *bias, tsr_activation activation,
                             bool allow_int8, bool *recorded)
{
    tsr__matmul_problem problem;
    tsr_tensor gate, gate_bias;
    *recorded = false;
    TSR__TRY(first_half(stream, "b", b, &gate));
    if (bias)
        TSR__TRY(first_half(stream, "bias", bias, &gate_bias));
    TSR__TRY(
        tsr__matmul_check(stream, y, a, &gate,
                          tsr_matmul_params(.transpose_b = true, .bias = bias ? &gate_bias : NULL,
                                            .activation = activation, .allow_int8 = allow_int8),
                          &problem));
    TSR__TRY(tsr__require_disjoint("matmul", "y", y, "b", b, false));
    if (bias)
        TSR__TRY(tsr__require_disjoint("matmul", "y", y, "bias", bias, false));
    if (problem.m == 0 || problem.n == 0 || problem.batch_count == 0 || problem.swapped)
        return TSR_OK;
    const tsr__matmul_call call = {
        .stream = stream, .problem = &problem, .y = y, .a = a, .b = b, .bias = bias};
    return tsr__dtype_is_block(b->layout.dtype) ? tsr__matmul_few_gated(&call, recorded)
                                                : run_vector(&call, recorded);
}
