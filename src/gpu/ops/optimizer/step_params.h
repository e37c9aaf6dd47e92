/* What optimizers ask of their numbers, whatever they step, if anything. `op` begins the error
 * texts. Free of Vulkan's types, for modules above this one. */
#ifndef TSR_GPU_OPS_OPTIMIZER_STEP_PARAMS_H
#define TSR_GPU_OPS_OPTIMIZER_STEP_PARAMS_H

#include "tessera/ops.h"

tsr_status tsr__sgd_check(const char *op, const tsr_sgd_params *params) TSR_NODISCARD;
tsr_status tsr__adamw_check(const char *op, const tsr_adamw_params *params) TSR_NODISCARD;

#endif
