#include <inttypes.h>

#include "sampler/sampler.h"

typedef struct sequential {
    tsr_sampler base;
    uint64_t n;
} sequential;

static uint64_t length(const tsr_sampler *sampler)
{
    return ((const sequential *)sampler)->n;
}

static tsr_status fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count)
{
    (void)mask;
    uint64_t at = sampler->position, left = length(sampler) - at;
    *count = tsr__min_u64(capacity, left);
    for (uint64_t i = 0; i < *count; i++)
        indices[i] = (int64_t)(at + i);
    return TSR_OK;
}

static tsr_status set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    (void)sampler;
    TSR__REQUIRE(epoch >= 0, "sequential: epoch %" PRId64 " is negative", epoch);
    return TSR_OK;
}

static const tsr__sampler_class class_ = {
    .kind = TSR__SAMPLER_SEQUENTIAL,
    .name = "sequential",
    .fill = fill,
    .set_epoch = set_epoch,
    .length = length,
    .most = length,
};

tsr_status tsr_sampler_create_sequential(uint64_t n, tsr_sampler **out)
{
    TSR__REQUIRE(out != NULL, "sequential: out is NULL");
    TSR__REQUIRE(n <= INT64_MAX, "sequential: %" PRIu64 " items are more than an int64 can number",
                 n);
    sequential *self = (sequential *)tsr__sampler_new(&class_, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->n = n;
    tsr__sampler_add_param(&self->base, "n", TSR__PARAM_COUNT, n);
    *out = &self->base;
    return TSR_OK;
}
