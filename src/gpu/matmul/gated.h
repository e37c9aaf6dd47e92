/* Gated products of few rows. This header contains no Vulkan types, so that layers can include
 * it. */
#ifndef TSR_GPU_MATMUL_GATED_H
#define TSR_GPU_MATMUL_GATED_H

#include "tessera/matmul.h"

/* y[m,n] = act(a[m,k] · gate[n,k]ᵀ + bias of gate) · (a · up[n,k]ᵀ + bias of up) in one dispatch.
 * b [2n,k] has the rows of gate, then those of up, in any dtype of tsr_matmul. bias is [2n] or
 * NULL. In f32 the result has the bits of tsr_matmul and tsr_activate_mul, unless tsr_matmul splits
 * k. allow_int8 is as in tsr_matmul_params.
 *
 * Only some products have a kernel for this: those of few rows on GPUs. If this one has none,
 * nothing is recorded, and *recorded is false. Errors: those of tsr_matmul. */
tsr_status tsr__matmul_gated(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_tensor *bias, tsr_activation activation,
                             bool allow_int8, bool *recorded) TSR_NODISCARD;

#endif
