/* Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3" (SC 2011). The C twin of shaders/include/philox.glsl: both give the
 * same bits. */
#ifndef TSR_BASE_PHILOX_H
#define TSR_BASE_PHILOX_H

#include <stdint.h>

/* The four words of one block. Words are in the order of the paper's reference code, lowest first.
 */
void tsr__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The word that belongs to one element: key `seed`, counter (index / 4, subsequence), word index
 * % 4. This is the layout that tsr_random_params promises. */
uint32_t tsr__philox_word(uint64_t seed, uint64_t subsequence, uint64_t index);

#endif
