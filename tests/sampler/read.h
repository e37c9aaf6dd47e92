/* Helpers that read samplers. */
#ifndef TESTS_SAMPLER_READ_H
#define TESTS_SAMPLER_READ_H

#include <stdint.h>
#include <stdlib.h>

#include "sampler/info.h"
#include "support/check_main.h"
#include "tessera/sampler.h"

/* Returns the rest of the epoch in memory from malloc(). Reads the indices in pieces of varying
 * sizes, so that pieces also end where the sampler has computed only a part of an order. If `mask`
 * is not NULL, *mask gets an entry for each index. */
static inline int64_t *read_masked(tsr_sampler *sampler, uint64_t *count, uint8_t **mask)
{
    uint64_t capacity = info_of(sampler).batch_max + 1021, room = 0, total = 0, got = 0;
    int64_t *all = NULL;
    uint8_t *marks = NULL;
    do {
        if (room - total < capacity) {
            room = 2 * room + capacity;
            all = realloc(all, room * sizeof *all);
            marks = realloc(marks, room);
            ck_assert(all != NULL && marks != NULL);
        }
        ck_assert_ok(tsr_sampler_fill(sampler, capacity, all + total, marks + total, &got));
        ck_assert(got <= capacity);
        total += got;
        capacity = info_of(sampler).batch_max + total % 13 + 1;
        if (total > 1000)
            capacity += 1000;
    } while (got > 0);
    *count = total;
    if (mask != NULL)
        *mask = marks;
    else
        free(marks);
    return all;
}

static inline int64_t *read_all(tsr_sampler *sampler, uint64_t *count)
{
    return read_masked(sampler, count, NULL);
}

#endif
