/* Attention on Mesa's CPU driver, composed of matrix products. A block of queries is multiplied
 * with one block of keys after another, and a kernel turns the scores of each into probabilities
 * (or their gradients) between the products. Scratch memory is bounded but for the sums of results
 * that are not f32. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_PRODUCTS_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_PRODUCTS_H

#include "gpu/attention/call.h"

/* Whether this is possible, and faster than the kernels for GPUs. */
bool tsr__attention_products_suit(const tsr__attention *call);

tsr_status tsr__attention_products(const tsr__attention *call) TSR_NODISCARD;
tsr_status tsr__attention_products_grad(const tsr__attention *call) TSR_NODISCARD;

#endif
