/* A sequence of permutations of 0 … n − 1, of any kind (tsr_order). An epoch uses as many of them
 * as it needs. */
#ifndef TSR_SAMPLER_ORDER_EPOCH_PERMUTATIONS_H
#define TSR_SAMPLER_ORDER_EPOCH_PERMUTATIONS_H

#include "sampler/order/epoch_generators.h"

typedef struct tsr__shuffled {
    uint64_t n;
    tsr__passes passes;
    tsr__order order; /* permutation number `round` of the epoch, valid if `ready` is true */
    bool ready;
    uint64_t round;
    tsr__draws draws;
} tsr__shuffled;

/* Initialises the sequence. `rounds` is the number of permutations that each epoch draws from the
 * generator. */
tsr_status tsr__shuffled_init(const char *what, tsr_order order, uint64_t n, uint64_t rounds,
                              int64_t seed, const tsr_torch_options *torch, tsr__shuffled *out);
void tsr__shuffled_finish(tsr__shuffled *shuffled);
/* Moves to an epoch. On failure nothing changes. */
tsr_status tsr__shuffled_set_epoch(const char *what, tsr__shuffled *shuffled, int64_t epoch);
/* Writes the indices at the positions first … first + count − 1 of the epoch. An epoch is all its
 * permutations, one after the other. */
tsr_status tsr__shuffled_fill(tsr__shuffled *shuffled, uint64_t first, uint64_t count,
                              int64_t *out);

#endif
