/* Push constants of the kernels that pack numbers in 8 bits for a slow connection, and add packed
 * numbers. src/gpu/quant/pack.h describes the format. */
#ifndef TSR_PARAMS_PACK_H
#define TSR_PARAMS_PACK_H

#include "types.h"

#define TSR_PACK_BLOCK 32u      /* elements of a block */
#define TSR_PACK_PAIR_WORDS 17u /* 32-bit words of two blocks; one block has 8 and a half */
#define TSR_PACK_LOG2_LARGEST 22

/* Finds the largest absolute value of x, as the bits of an f32; NaN is larger than any number. */
struct tsr_pack_largest_params {
    TSR_ADDRESS x, largest; /* `largest` contains an earlier result, and gets the larger of both */
    TSR_UINT count;
};
TSR_PUSH_CHECK(tsr_pack_largest_params);

/* Packs x[count]. Elements of a block past `count` are 0. */
struct tsr_pack_params {
    TSR_ADDRESS x, y, largest;
    TSR_UINT count, pairs;
    TSR_UINT last; /* the pair of blocks that contains the factor of all blocks; equal to `pairs` if
                      none does */
};
TSR_PUSH_CHECK(tsr_pack_params);

/* y = the sum of several packed copies of a tensor, the contributions, in the order in which
 * they follow each other in memory. */
struct tsr_unpack_params {
    TSR_ADDRESS x, y;
    TSR_ADDRESS stride; /* bytes from one contribution to the next */
    TSR_ADDRESS factor; /* bytes from the start of x to the factor of the first contribution */
    TSR_UINT count, contributions;
};
TSR_PUSH_CHECK(tsr_unpack_params);

#endif
