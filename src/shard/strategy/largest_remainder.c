#include "shard/strategy/largest_remainder.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "shard/strategy/wide_product.h"

#define RATE_SCALE 4294967296.0

struct tsr__apportion_rank {
    uint64_t remainder;
    int rank;
    bool open; /* the rank can take more units: its weight is above 0 and it is below its limit */
};

tsr_status tsr__apportion_init(int ranks, tsr__apportion_work *out)
{
    struct tsr__apportion_rank *memory = tsr__calloc((size_t)ranks, sizeof *memory);
    if (memory == NULL)
        return TSR_ERR_NO_MEMORY;
    *out = (tsr__apportion_work){memory, ranks};
    return TSR_OK;
}

void tsr__apportion_finish(tsr__apportion_work *work)
{
    tsr__free(work->ranks);
    *work = (tsr__apportion_work){0};
}

static int by_remainder(const void *a, const void *b)
{
    const struct tsr__apportion_rank *x = a, *y = b;
    if (x->open != y->open)
        return x->open ? -1 : 1;
    if (x->remainder != y->remainder)
        return x->remainder > y->remainder ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

uint64_t tsr__apportion(tsr__apportion_work *work, uint64_t units, const uint64_t *weights,
                        const uint64_t *limits, uint64_t *counts)
{
    uint64_t left = units, sum = 0;
    for (int r = 0; r < work->count; r++) {
        counts[r] = 0;
        bool open = weights[r] > 0 && (limits == NULL || limits[r] > 0);
        work->ranks[r] = (struct tsr__apportion_rank){.rank = r, .open = open};
        sum += open ? weights[r] : 0;
    }
    if (units == 0)
        return 0;

    /* A rank whose share reaches its limit gets the limit and is closed: it takes no more units.
     * This only increases the shares of the other ranks, so a closed rank never has to be opened
     * again. */
    for (bool changed = true; changed && limits != NULL;) {
        uint64_t divided = left, divisor = sum, remainder;
        changed = false;
        for (int r = 0; r < work->count; r++)
            if (work->ranks[r].open &&
                tsr__mul_div(divided, weights[r], divisor, &remainder) >= limits[r]) {
                counts[r] = limits[r];
                left -= limits[r];
                sum -= weights[r];
                work->ranks[r].open = false;
                changed = true;
            }
    }
    if (sum == 0)
        return left;

    uint64_t rest = left;
    for (int r = 0; r < work->count; r++)
        if (work->ranks[r].open) {
            counts[r] = tsr__mul_div(left, weights[r], sum, &work->ranks[r].remainder);
            rest -= counts[r];
        }
    qsort(work->ranks, (size_t)work->count, sizeof *work->ranks, by_remainder);
    for (uint64_t i = 0; i < rest; i++)
        counts[work->ranks[i].rank]++;
    return 0;
}

bool tsr__apportion_short(int ranks, const uint64_t *rooms, uint64_t unit, uint64_t last,
                          uint64_t *counts)
{
    int end = ranks - 1;
    while (end > 0 && counts[end] == 0)
        end--;
    for (int r = end; r < ranks; r++)
        if (rooms[r] - counts[r] * unit >= last) {
            counts[r]++;
            return true;
        }
    return false;
}

tsr_status tsr__weights_from_rates(int ranks, const double *rates, uint64_t *weights)
{
    double largest = 0;
    for (int r = 0; r < ranks && rates != NULL; r++) {
        TSR__REQUIRE(isfinite(rates[r]) && rates[r] >= 0,
                     "rank %d's rate is %g; rates must be finite and not negative", r, rates[r]);
        largest = rates[r] > largest ? rates[r] : largest;
    }
    TSR__REQUIRE(rates == NULL || largest > 0, "all %d rates are 0", ranks);
    for (int r = 0; r < ranks; r++) {
        double scaled = rates == NULL ? 1 : floor(rates[r] / largest * RATE_SCALE + 0.5);
        weights[r] = (uint64_t)scaled;
        if (weights[r] == 0 && rates[r] > 0)
            weights[r] = 1;
    }
    return TSR_OK;
}
