/* Checks of the optimizers' params, apart from those of tensors. `op` begins the error texts.
 * Contains no Vulkan types, so that parallel/ can include it. */
#ifndef TSR_GPU_OPS_OPTIMIZER_STEP_PARAMS_H
#define TSR_GPU_OPS_OPTIMIZER_STEP_PARAMS_H

#include "tessera/ops.h"

tsr_status tsr__sgd_check(const char *op, const tsr_sgd_params *params) TSR_NODISCARD;
tsr_status tsr__adamw_check(const char *op, const tsr_adamw_params *params) TSR_NODISCARD;

#endif
