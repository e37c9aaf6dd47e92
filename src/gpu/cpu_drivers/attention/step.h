/* Attention of one query of each sequence over a cache, on Mesa's CPU driver. Text generation
 * computes it for each token and layer. shaders/cpu_drivers/attention_step.comp explains it. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_STEP_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_STEP_H

#include "gpu/attention/call.h"

/* True if the kernel can compute the call. */
bool tsr__attention_step_suits(const tsr__attention *call);

tsr_status tsr__attention_step(const tsr__attention *call) TSR_NODISCARD;

#endif
