/* tsr_matmul: checks the arguments, reduces the call to a problem, chooses a kernel and runs it. */
#include "tessera/matmul.h"

#include "base/error.h"
#include "base/struct_size.h"
#include "gpu/matmul/matmul.h"
#include "gpu/matmul/quant.h"
#include "gpu/matmul/self_test.h"
#include "gpu/matmul/tuning/tuned.h"

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

tsr_status tsr__matmul_run(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                           const tsr_tensor *b, const tsr_matmul_params *params,
                           const tsr__matmul_override *override)
{
    tsr__matmul_problem problem;
    tsr__matmul_plan plan;

    TSR__TRY(tsr__matmul_check(stream, y, a, b, params, &problem));
    if (problem.m == 0 || problem.n == 0 || problem.batch_count == 0)
        return TSR_OK;
    if (tsr__dtype_is_block(b->layout.dtype))
        return tsr__matmul_run_quant(stream, y, a, b, params, &problem);

    tsr_device *gpu = tsr_stream_device(stream);
    tsr__tuned *tuned;
    TSR__TRY(tsr__tuned_of(gpu, &tuned));
    TSR__TRY(tsr__matmul_choose_tested(gpu, tuned, &problem, override, &plan));
    tsr__matmul_call call = {.stream = stream,
                             .problem = &problem,
                             .y = y,
                             .a = problem.swapped ? b : a,
                             .b = problem.swapped ? a : b,
                             .bias = params ? params->bias : NULL};
    return plan.config->family->run(&call, &plan);
}

tsr_status tsr_matmul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b,
                      const tsr_matmul_params *params)
{
    TSR__TAKE(tsr_matmul_params, params);
    return tsr__matmul_run(stream, y, a, b, params, NULL);
}
