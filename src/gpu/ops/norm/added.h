/* The gradients of normalisation in a residual branch: dx is the gradient of x plus `added`, the
 * gradient that reaches x past the branch. `added` may be NULL, and is not used if dx is NULL. This
 * header contains no Vulkan types, so that layers can include it. */
#ifndef TSR_GPU_OPS_NORM_ADDED_H
#define TSR_GPU_OPS_NORM_ADDED_H

#include "tessera/stream.h"
#include "tessera/tensor.h"

tsr_status tsr__layer_norm_grad_added(tsr_stream *stream, tsr_tensor *dx, tsr_tensor *dweight,
                                      tsr_tensor *dbias, const tsr_tensor *x, const tsr_tensor *dy,
                                      const tsr_tensor *weight, const tsr_tensor *added,
                                      float epsilon, bool accumulate) TSR_NODISCARD;
tsr_status tsr__rms_norm_grad_added(tsr_stream *stream, tsr_tensor *dx, tsr_tensor *dweight,
                                    const tsr_tensor *x, const tsr_tensor *dy,
                                    const tsr_tensor *weight, const tsr_tensor *added,
                                    float epsilon, bool accumulate) TSR_NODISCARD;

#endif
