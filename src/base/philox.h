/* Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3" (SC 2011). It gives the same bits as shaders/include/philox.glsl. */
#ifndef TSR_BASE_PHILOX_H
#define TSR_BASE_PHILOX_H

#include <stdint.h>

/* Computes one block of four random words from a counter and a key. The words are in the order of
 * the paper's reference code, lowest first. `out` and `counter` may be the same array. */
void tsr__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Returns the random word of element `index`. It is word number index % 4 of a block with the key
 * `seed` and the counter (index / 4, subsequence). tsr_random_params documents this layout. */
uint32_t tsr__philox_word(uint64_t seed, uint64_t subsequence, uint64_t index);

#endif
