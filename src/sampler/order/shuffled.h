/* Successive permutations of 0 … n − 1, as many as an epoch needs, in any order (tsr_order). */
#ifndef TSR_SAMPLER_ORDER_SHUFFLED_H
#define TSR_SAMPLER_ORDER_SHUFFLED_H

#include "sampler/order/passes.h"

typedef struct tsr__shuffled {
    uint64_t n;
    tsr__passes passes;
    tsr__order order; /* the permutation number `round` of the epoch, if `ready` */
    bool ready;
    uint64_t round;
    tsr__draws draws;
} tsr__shuffled;

/* `rounds` is the number of permutations that an epoch draws from its generator. */
tsr_status tsr__shuffled_init(const char *what, tsr_order order, uint64_t n, uint64_t rounds,
                              int64_t seed, const tsr_torch_options *torch, tsr__shuffled *out);
void tsr__shuffled_finish(tsr__shuffled *shuffled);
/* On failure nothing has changed. */
tsr_status tsr__shuffled_set_epoch(const char *what, tsr__shuffled *shuffled, int64_t epoch);
/* Writes indices first … first + count − 1 of the epoch. */
tsr_status tsr__shuffled_fill(tsr__shuffled *shuffled, uint64_t first, uint64_t count,
                              int64_t *out);

#endif
