/* Products with an activation function for training, forward and backward. This header contains no
 * Vulkan types, so that layers can include it. */
#ifndef TSR_GPU_MATMUL_ACTIVATED_H
#define TSR_GPU_MATMUL_ACTIVATED_H

#include "tessera/matmul.h"

/* Computes y[m,n] = act(z) and slope[m,n] = act'(z), where z = a[m,k] · b[n,k]ᵀ + bias. slope
 * has the layout of y; bias is [n] or NULL. The results have the bits of tsr_matmul() followed
 * by tsr_activate() and tsr_activate_grad().
 *
 * Only some products in f32 have a kernel for this, on CPU drivers. If this one has none,
 * nothing is recorded, and *recorded is false. Errors: those of tsr_matmul(). */
tsr_status tsr__matmul_with_slope(tsr_stream *stream, tsr_tensor *y, tsr_tensor *slope,
                                  const tsr_tensor *a, const tsr_tensor *b, const tsr_tensor *bias,
                                  tsr_activation activation, bool *recorded) TSR_NODISCARD;
/* Computes y[m,n] = (a[m,k] · b[k,n]) · factor[m,n], where the second product is element by
 * element. With the slope of tsr__matmul_with_slope() as factor, it continues the backward pass.
 * The result has the bits of tsr_matmul() followed by tsr_mul(). *recorded and errors are as
 * above. */
tsr_status tsr__matmul_times(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_tensor *factor,
                             bool *recorded) TSR_NODISCARD;

/* True if the stream's device has kernels for these two functions. */
bool tsr__matmul_may_fuse(const tsr_stream *stream);

#endif
