#include <inttypes.h>

#include "sampler/sampler.h"

typedef struct sequential {
    tsr_sampler base;
    uint64_t n;
} sequential;

static uint64_t sequential_length(const tsr_sampler *sampler)
{
    return ((const sequential *)sampler)->n;
}

static tsr_status sequential_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                                  uint8_t *mask, uint64_t *count)
{
    (void)mask;
    uint64_t position = sampler->position, left = sequential_length(sampler) - position;
    *count = tsr__min_u64(capacity, left);
    for (uint64_t i = 0; i < *count; i++)
        indices[i] = (int64_t)(position + i);
    return TSR_OK;
}

static tsr_status sequential_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    (void)sampler;
    TSR__REQUIRE(epoch >= 0, "sequential: epoch %" PRId64 " is negative", epoch);
    return TSR_OK;
}

static const tsr__sampler_class sequential_class = {
    .kind = TSR__SAMPLER_SEQUENTIAL,
    .name = "sequential",
    .fill = sequential_fill,
    .set_epoch = sequential_set_epoch,
    .length = sequential_length,
    .most = sequential_length,
};

tsr_status tsr_sampler_create_sequential(uint64_t n, tsr_sampler **out)
{
    TSR__REQUIRE(out != NULL, "sequential: out is NULL");
    TSR__REQUIRE(n <= INT64_MAX, "sequential: %" PRIu64 " items are more than an int64 can number",
                 n);
    sequential *self = (sequential *)tsr__sampler_new(&sequential_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->n = n;
    tsr__sampler_add_param(&self->base, "n", TSR__PARAM_COUNT, n);
    *out = &self->base;
    return TSR_OK;
}
