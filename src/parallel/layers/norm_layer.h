/* Functions that normalisation and attention share. */
#ifndef TSR_PARALLEL_LAYERS_NORM_LAYER_H
#define TSR_PARALLEL_LAYERS_NORM_LAYER_H

#include "gpu/internal.h"
#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

/* Adds a weight whose values are 1, or a bias whose values are 0. Every rank has the full
 * parameter.
 */
tsr_status tsr__norm_parameter_add(tsr_layer *layer, const char *name, int64_t size,
                                   tsr_dtype dtype, tsr_dtype grad_dtype, bool bias) TSR_NODISCARD;

/* The same for a weight that `spec` describes, whose dtypes may be 0. */
tsr_status tsr__norm_parameter_add_divided(tsr_layer *layer,
                                           const tsr__parameter_spec *spec) TSR_NODISCARD;

/* The backward pass of a normalisation layer in a residual branch: *dx is the gradient of x plus
 * `added`. */
tsr_status tsr__norm_backward_added(tsr_layer *layer, const tsr_layer_saved *saved,
                                    const tsr_tensor *dy, const tsr_tensor *added,
                                    tsr_tensor **dx) TSR_NODISCARD;

/* Replaces an epsilon of 0 by 1e-5, and checks that the operations accept it. Error texts call the
 * field `what`. */
tsr_status tsr__norm_epsilon(const tsr_layer *layer, const char *what, float given,
                             float *out) TSR_NODISCARD;

/* If a product can apply the layer's norm to rows of its operand (tsr__matmul_fused), sets *out and
 * returns true: RMS norms. */
bool tsr__norm_for_product(const tsr_layer *layer, tsr__matmul_norm *out);

#endif
