/* Checks of tsr_sgd_params and tsr_adamw_params, and steps that first multiply the gradient by a
 * scale. Error texts begin with `op`. This header contains no Vulkan types, so that parallel/ can
 * include it. */
#ifndef TSR_GPU_OPS_OPTIMIZER_STEP_PARAMS_H
#define TSR_GPU_OPS_OPTIMIZER_STEP_PARAMS_H

#include "tessera/ops.h"

tsr_status tsr__sgd_check(const char *op, const tsr_sgd_params *params) TSR_NODISCARD;
tsr_status tsr__adamw_check(const char *op, const tsr_adamw_params *params) TSR_NODISCARD;

enum { TSR__SCALE_FLOATS = 2 };

/* What the gradients of a step are multiplied by. */
typedef struct tsr__gradient_scale {
    float value;
    /* NULL: the factor is `value`. Otherwise a tensor f32 [TSR__SCALE_FLOATS] that the kernel
     * reads: the factor, and then 1, or 0 if the step must change nothing. */
    const tsr_tensor *at;
} tsr__gradient_scale;

/* Sets `scale`, f32 [TSR__SCALE_FLOATS], from the sum of the squares of all gradients: the factor
 * is min(1, max_norm / (norm + 1e-6)) / loss_scale, where norm is √sum / loss_scale. If the sum is
 * not finite, the step must change nothing. */
tsr_status tsr__clip_scale(tsr_stream *stream, tsr_tensor *scale, const tsr_tensor *sum,
                           float max_norm, float loss_scale) TSR_NODISCARD;

/* These functions do the same as tsr_sgd_step and tsr_adamw_step, but first multiply the gradient
 * by `scale`, in f32. */
tsr_status tsr__sgd_step(tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
                         tsr_tensor *velocity, tsr_tensor *master, const tsr_sgd_params *params,
                         tsr__gradient_scale scale) TSR_NODISCARD;
tsr_status tsr__adamw_step(tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
                           tsr_tensor *moment1, tsr_tensor *moment2, tsr_tensor *master,
                           const tsr_adamw_params *params, tsr__gradient_scale scale) TSR_NODISCARD;

#endif
