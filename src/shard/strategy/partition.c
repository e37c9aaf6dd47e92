/* Divides a length into one range for each rank. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "shard/strategy/largest_remainder.h"
#include "shard/strategy/strategy.h"
#include "tessera/shard.h"

/* A length to be divided among ranks, and the number of its units. A unit is `align` elements that
 * no two ranks share; the last unit may be shorter. */
typedef struct length_cut {
    uint64_t length, align, units;
    int ranks;
} length_cut;

static tsr_shard_range range_of(const length_cut *cut, uint64_t first, uint64_t end)
{
    /* The product could overflow only for the last unit. This unit may be shorter than the others,
     * and its end is `length`. */
    uint64_t start = first == cut->units ? cut->length : first * cut->align;
    uint64_t stop = end == cut->units ? cut->length : end * cut->align;
    return (tsr_shard_range){start, stop - start};
}

/* Gives each rank `each` units, one rank after the other, until no units are left. */
static void cut_even(const length_cut *cut, uint64_t each, tsr_shard_range *ranges)
{
    for (int r = 0; r < cut->ranks; r++)
        ranges[r] = range_of(cut, tsr__min_u64((uint64_t)r * each, cut->units),
                             tsr__min_u64((uint64_t)(r + 1) * each, cut->units));
}

static tsr_status even_within(const length_cut *cut, const uint64_t *limits, uint64_t each)
{
    for (int r = 0; r < cut->ranks && limits != NULL; r++) {
        uint64_t first = tsr__min_u64((uint64_t)r * each, cut->units);
        uint64_t end = tsr__min_u64((uint64_t)(r + 1) * each, cut->units);
        uint64_t count = range_of(cut, first, end).count;
        TSR__REQUIRE(count <= limits[r],
                     "partition: rank %d's %" PRIu64 " of %" PRIu64
                     " elements are more than its limit of %" PRIu64,
                     r, count, cut->length, limits[r]);
    }
    return TSR_OK;
}

static tsr_status cut_by_weight(const length_cut *cut, const double *rates, const uint64_t *limits,
                                tsr_shard_range *ranges)
{
    size_t ranks = (size_t)cut->ranks;
    uint64_t *numbers = tsr__calloc(4 * ranks, sizeof *numbers);
    if (numbers == NULL)
        return TSR_ERR_NO_MEMORY;
    uint64_t *weights = numbers, *counts = numbers + ranks;
    uint64_t *rooms = numbers + 2 * ranks, *unit_limits = numbers + 3 * ranks;
    tsr__apportion_work work = {0};
    tsr_status status = tsr__weights_from_rates(cut->ranks, rates, weights);
    if (status != TSR_OK)
        status = tsr__fail_context(status, "partition");
    if (status == TSR_OK)
        status = tsr__apportion_init(cut->ranks, &work);
    for (size_t r = 0; r < ranks && limits != NULL; r++) {
        rooms[r] = weights[r] > 0 ? limits[r] : 0;
        unit_limits[r] = limits[r] / cut->align;
    }
    uint64_t left = 0;
    if (status == TSR_OK)
        left =
            tsr__apportion(&work, cut->units, weights, limits != NULL ? unit_limits : NULL, counts);
    uint64_t rest = left > 0 ? cut->length - (cut->units - left) * cut->align : 0;
    if (left > 1 ||
        (left == 1 && !tsr__apportion_short(cut->ranks, rooms, cut->align, rest, counts)))
        status = tsr__fail(TSR_ERR_INVALID,
                           "partition: of %" PRIu64 " elements, %" PRIu64
                           " are left over when every rank has what it can take",
                           cut->length, rest);
    uint64_t first = 0;
    for (size_t r = 0; r < ranks && status == TSR_OK; r++) {
        ranges[r] = range_of(cut, first, first + counts[r]);
        first += counts[r];
    }
    tsr__apportion_finish(&work);
    tsr__free(numbers);
    return status;
}

tsr_status tsr_partition(uint64_t length, int ranks, const tsr_partition_params *params,
                         tsr_shard_range *ranges)
{
    TSR__REQUIRE(ranges != NULL, "partition: ranges is NULL");
    TSR__TAKE(tsr_partition_params, params);
    tsr_partition_params chosen = *params;
    TSR__REQUIRE(ranks >= 1 && ranks <= TSR_SHARD_MAX_RANKS,
                 "partition: %d ranks are outside 1 to %d", ranks, TSR_SHARD_MAX_RANKS);
    TSR__REQUIRE(length <= INT64_MAX, "partition: %" PRIu64 " elements are more than 2^63 - 1",
                 length);
    TSR__REQUIRE(chosen.rates == NULL || chosen.kind == TSR_PARTITION_WEIGHTED,
                 "partition: rates are for weighted partitions only");
    uint64_t align = chosen.align == 0 ? 1 : chosen.align;
    length_cut cut = {length, align, tsr__div_up_u64(length, align), ranks};
    uint64_t each = tsr__div_up_u64(cut.units, (uint64_t)ranks);
    switch (chosen.kind) {
    case TSR_PARTITION_STRICT:
        TSR__REQUIRE(length % (uint64_t)ranks == 0 && (ranks == 1 || length % align == 0) &&
                         cut.units % (uint64_t)ranks == 0,
                     "partition: %" PRIu64 " elements cannot be divided evenly among %d ranks in "
                     "units of %" PRIu64,
                     length, ranks, align);
        break;
    case TSR_PARTITION_EVEN:
        break;
    case TSR_PARTITION_UNEVEN:
        return cut_by_weight(&cut, NULL, chosen.limits, ranges);
    case TSR_PARTITION_WEIGHTED:
        return cut_by_weight(&cut, chosen.rates, chosen.limits, ranges);
    default:
        return tsr__fail(TSR_ERR_INVALID, "partition: %d is no kind of partition",
                         (int)chosen.kind);
    }
    TSR__TRY(even_within(&cut, chosen.limits, each));
    cut_even(&cut, each, ranges);
    return TSR_OK;
}

/* Checking ------------------------------------------------------------------------------------- */

typedef struct owned {
    tsr_shard_range range;
    int rank;
} owned;

static int by_start(const void *a, const void *b)
{
    const owned *x = a, *y = b;
    if (x->range.start != y->range.start)
        return x->range.start < y->range.start ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static tsr_status no_rank(uint64_t start, uint64_t end)
{
    return tsr__fail(TSR_ERR_INVALID,
                     "partition: elements %" PRIu64 " to %" PRIu64 " belong to no rank", start,
                     end - 1);
}

/* Checks that ranges cover every element exactly once. The list must be sorted by the starts of the
 * ranges. */
static tsr_status check_sorted(uint64_t length, const owned *list, size_t count)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < count; i++) {
        const tsr_shard_range *range = &list[i].range;
        if (range->start > covered)
            return no_rank(covered, range->start);
        TSR__REQUIRE(range->start == covered,
                     "partition: element %" PRIu64 " belongs to rank %d and to rank %d",
                     range->start, list[i - 1].rank, list[i].rank);
        covered += range->count;
    }
    return covered < length ? no_rank(covered, length) : TSR_OK;
}

tsr_status tsr__partition_check(uint64_t length, int ranks, const tsr_shard_range *ranges)
{
    TSR__REQUIRE(ranges != NULL, "partition: ranges is NULL");
    TSR__REQUIRE(ranks >= 1 && ranks <= TSR_SHARD_MAX_RANKS,
                 "partition: %d ranks are outside 1 to %d", ranks, TSR_SHARD_MAX_RANKS);
    uint64_t covered = 0;
    bool in_order = true;
    for (int r = 0; r < ranks; r++) {
        const tsr_shard_range *range = &ranges[r];
        TSR__REQUIRE(range->start <= length && range->count <= length - range->start,
                     "partition: rank %d's %" PRIu64 " elements from %" PRIu64
                     " are outside the %" PRIu64 " there are",
                     r, range->count, range->start, length);
        in_order = in_order && (range->count == 0 || range->start == covered);
        /* Cannot overflow as long as in_order is true: `covered` is then the end of a range, at
         * most `length`. */
        covered += range->count;
    }
    if (in_order && covered == length)
        return TSR_OK;

    owned *list = tsr__calloc((size_t)ranks, sizeof *list);
    if (list == NULL)
        return TSR_ERR_NO_MEMORY;
    size_t count = 0;
    for (int r = 0; r < ranks; r++)
        if (ranges[r].count > 0)
            list[count++] = (owned){ranges[r], r};
    qsort(list, count, sizeof *list, by_start);
    tsr_status status = check_sorted(length, list, count);
    tsr__free(list);
    return status;
}
