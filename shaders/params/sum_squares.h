/* Push constants of sums of squares: each workgroup adds up a chunk of one tensor of several. */
#ifndef TSR_PARAMS_SUM_SQUARES_H
#define TSR_PARAMS_SUM_SQUARES_H

#include "types.h"

#define TSR_SUM_SQUARES_CHUNK 4096u /* elements */
#define TSR_SUM_SQUARES_TENSORS 7   /* per dispatch */

/* Entries without a tensor have the first chunk 2^32 − 1. */
struct tsr_sum_squares_params {
    TSR_ADDRESS parts; /* f32, one for each chunk */
    TSR_ADDRESS x[TSR_SUM_SQUARES_TENSORS];
    TSR_UINT count[TSR_SUM_SQUARES_TENSORS]; /* elements */
    TSR_UINT first[TSR_SUM_SQUARES_TENSORS]; /* the tensor's first chunk */
    TSR_UINT chunks;                         /* of all */
    TSR_FLOAT scale;
};
TSR_PUSH_CHECK(tsr_sum_squares_params);

#endif
