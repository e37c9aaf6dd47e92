/* The three ways in which Mesa's CPU driver computes attention. Each has a function that says
 * whether it should be used for a call. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_KERNELS_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_KERNELS_H

#include "gpu/attention/call.h"

/* Many short sequences in f32: one kernel has all scores of a query, or of a key, in registers.
 * shaders/cpu_drivers/attention_short.comp explains it. Used if there is enough work to be worth
 * its pipelines. */
bool tsr__attention_short_suits(const tsr__attention *call);
tsr_status tsr__attention_short(const tsr__attention *call) TSR_NODISCARD;
tsr_status tsr__attention_short_grad(const tsr__attention *call) TSR_NODISCARD;

/* One query of each sequence over a cache, which text generation computes for each token and layer.
 * shaders/cpu_drivers/attention_step.comp explains it. */
bool tsr__attention_step_suits(const tsr__attention *call);
tsr_status tsr__attention_step(const tsr__attention *call) TSR_NODISCARD;

/* Products of matrices. A block of queries is multiplied with one block of keys after another.
 * After each of these products, a kernel turns the scores into probabilities, or into their
 * gradients, which are then multiplied with a block of values or of keys. The size of scratch
 * memory is bounded, except for the sums of results that are not f32. Used if it is faster than the
 * kernels for GPUs. */
bool tsr__attention_products_suit(const tsr__attention *call);
tsr_status tsr__attention_products(const tsr__attention *call) TSR_NODISCARD;
tsr_status tsr__attention_products_grad(const tsr__attention *call) TSR_NODISCARD;

#endif
