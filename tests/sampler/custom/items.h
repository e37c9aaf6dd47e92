/* Reads the items of an epoch into memory. */
#ifndef TESTS_SAMPLER_CUSTOM_ITEMS_H
#define TESTS_SAMPLER_CUSTOM_ITEMS_H

#include <string.h>

#include "sampler/info.h"
#include "support/check_main.h"
#include "tessera/sampler.h"

enum { MAX_ITEMS = 4096 };

/* Item i has the indices from indices[start[i]] up to indices[start[i + 1]]. Items of a sampler of
 * single indices have one index. */
typedef struct items {
    uint64_t count;
    uint64_t start[MAX_ITEMS + 1];
    int64_t indices[MAX_ITEMS];
} items;

/* Reads the rest of the epoch. */
static inline void items_read(tsr_sampler *sampler, items *out)
{
    uint64_t got = 1;
    out->count = 0;
    out->start[0] = 0;
    while (got > 0) {
        uint64_t at = out->start[out->count];
        ck_assert(out->count < MAX_ITEMS);
        ck_assert_ok(tsr_sampler_next(sampler, MAX_ITEMS - at, out->indices + at, NULL, &got));
        ck_assert(info_of(sampler).batch_max == 0 || got <= info_of(sampler).batch_max);
        out->start[out->count + 1] = at + got;
        out->count += got > 0;
    }
}

static inline void items_epoch(tsr_sampler *sampler, int64_t epoch, items *out)
{
    ck_assert_ok(tsr_sampler_set_epoch(sampler, epoch));
    items_read(sampler, out);
    ck_assert_equal(out->count, tsr_sampler_length(sampler));
}

static inline uint64_t items_size(const items *all, uint64_t item)
{
    return all->start[item + 1] - all->start[item];
}

/* Returns whether `some` equals the items of `all` from `first` on. */
static inline bool items_equal_from(const items *all, uint64_t first, const items *some)
{
    if (some->count != all->count - first)
        return false;
    for (uint64_t i = 0; i <= some->count; i++)
        if (some->start[i] != all->start[first + i] - all->start[first])
            return false;
    return memcmp(some->indices, all->indices + all->start[first],
                  some->start[some->count] * sizeof *some->indices) == 0;
}

#endif
