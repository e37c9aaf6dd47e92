/* A call's operands in panels (lavapipe_panels.h), which the host packs while nothing else uses
 * them. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_HOST_PANELS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_HOST_PANELS_H

#include "gpu/cpu_drivers/matmul/plan.h"
#include "gpu/matmul/common/call.h"

/* The product as far as panels depend on it. */
tsr__lavapipe_product tsr__lavapipe_panels_product(const tsr__matmul_call *call);

/* Whether the host can read both operands here and now. */
bool tsr__lavapipe_host_may_pack(const tsr__matmul_call *call);

/* Takes the scratch, unless there is too little memory or recorded work uses it, where it is not
 * `*reserved`. The sides of `packed` and both tensors become what the kernels read. One of each
 * operand's strides in `call` is 1. */
tsr_status tsr__lavapipe_reserve_panels(const tsr__matmul_call *call, tsr__matmul_problem *packed,
                                        tsr_tensor *a, tsr_tensor *b, bool *reserved) TSR_NODISCARD;

void tsr__lavapipe_fill_panels(const tsr__matmul_call *call, const tsr__matmul_problem *packed,
                               const tsr_tensor *a, const tsr_tensor *b);

#endif
