/* Attention on Mesa's CPU driver, composed of matrix products. A block of queries is multiplied
 * with one block of keys after another. After each of these products, a kernel turns the scores
 * into probabilities, or into their gradients, which are then multiplied with a block of values or
 * of keys. The size of scratch memory is bounded, except for the sums of results that are not
 * f32. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_PRODUCTS_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_PRODUCTS_H

#include "gpu/attention/call.h"

/* True if the call can be computed by products of matrices, and these are faster than the kernels
 * for GPUs. */
bool tsr__attention_products_suit(const tsr__attention *call);

tsr_status tsr__attention_products(const tsr__attention *call) TSR_NODISCARD;
tsr_status tsr__attention_products_grad(const tsr__attention *call) TSR_NODISCARD;

#endif
