/* Divides units among ranks in proportion to weights and within limits, for weighted partitions and
 * the weighted strategy. Only integers are used, so that all machines divide in the same way. */
#ifndef TSR_SHARD_STRATEGY_APPORTION_H
#define TSR_SHARD_STRATEGY_APPORTION_H

#include <stdbool.h>

#include "tessera/base.h"

/* Memory that calls use one after another. */
typedef struct tsr__apportion_work {
    struct tsr__apportion_rank *ranks;
    int count;
} tsr__apportion_work;

tsr_status tsr__apportion_init(int ranks, tsr__apportion_work *out) TSR_NODISCARD;
void tsr__apportion_finish(tsr__apportion_work *work);

/* Rank r gets ⌊units · weight / Σ weights⌋ units; the remaining units go to the ranks with the
 * largest remainders, lower ranks first (Hamilton's method). A rank that would get more than its
 * limit gets the limit, and the others divide the rest in the same way. Writes counts[ranks] and
 * returns the number of units that no rank can take, which is 0 unless limits or weights of 0
 * prevent it. `limits` may be NULL. Units and the sum of weights must be below 2^63. */
uint64_t tsr__apportion(tsr__apportion_work *work, uint64_t units, const uint64_t *weights,
                        const uint64_t *limits, uint64_t *counts);

/* Assigns the last unit if no rank has room for a complete unit. The last unit may be shorter: it
 * has `last` elements or bytes instead of `unit`. It goes to the last rank that has any units, or
 * to the first one behind it that has room. rooms[r] is what rank r can take in total, and 0 if its
 * weight is 0. Increments an element of counts[ranks], or returns false if no rank has room. */
bool tsr__apportion_short(int ranks, const uint64_t *rooms, uint64_t unit, uint64_t last,
                          uint64_t *counts);

/* Converts rates to integer weights: multiples of the largest rate / 2^32, rounded, but at least 1
 * for a positive rate. NULL rates give weights of 1. Errors: TSR_ERR_INVALID for rates that are
 * negative, not finite or all 0. */
tsr_status tsr__weights_from_rates(int ranks, const double *rates, uint64_t *weights) TSR_NODISCARD;

#endif
