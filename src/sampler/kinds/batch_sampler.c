/* Makes batches of `size` indices from the indices of another sampler, the base. Batch b starts
 * with index number b · size of the base, so the base's position follows from this sampler's
 * position. */
#include <inttypes.h>

#include "base/struct_size.h"
#include "sampler/order/epoch_generators.h"
#include "sampler/sampler.h"

typedef struct batch {
    tsr_sampler base;
    uint64_t size;
    bool drop_last;
} batch;

/* Returns the number of batches into which `indices` indices are divided. */
static uint64_t batches(const batch *self, uint64_t indices)
{
    return self->drop_last ? indices / self->size : tsr__div_up_u64(indices, self->size);
}

static uint64_t batch_length(const tsr_sampler *sampler)
{
    const batch *self = (const batch *)sampler;
    uint64_t indices = tsr_sampler_length(self->base.inner);
    return indices == TSR_LENGTH_UNKNOWN ? indices : batches(self, indices);
}

static tsr_status batch_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                             uint8_t *mask, uint64_t *count)
{
    batch *self = (batch *)sampler;
    uint64_t got = 0;
    (void)capacity;
    TSR__TRY(tsr_sampler_fill(self->base.inner, sampler->batch_max, indices, mask, &got));
    *count = self->drop_last && got < self->size ? 0 : got;
    return TSR_OK;
}

static tsr_status batch_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    return tsr_sampler_set_epoch(sampler->inner, epoch);
}

static tsr_status batch_seek(tsr_sampler *sampler, uint64_t position, uint64_t *reached)
{
    batch *self = (batch *)sampler;
    uint64_t start, index;
    if (!tsr__mul_u64(position, self->size, &start))
        start = UINT64_MAX;
    /* earlier failures may have left the base in another epoch */
    if (self->base.inner->epoch != sampler->epoch)
        TSR__TRY(tsr_sampler_set_epoch(self->base.inner, sampler->epoch));
    TSR__TRY(tsr__sampler_seek_up_to(self->base.inner, start, &index));
    *reached = batches(self, index);
    return TSR_OK;
}

static tsr_status batch_save(const tsr_sampler *sampler, tsr__state_writer *writer)
{
    const tsr_sampler *inner = sampler->inner;
    return inner->class_->save != NULL ? inner->class_->save(inner, writer) : TSR_OK;
}

static tsr_status batch_load(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                             uint64_t *resumed)
{
    batch *self = (batch *)sampler;
    uint64_t start, index;
    *resumed = position;
    if (self->base.inner->class_->load == NULL)
        return TSR_OK;
    if (!tsr__mul_u64(position, self->size, &start))
        start = UINT64_MAX;
    reader->rounded = true;
    TSR__TRY(self->base.inner->class_->load(self->base.inner, start, reader, &index));
    *resumed = batches(self, index);
    return TSR_OK;
}

static const tsr__epoch_generator *batch_epoch_generator(const tsr_sampler *sampler)
{
    const tsr_sampler *inner = sampler->inner;
    return inner->class_->epoch_generator != NULL ? inner->class_->epoch_generator(inner) : NULL;
}

static const tsr__sampler_class batch_class = {
    .kind = TSR__SAMPLER_BATCH,
    .name = "batch",
    .fill = batch_fill,
    .set_epoch = batch_set_epoch,
    .length = batch_length,
    .seek = batch_seek,
    .save = batch_save,
    .load = batch_load,
    .epoch_generator = batch_epoch_generator,
};

tsr_status tsr_sampler_create_batch(const tsr_sampler_batch_params *params, tsr_sampler **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "batch: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_sampler_batch_params, params);
    TSR__REQUIRE(params->base != NULL, "batch: base is NULL");
    const tsr_sampler *inner = params->base;
    TSR__REQUIRE(inner->batch_max == 0, "batch: a %s sampler gives batches already", inner->name);
    TSR__REQUIRE(params->batch_size > 0, "batch: batch size %" PRId64 " is not positive",
                 params->batch_size);
    batch *self = (batch *)tsr__sampler_new(&batch_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->size = (uint64_t)params->batch_size;
    self->drop_last = params->drop_last;
    tsr__sampler_add_param(&self->base, "batch_size", TSR__PARAM_COUNT, self->size);
    tsr__sampler_add_param(&self->base, "drop_last", TSR__PARAM_FLAG, self->drop_last);
    tsr__sampler_set_inner(&self->base, params->base);
    self->base.batch_max = tsr__batch_max(params->batch_size, tsr__sampler_max_length(inner));
    self->base.epoch = inner->epoch;
    /* the base may be at another position, because the caller may have read it */
    self->base.must_seek = true;
    *out = &self->base;
    return TSR_OK;
}
