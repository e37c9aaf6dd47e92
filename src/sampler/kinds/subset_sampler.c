/* The subset sampler gives the indices of a list in random order. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "sampler/order/epoch_permutations.h"
#include "sampler/sampler.h"

typedef struct subset {
    tsr_sampler base;
    int64_t *indices;
    tsr__epoch_permutations shuffled;
} subset;

static uint64_t subset_length(const tsr_sampler *sampler)
{
    return ((const subset *)sampler)->shuffled.n;
}

static tsr_status subset_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    return tsr__epoch_permutations_set_epoch("subset", &((subset *)sampler)->shuffled, epoch);
}

static tsr_status subset_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                              uint8_t *mask, uint64_t *count)
{
    (void)mask;
    subset *self = (subset *)sampler;
    uint64_t here = tsr__min_u64(capacity, self->shuffled.n - sampler->position);
    TSR__TRY(tsr__epoch_permutations_fill(&self->shuffled, sampler->position, here, indices));
    for (uint64_t i = 0; i < here; i++)
        indices[i] = self->indices[indices[i]];
    *count = here;
    return TSR_OK;
}

static const tsr__epoch_generator *subset_epoch_generator(const tsr_sampler *sampler)
{
    return &((const subset *)sampler)->shuffled.epoch_generator;
}

static void subset_finish(tsr_sampler *sampler)
{
    subset *self = (subset *)sampler;
    tsr__free(self->indices);
    tsr__epoch_permutations_finish(&self->shuffled);
}

static const tsr__sampler_class subset_class = {
    .kind = TSR__SAMPLER_SUBSET,
    .name = "subset",
    .fill = subset_fill,
    .set_epoch = subset_set_epoch,
    .length = subset_length,
    .most = subset_length,
    .epoch_generator = subset_epoch_generator,
    .finish = subset_finish,
};

static tsr_status prepare_subset(const tsr_sampler_subset_params *params, subset *self)
{
    uint64_t count = params->count;
    tsr_torch_options torch;
    TSR__TRY(TSR__TAKE_PART(tsr_torch_options, params->torch, &torch));
    /* PyTorch's SubsetRandomSampler draws directly from the global generator, which gives the same
     * numbers as a separate generator. */
    torch.global_generator = false;
    TSR__TRY(tsr__epoch_permutations_init("subset", params->order, count, 1, params->seed, &torch,
                                          &self->shuffled));
    if (count > SIZE_MAX)
        return tsr__fail(TSR_ERR_NO_MEMORY, "subset: no memory for %" PRIu64 " indices", count);
    self->indices = tsr__calloc((size_t)count, sizeof *self->indices);
    if (self->indices == NULL)
        return TSR_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < count; i++)
        self->indices[i] = params->indices[i];
    tsr__sampler_add_param(&self->base, "count", TSR__PARAM_COUNT, count);
    tsr__sampler_add_param(&self->base, "order", TSR__PARAM_ORDER, (uint64_t)params->order);
    tsr__sampler_add_param(&self->base, "seed", TSR__PARAM_SIGNED,
                           params->order != TSR_ORDER_NONE ? (uint64_t)params->seed : 0);
    tsr__sampler_add_torch(&self->base, params->order == TSR_ORDER_TORCH,
                           &self->shuffled.epoch_generator.torch);
    tsr__sampler_add_param(&self->base, "indices", TSR__PARAM_HASH,
                           tsr__fingerprint_array(self->indices, count));
    return TSR_OK;
}

tsr_status tsr_sampler_create_subset(const tsr_sampler_subset_params *params, tsr_sampler **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "subset: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_sampler_subset_params, params);
    TSR__REQUIRE(params->indices != NULL || params->count == 0,
                 "subset: count is %" PRIu64 ", but indices is NULL", params->count);
    TSR__REQUIRE(params->count <= TSR__MAX_ITEMS, "subset: %" PRIu64 " items are more than 2^62",
                 params->count);
    TSR__TRY(tsr__order_check("subset", params->order));
    subset *self = (subset *)tsr__sampler_new(&subset_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    return tsr__sampler_created(prepare_subset(params, self), &self->base, out);
}
