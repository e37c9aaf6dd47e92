/* Resolves how products of floats are computed: the choice of choose_kernel.h, among the kernels
 * that have passed their self-test. quantized_weights.h does the same for products whose b is in
 * blocks. */
#ifndef TSR_GPU_MATMUL_PLAN_H
#define TSR_GPU_MATMUL_PLAN_H

#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/common/call.h"

/* Chooses as tsr__matmul_choose() does, but leaves out kernels that fail the self-test for the
 * dtypes of the problem's operands. A kernel is tested when it is first chosen; a kernel that
 * `override` names is not tested. Returns TSR_ERR_UNSUPPORTED if every kernel that could compute
 * the problem has failed. If operands are narrowed and no kernel that is chosen for this problem
 * computes that, the method is TSR__MATMUL_NOTHING. */
tsr_status tsr__matmul_choose_tested(tsr_device *gpu, tsr__tuned *tuned,
                                     const tsr__matmul_problem *problem,
                                     const tsr__matmul_override *override, tsr__matmul_plan *out);

/* Resolves a checked call whose y is not empty and whose operands are floats. If the call is of a
 * fused product and no kernel computes that, the method is TSR__MATMUL_NOTHING. */
tsr_status tsr__matmul_plan_floats(const tsr__matmul_call *call,
                                   const tsr__matmul_override *override, tsr__matmul_plan *out);

/* Resolves a checked call whose y is not empty and whose f32 or quantised operands may be narrowed
 * (narrowed.h). The method is TSR__MATMUL_NOTHING if the product is not to be computed in this
 * way. */
tsr_status tsr__matmul_plan_narrowed(const tsr__matmul_call *call,
                                     const tsr__matmul_override *override,
                                     tsr__matmul_plan *out) TSR_NODISCARD;

#endif
