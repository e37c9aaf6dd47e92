/* The frequencies of rotary position embedding. */
#ifndef TSR_GPU_OPS_ROPE_ROPE_H
#define TSR_GPU_OPS_ROPE_ROPE_H

#include "tessera/rope.h"

/* Checks the params, and replaces zeros by the defaults for which they stand. The attention factor
 * is filled in, too. */
tsr_status tsr__rope_params_complete(const tsr_rope_params *params,
                                     tsr_rope_params *out) TSR_NODISCARD;

/* Computes the frequencies of all rotary_dim / 2 pairs, in radians per position.
 * tsr__rope_params_complete must have completed the params. */
void tsr__rope_frequencies(const tsr_rope_params *params, double *out);

/* tsr__rope_params_of returns the completed params of a rope; tsr__rope_table returns its
 * frequencies as shaders/params/rope.h describes them. */
const tsr_rope_params *tsr__rope_params_of(const tsr_rope *rope);
const tsr_tensor *tsr__rope_table(const tsr_rope *rope);

#endif
