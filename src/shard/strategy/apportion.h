/* Dividing units among ranks in proportion to weights, within limits: what weighted partitions and
 * the weighted strategy share. Integers only, so that every machine divides in the same way. */
#ifndef TSR_SHARD_STRATEGY_APPORTION_H
#define TSR_SHARD_STRATEGY_APPORTION_H

#include <stdbool.h>

#include "tessera/base.h"

/* Memory for one call after another. */
typedef struct tsr__apportion_work {
    struct tsr__apportion_rank *ranks;
    int count;
} tsr__apportion_work;

tsr_status tsr__apportion_init(int ranks, tsr__apportion_work *out) TSR_NODISCARD;
void tsr__apportion_finish(tsr__apportion_work *work);

/* Rank r gets ⌊units · weight / Σ weights⌋ units, and one more in the order of the largest
 * remainders, lower ranks first (Hamilton's method). Who would get more than its limit gets that,
 * and the others divide the rest in the same way. Writes counts[ranks] and returns how many units
 * nobody can take: 0 unless limits or weights of 0 are in the way. `limits` may be NULL; units and
 * the sum of weights are below 2^63. */
uint64_t tsr__apportion(tsr__apportion_work *work, uint64_t units, const uint64_t *weights,
                        const uint64_t *limits, uint64_t *counts);

/* Where one unit is left that nobody can take whole, and it is the very last, which is `last` long
 * and not `unit`: whether it fits the rank that has the end so far, or one behind that. rooms[r] is
 * what rank r can take in all, 0 where its weight is. Adds to counts[ranks]. */
bool tsr__apportion_short(int ranks, const uint64_t *rooms, uint64_t unit, uint64_t last,
                          uint64_t *counts);

/* Weights from rates: multiples of the largest / 2^32, rounded, but 1 at least for what is not 0.
 * NULL: all 1. Errors: TSR_ERR_INVALID for rates that are negative, not finite or all 0. */
tsr_status tsr__weights_from_rates(int ranks, const double *rates, uint64_t *weights) TSR_NODISCARD;

#endif
