/* Push constants of clip_scale.comp. */
#ifndef TSR_PARAMS_CLIP_SCALE_H
#define TSR_PARAMS_CLIP_SCALE_H

#include "types.h"

/* What clip_scale.comp writes and the optimizers read: the factor of the gradients, and 0 if the
 * step must change nothing, otherwise 1. */
#define TSR_SCALE_FACTOR 0
#define TSR_SCALE_STEPS 1
#define TSR_SCALE_FLOATS 2

struct tsr_clip_scale_params {
    TSR_ADDRESS sum;   /* f32: the sum of the squares of all gradients */
    TSR_ADDRESS scale; /* f32 [TSR_SCALE_FLOATS] */
    TSR_FLOAT max_norm;
    TSR_FLOAT inverse; /* 1 / the factor by which the loss was multiplied */
};
TSR_PUSH_CHECK(tsr_clip_scale_params);

#endif
