/* The alias method: Walker, "An efficient method for generating discrete random variables with
 * general distributions" (ACM TOMS 3, 1977). The table is computed in place in one pass over the
 * columns, without lists of small and large columns. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/philox.h"
#include "sampler/weights/weighted_draws.h"

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) (void)(address)
#endif

/* Returns the factor that converts weights to shares, whose mean is 1. The sum is computed with
 * Neumaier's compensated summation, so that it is also accurate for hundreds of millions of
 * weights. */
static double scale_of(const tsr__weights *weights, double largest)
{
    double sum = 0, lost = 0;
    for (uint64_t i = 0; i < weights->count; i++) {
        double term = tsr__weight(weights, i) / largest, next = sum + term;
        lost += sum >= term ? (sum - next) + term : (term - next) + sum;
        sum = next;
    }
    return (double)weights->count / (sum + lost);
}

/* Fills columns whose own share is less than 1 from columns whose share is larger than 1.
 * `heaviest` is the index of a largest weight. If rounding errors leave some of a column of an
 * index of weight 0 unfilled, index `heaviest` gets the rest of this column. */
static void even_out(const tsr__weights *weights, uint32_t heaviest, tsr__alias *alias)
{
    union tsr__alias_share *shares = alias->own;
    uint64_t count = alias->count, large = 0;
    while (large < count && shares[large].share < 1)
        large++;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t small = i;
        /* A large column that gives some of its share may become smaller than 1. If the loop has
         * already passed such a column, fill it now. */
        while (small <= i && shares[small].share < 1 && large < count) {
            alias->other[small] = (uint32_t)large;
            shares[large].share -= 1 - shares[small].share;
            if (shares[large].share >= 1)
                break;
            small = large;
            do
                large++;
            while (large < count && shares[large].share < 1);
        }
        if (large < count || small > i)
            continue;
        /* No large column remains, so this column would be full without rounding errors. */
        if (shares[small].share < 1 && alias->other[small] == (uint32_t)small) {
            if (tsr__weight(weights, small) > 0)
                shares[small].share = 1;
            else
                alias->other[small] = heaviest;
        }
    }
}

tsr_status tsr__alias_init(const tsr__weights *weights, double largest, tsr__alias *out)
{
    tsr__alias alias = {.count = weights->count};
    uint32_t heaviest = 0;
    alias.own = tsr__calloc((size_t)alias.count, sizeof *alias.own);
    if (alias.own != NULL)
        alias.other = tsr__calloc((size_t)alias.count, sizeof *alias.other);
    if (alias.other == NULL) {
        tsr__alias_finish(&alias);
        return TSR_ERR_NO_MEMORY;
    }
    double scale = scale_of(weights, largest);
    for (uint64_t i = 0; i < alias.count; i++) {
        double weight = tsr__weight(weights, i);
        alias.own[i].share = weight / largest * scale;
        alias.other[i] = (uint32_t)i;
        if (weight == largest)
            heaviest = (uint32_t)i;
    }
    even_out(weights, heaviest, &alias);
    for (uint64_t i = 0; i < alias.count; i++) {
        double share = alias.own[i].share;
        /* A full column contains only its own index, so draws must give this index for any
         * height. */
        if (share >= 1)
            alias.other[i] = (uint32_t)i;
        alias.own[i].below = share >= 1 ? UINT64_MAX : (uint64_t)(share * 18446744073709551616.0);
    }
    *out = alias;
    return TSR_OK;
}

void tsr__alias_finish(tsr__alias *alias)
{
    tsr__free(alias->own);
    tsr__free(alias->other);
    *alias = (tsr__alias){0};
}

/* The number of draws that are prepared together, so that their table entries can be prefetched. */
#define AHEAD 32

void tsr__alias_fill(const tsr__alias *alias, const tsr__order_keys *keys, uint64_t first,
                     uint64_t count, int64_t *out)
{
    const uint32_t key[2] = {(uint32_t)keys->seed, (uint32_t)(keys->seed >> 32)};
    uint64_t column[AHEAD], height[AHEAD];
    for (uint64_t done = 0; done < count; done += AHEAD) {
        uint64_t here = count - done < AHEAD ? count - done : AHEAD;
        for (uint64_t i = 0; i < here; i++) {
            uint64_t index = first + done + i;
            uint32_t words[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)keys->stream,
                                 (uint32_t)(keys->stream >> 32)};
            tsr__philox4x32(words, key, words);
            /* The column is the 64-bit number (high word, low word) · count / 2^64. Its
             * distribution is uniform, except for differences of probability of at most 2^-64. */
            column[i] = (words[0] * alias->count + (words[1] * alias->count >> 32)) >> 32;
            height[i] = (uint64_t)words[2] << 32 | words[3];
            FETCH(alias->own + column[i]);
            FETCH(alias->other + column[i]);
        }
        for (uint64_t i = 0; i < here; i++) {
            uint64_t column_index = column[i];
            bool is_own = height[i] < alias->own[column_index].below;
            out[done + i] = is_own ? (int64_t)column_index : (int64_t)alias->other[column_index];
        }
    }
}
