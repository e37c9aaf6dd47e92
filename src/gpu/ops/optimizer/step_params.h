/* Checks the optimizers' params, except the tensors. Also declares steps with scaled gradients.
 * Error texts begin with `op`. This header contains no Vulkan types, so that parallel/ can include
 * it. */
#ifndef TSR_GPU_OPS_OPTIMIZER_STEP_PARAMS_H
#define TSR_GPU_OPS_OPTIMIZER_STEP_PARAMS_H

#include "tessera/ops.h"

tsr_status tsr__sgd_check(const char *op, const tsr_sgd_params *params) TSR_NODISCARD;
tsr_status tsr__adamw_check(const char *op, const tsr_adamw_params *params) TSR_NODISCARD;

/* The same as tsr_sgd_step and tsr_adamw_step, except that the gradient is first multiplied by
 * gradient_scale, in f32. */
tsr_status tsr__sgd_step(tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
                         tsr_tensor *velocity, tsr_tensor *master, const tsr_sgd_params *params,
                         float gradient_scale) TSR_NODISCARD;
tsr_status tsr__adamw_step(tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
                           tsr_tensor *moment1, tsr_tensor *moment2, tsr_tensor *master,
                           const tsr_adamw_params *params, float gradient_scale) TSR_NODISCARD;

#endif
