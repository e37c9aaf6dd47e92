/* Push constants of the kernel that computes sums of squares. It computes one sum for each chunk
 * of several tensors. */
#ifndef TSR_PARAMS_SUM_SQUARES_H
#define TSR_PARAMS_SUM_SQUARES_H

#include "types.h"

#define TSR_SUM_SQUARES_CHUNK 512u /* elements of a chunk, which 8 invocations add up */
#define TSR_SUM_SQUARES_TENSORS 5  /* the largest number of tensors per dispatch */

/* If a dispatch has fewer than TSR_SUM_SQUARES_TENSORS tensors, `first` is 2^32 − 1 for the
 * missing ones. */
struct tsr_sum_squares_params {
    TSR_ADDRESS partials; /* f32, one for each chunk */
    TSR_ADDRESS x[TSR_SUM_SQUARES_TENSORS];
    TSR_UINT count[TSR_SUM_SQUARES_TENSORS]; /* elements */
    /* the number of the tensor's first chunk among the chunks of this dispatch */
    TSR_UINT first[TSR_SUM_SQUARES_TENSORS];
    TSR_UINT
    partial[TSR_SUM_SQUARES_TENSORS]; /* the index in `partials` of the sum of that chunk */
    TSR_UINT chunks;                  /* the number of chunks of all tensors together */
    TSR_FLOAT scale;
};
TSR_PUSH_CHECK(tsr_sum_squares_params);

#endif
