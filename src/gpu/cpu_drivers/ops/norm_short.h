/* Normalisation of short rows without gaps on Mesa's CPU driver, and its gradients, each in one
 * kernel: shaders/cpu_drivers/norm_short.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_NORM_SHORT_H
#define TSR_GPU_CPU_DRIVERS_OPS_NORM_SHORT_H

#include "gpu/ops/norm/plane.h"

/* `output` is one of TSR_NORM_…: the result goes to operand 1; of the gradients, for which operand
 * 1 is dy, that of x goes to operand 2. The statistics go to `scratch`, or the products, as f32
 * [rows, columns]. */
bool tsr__norm_short_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output);
tsr_status tsr__norm_short_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, uint32_t output,
                               tsr__buffer *scratch) TSR_NODISCARD;

#endif
