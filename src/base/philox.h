/* Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3" (SC 2011). It gives the same bits as shaders/include/philox.glsl. */
#ifndef TSR_BASE_PHILOX_H
#define TSR_BASE_PHILOX_H

#include <stdint.h>

/* Computes the four words of one block. Words are in the order of the paper's reference code,
 * lowest first. `out` may be `counter`. */
void tsr__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Returns the word for element `index`: word index % 4 of the block with key `seed` and counter
 * (index / 4, subsequence). tsr_random_params documents this layout. */
uint32_t tsr__philox_word(uint64_t seed, uint64_t subsequence, uint64_t index);

#endif
