/* Attention of many short sequences in f32 on Mesa's CPU driver: one kernel has all scores of a
 * query, or of a key, in registers. shaders/cpu_drivers/attention_short.comp explains it. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_SHORT_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_SHORT_H

#include "gpu/attention/call.h"

/* True if the kernel can compute the call, and it has enough work to be worth its pipelines. */
bool tsr__attention_short_suits(const tsr__attention *call);

tsr_status tsr__attention_short(const tsr__attention *call) TSR_NODISCARD;
tsr_status tsr__attention_short_grad(const tsr__attention *call) TSR_NODISCARD;

#endif
