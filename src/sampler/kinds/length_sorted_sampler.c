/* The length-sorted sampler: batches of items of similar length. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "sampler/order/order.h"
#include "sampler/order/sort_items.h"

typedef struct length_sorted {
    tsr_sampler base;
    uint64_t count;
    uint32_t *items; /* all items, sorted by length */
    tsr_order order;
    uint64_t seed;
    tsr_feistel batches; /* the order of this epoch's batches, used if `order` is feistel */
} length_sorted;

static uint64_t batch_count(const length_sorted *self)
{
    return tsr__div_up_u64(self->count, self->base.batch_max);
}

static uint64_t length_sorted_length(const tsr_sampler *sampler)
{
    return batch_count((const length_sorted *)sampler);
}

static tsr_status length_sorted_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                                     uint8_t *mask, uint64_t *count)
{
    (void)capacity;
    (void)mask;
    const length_sorted *self = (const length_sorted *)sampler;
    uint64_t batch = sampler->position, size = sampler->batch_max;
    *count = 0;
    if (batch >= batch_count(self))
        return TSR_OK;
    if (self->order == TSR_ORDER_FEISTEL)
        batch = tsr__feistel_at(&self->batches, batch);
    uint64_t first = batch * size;
    *count = tsr__min_u64(size, self->count - first);
    for (uint64_t i = 0; i < *count; i++)
        indices[i] = self->items[first + i];
    return TSR_OK;
}

static tsr_status length_sorted_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    length_sorted *self = (length_sorted *)sampler;
    TSR__REQUIRE(epoch >= 0, "length-sorted: epoch %" PRId64 " is negative", epoch);
    return tsr_feistel_init(batch_count(self), self->seed, (uint64_t)epoch, 0, &self->batches);
}

static void length_sorted_finish(tsr_sampler *sampler)
{
    tsr__free(((length_sorted *)sampler)->items);
}

static const tsr__sampler_class length_sorted_class = {
    .kind = TSR__SAMPLER_LENGTH_SORTED,
    .name = "length-sorted",
    .fill = length_sorted_fill,
    .set_epoch = length_sorted_set_epoch,
    .length = length_sorted_length,
    .finish = length_sorted_finish,
};

static void length_sorted_add_params(tsr_sampler *sampler,
                                     const tsr_sampler_length_sorted_params *params)
{
    tsr__sampler_add_param(sampler, "count", TSR__PARAM_COUNT, params->count);
    tsr__sampler_add_param(sampler, "batch_size", TSR__PARAM_COUNT, (uint64_t)params->batch_size);
    tsr__sampler_add_param(sampler, "order", TSR__PARAM_ORDER, (uint64_t)params->order);
    tsr__sampler_add_param(sampler, "seed", TSR__PARAM_SIGNED,
                           params->order != TSR_ORDER_NONE ? (uint64_t)params->seed : 0);
    tsr__sampler_add_param(sampler, "lengths", TSR__PARAM_HASH,
                           tsr__fingerprint_array(params->lengths, params->count));
}

tsr_status tsr_sampler_create_length_sorted(const tsr_sampler_length_sorted_params *params,
                                            tsr_sampler **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "length-sorted: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_sampler_length_sorted_params, params);
    TSR__TRY(tsr__check_items("length-sorted", params->lengths, "lengths", params->count));
    TSR__TRY(tsr__check_item_batches("length-sorted", params->batch_size, params->order));
    for (uint64_t i = 0; i < params->count; i++)
        TSR__REQUIRE(params->lengths[i] >= 0,
                     "length-sorted: item %" PRIu64 " has the negative length %" PRId64, i,
                     params->lengths[i]);

    length_sorted *self = (length_sorted *)tsr__sampler_new(&length_sorted_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->base.batch_max = tsr__batch_max(params->batch_size, params->count);
    length_sorted_add_params(&self->base, params);
    self->count = params->count;
    self->order = params->order;
    self->seed = (uint64_t)params->seed;
    tsr_status status = tsr__sort_items(params->lengths, params->count, &self->items);
    if (status == TSR_OK)
        status = length_sorted_set_epoch(&self->base, 0);
    return tsr__sampler_created(status, &self->base, out);
}
