/* What normalisation and attention have in common. */
#ifndef TSR_PARALLEL_LAYERS_NORM_H
#define TSR_PARALLEL_LAYERS_NORM_H

#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

/* Adds a weight of ones, or a bias of zeros, that every rank has. */
tsr_status tsr__norm_parameter_add(tsr_layer *layer, const char *name, int64_t size,
                                   tsr_dtype dtype, tsr_dtype grad_dtype, bool bias) TSR_NODISCARD;

/* 0 is 1e-5; what the operations do not take is an error, which calls the field `what`. */
tsr_status tsr__norm_epsilon(const tsr_layer *layer, const char *what, float given,
                             float *out) TSR_NODISCARD;

#endif
