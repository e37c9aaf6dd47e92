/* A sequence of permutations of 0 … n − 1, of any kind (tsr_order). An epoch uses as many of them
 * as it needs. */
#ifndef TSR_SAMPLER_ORDER_EPOCH_PERMUTATIONS_H
#define TSR_SAMPLER_ORDER_EPOCH_PERMUTATIONS_H

#include "sampler/order/epoch_generators.h"

typedef struct tsr__epoch_permutations {
    uint64_t n;
    tsr__epoch_generator epoch_generator;
    tsr__order order; /* permutation number `round` of the epoch, valid if `ready` is true */
    bool ready;
    uint64_t round;
    tsr__draws draws;
} tsr__epoch_permutations;

/* Initialises the sequence. `rounds` is the number of permutations that each epoch draws from the
 * generator. */
tsr_status tsr__epoch_permutations_init(const char *what, tsr_order order, uint64_t n,
                                        uint64_t rounds, int64_t seed,
                                        const tsr_torch_options *torch,
                                        tsr__epoch_permutations *out);
void tsr__epoch_permutations_finish(tsr__epoch_permutations *shuffled);
/* Moves to an epoch. On failure nothing changes. */
tsr_status tsr__epoch_permutations_set_epoch(const char *what, tsr__epoch_permutations *shuffled,
                                             int64_t epoch);
/* Writes the indices at the positions first … first + count − 1 of the epoch. An epoch is the
 * concatenation of its permutations. */
tsr_status tsr__epoch_permutations_fill(tsr__epoch_permutations *shuffled, uint64_t first,
                                        uint64_t count, int64_t *out);

#endif
