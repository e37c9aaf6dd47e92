/* The method of largest remainders. Divides units (groups of elements that must stay together)
 * among ranks, in proportion to weights and within limits. Weighted partitions and the weighted
 * strategy use this. The functions use only integers, so that the result is the same on all
 * machines. */
#ifndef TSR_SHARD_STRATEGY_LARGEST_REMAINDER_H
#define TSR_SHARD_STRATEGY_LARGEST_REMAINDER_H

#include <stdbool.h>

#include "tessera/base.h"

/* Temporary memory for tsr__apportion, reusable between calls. */
typedef struct tsr__apportion_work {
    struct tsr__apportion_rank *ranks;
    int count;
} tsr__apportion_work;

tsr_status tsr__apportion_init(int ranks, tsr__apportion_work *out) TSR_NODISCARD;
void tsr__apportion_finish(tsr__apportion_work *work);

/* Divides `units` units among the ranks. Rank r gets ⌊units · weight / Σ weights⌋ units. Each of
 * the remaining units goes to one of the ranks with the largest remainders; of equal ranks, the
 * lower one comes first (Hamilton's method). A rank that would get more than its limit gets only
 * the limit, and the rest is divided in the same way among the other ranks. Writes the numbers of
 * units to counts[ranks]. Returns the number of units that no rank can take; it is 0 unless limits,
 * or weights of 0, prevent it. `limits` may be NULL. `units` and the sum of the weights must be
 * below 2^63. */
uint64_t tsr__apportion(tsr__apportion_work *work, uint64_t units, const uint64_t *weights,
                        const uint64_t *limits, uint64_t *counts);

/* Assigns the last unit if tsr__apportion has left it over because no rank has room for a complete
 * unit. The last unit may be shorter than the others: it has `last` elements or bytes instead of
 * `unit`. It goes to the last rank that has any units, or to the first rank after it that has room.
 * rooms[r] is the total that rank r can take, or 0 if the weight of rank r is 0. Adds 1 to the
 * entry of counts[ranks] for the rank that gets it. Returns false if no rank has room. */
bool tsr__apportion_short(int ranks, const uint64_t *rooms, uint64_t unit, uint64_t last,
                          uint64_t *counts);

/* Converts rates to integer weights. A weight is the rate divided by (largest rate / 2^32), rounded
 * to an integer, and at least 1 for a positive rate. If `rates` is NULL, all weights are 1. Errors:
 * TSR_ERR_INVALID if a rate is negative or not finite, or if all rates are 0. */
tsr_status tsr__weights_from_rates(int ranks, const double *rates, uint64_t *weights) TSR_NODISCARD;

#endif
