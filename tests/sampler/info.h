/* Shorthands for functions of sampler.h. */
#ifndef TESTS_SAMPLER_INFO_H
#define TESTS_SAMPLER_INFO_H

#include "support/check_main.h"
#include "tessera/sampler.h"

static inline tsr_sampler_info info_of(const tsr_sampler *sampler)
{
    tsr_sampler_info info = TSR_INIT(tsr_sampler_info);
    ck_assert_ok(tsr_sampler_get_info(sampler, &info));
    return info;
}

/* Reads one index; *got becomes false at the end. */
static inline tsr_status next_index(tsr_sampler *sampler, int64_t *index, bool *got)
{
    uint64_t count = 0;
    tsr_status status = tsr_sampler_next(sampler, 1, index, NULL, &count);
    if (status == TSR_OK)
        *got = count > 0;
    return status;
}

/* Saves the state at the present position. */
static inline tsr_status save_here(const tsr_sampler *sampler, size_t capacity_bytes, void *data,
                                   size_t *size_bytes)
{
    return tsr_sampler_save(sampler, tsr_sampler_position(sampler), capacity_bytes, data,
                            size_bytes);
}

#endif
