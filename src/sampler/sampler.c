/* The protocol: what is the same for all samplers. */
#include "sampler/sampler.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

tsr_sampler *tsr__sampler_new(const tsr__sampler_class *class_, size_t size_bytes)
{
    tsr_sampler *sampler = tsr__calloc(1, size_bytes);
    if (sampler != NULL) {
        sampler->class_ = class_;
        sampler->name = class_->name;
        sampler->fingerprint = tsr__fingerprint(UINT64_C(0x5453525353414d50), class_->kind);
    }
    return sampler;
}

void tsr_sampler_destroy(tsr_sampler **sampler)
{
    if (sampler == NULL || *sampler == NULL)
        return;
    if ((*sampler)->class_->finish != NULL)
        (*sampler)->class_->finish(*sampler);
    tsr__free(*sampler);
    *sampler = NULL;
}

const char *tsr_sampler_name(const tsr_sampler *sampler)
{
    return sampler != NULL ? sampler->name : NULL;
}

uint64_t tsr_sampler_length(const tsr_sampler *sampler)
{
    if (sampler == NULL)
        return 0;
    return sampler->back.size_bytes != 0 ? sampler->back.length : sampler->class_->length(sampler);
}

uint64_t tsr__sampler_most(const tsr_sampler *sampler)
{
    return sampler->class_->most != NULL ? sampler->class_->most(sampler) : UINT64_MAX;
}

uint64_t tsr_sampler_batch_max(const tsr_sampler *sampler)
{
    return sampler != NULL ? sampler->batch_max : 0;
}

uint64_t tsr_sampler_position(const tsr_sampler *sampler)
{
    return sampler != NULL ? sampler->position : 0;
}

int64_t tsr_sampler_epoch(const tsr_sampler *sampler)
{
    return sampler != NULL ? sampler->epoch : 0;
}

/* To `position`, or the end. The sampler's position is changed on success only. */
static tsr_status move(tsr_sampler *sampler, uint64_t position, uint64_t *reached)
{
    uint64_t at;
    TSR__TRY(tsr__sampler_go_back(sampler));
    if (sampler->class_->seek != NULL) {
        tsr_status status = sampler->class_->seek(sampler, position, &at);
        if (status != TSR_OK) {
            sampler->lost = true;
            return status;
        }
    } else {
        at = tsr__min_u64(position, tsr_sampler_length(sampler));
    }
    sampler->position = at;
    sampler->lost = false;
    *reached = at;
    return TSR_OK;
}

tsr_status tsr__sampler_seek_most(tsr_sampler *sampler, uint64_t position, uint64_t *reached)
{
    if (position == sampler->position && !sampler->lost) {
        *reached = position;
        return TSR_OK;
    }
    return move(sampler, position, reached);
}

/* Back to where the sampler was before a call that failed. */
static tsr_status find_back(tsr_sampler *sampler)
{
    uint64_t position = sampler->position;
    return sampler->lost ? move(sampler, position, &position) : TSR_OK;
}

/* Indices, or one batch, without moving the position. */
static tsr_status read_items(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                             uint8_t *mask, uint64_t *count)
{
    uint64_t got = 0;
    if (mask != NULL)
        memset(mask, 1, capacity);
    tsr_status status = sampler->class_->fill(sampler, capacity, indices, mask, &got);
    if (status == TSR_OK)
        *count = got;
    else
        sampler->lost = true;
    return status;
}

/* Room that cannot be used need not be masked, and may be more than there is memory. */
static uint64_t useful_capacity(const tsr_sampler *sampler, uint64_t capacity)
{
    if (sampler->batch_max != 0)
        return tsr__min_u64(capacity, sampler->batch_max);
    uint64_t length = tsr_sampler_length(sampler);
    if (length == TSR_LENGTH_UNKNOWN)
        return capacity;
    return tsr__min_u64(capacity, length - tsr__min_u64(length, sampler->position));
}

tsr_status tsr_sampler_next(tsr_sampler *sampler, int64_t *index, bool *got)
{
    TSR__REQUIRE(sampler != NULL && index != NULL && got != NULL, "sampler next: %s is NULL",
                 sampler == NULL ? "sampler"
                 : index == NULL ? "index"
                                 : "got");
    TSR__REQUIRE(sampler->batch_max == 0,
                 "sampler next: a %s sampler gives batches, not single indices", sampler->name);
    uint64_t count = 0;
    int64_t value;
    TSR__TRY(find_back(sampler));
    TSR__TRY(read_items(sampler, 1, &value, NULL, &count));
    sampler->position += count;
    *got = count > 0;
    if (count > 0)
        *index = value;
    return TSR_OK;
}

tsr_status tsr_sampler_next_batch(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                                  uint8_t *mask, uint64_t *count)
{
    TSR__REQUIRE(sampler != NULL && indices != NULL && count != NULL,
                 "sampler next batch: %s is NULL",
                 sampler == NULL   ? "sampler"
                 : indices == NULL ? "indices"
                                   : "count");
    uint64_t needed = tsr__max_u64(sampler->batch_max, 1), got = 0;
    TSR__REQUIRE(capacity >= needed,
                 "sampler next batch: a batch may have %" PRIu64
                 " indices, there is room for %" PRIu64,
                 needed, capacity);
    TSR__TRY(find_back(sampler));
    TSR__TRY(read_items(sampler, needed, indices, mask, &got));
    sampler->position += got > 0;
    *count = got;
    return TSR_OK;
}

/* Whole batches until there is no room for the largest. */
static tsr_status fill_batches(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                               uint8_t *mask, uint64_t *count)
{
    uint64_t most = sampler->batch_max, start = sampler->position, total = 0, got;
    TSR__REQUIRE(capacity >= most || capacity == 0,
                 "sampler fill: a batch may have %" PRIu64 " indices, there is room for %" PRIu64,
                 most, capacity);
    while (capacity - total >= most) {
        tsr_status status =
            read_items(sampler, most, indices + total, mask != NULL ? mask + total : NULL, &got);
        if (status != TSR_OK) {
            sampler->position = start;
            return status;
        }
        if (got == 0)
            break;
        sampler->position++;
        total += got;
    }
    *count = total;
    return TSR_OK;
}

tsr_status tsr_sampler_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                            uint8_t *mask, uint64_t *count)
{
    TSR__REQUIRE(sampler != NULL && count != NULL, "sampler fill: %s is NULL",
                 sampler != NULL ? "count" : "sampler");
    TSR__REQUIRE(indices != NULL || capacity == 0, "sampler fill: indices is NULL");
    TSR__TRY(find_back(sampler));
    if (sampler->batch_max != 0)
        return fill_batches(sampler, capacity, indices, mask, count);
    uint64_t got = 0, useful = useful_capacity(sampler, capacity);
    if (useful > 0)
        TSR__TRY(read_items(sampler, useful, indices, mask, &got));
    sampler->position += got;
    *count = got;
    return TSR_OK;
}

tsr_status tsr_sampler_seek(tsr_sampler *sampler, uint64_t position)
{
    TSR__REQUIRE(sampler != NULL, "sampler seek: sampler is NULL");
    uint64_t length = tsr_sampler_length(sampler), before = sampler->position, reached;
    TSR__REQUIRE(length == TSR_LENGTH_UNKNOWN || position <= length,
                 "sampler seek: position %" PRIu64 " is beyond the end: there are %" PRIu64
                 " items",
                 position, length);
    TSR__TRY(move(sampler, position, &reached));
    if (reached == position)
        return TSR_OK;
    /* Only the attempt has shown where the end is. */
    sampler->position = before;
    sampler->lost = true;
    return tsr__fail(TSR_ERR_INVALID,
                     "sampler seek: position %" PRIu64 " is beyond the end: there are %" PRIu64
                     " items",
                     position, reached);
}

tsr_status tsr_sampler_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    TSR__REQUIRE(sampler != NULL, "sampler set epoch: sampler is NULL");
    tsr_status status = sampler->class_->set_epoch(sampler, epoch);
    if (status != TSR_OK) {
        /* One of the caller's, maybe further in, may be in the new epoch by half. */
        sampler->lost = true;
        return status;
    }
    sampler->epoch = epoch;
    sampler->position = 0;
    sampler->lost = false;
    sampler->back.size_bytes = 0;
    return TSR_OK;
}

tsr_status tsr_sampler_reset(tsr_sampler *sampler)
{
    TSR__REQUIRE(sampler != NULL, "sampler reset: sampler is NULL");
    return tsr_sampler_set_epoch(sampler, sampler->epoch);
}

tsr_status tsr_sampler_batch_count(const tsr_sampler *sampler, int64_t batch_size, bool drop_last,
                                   uint64_t *count)
{
    TSR__REQUIRE(sampler != NULL && count != NULL, "sampler batches: %s is NULL",
                 sampler != NULL ? "count" : "sampler");
    uint64_t length = tsr_sampler_length(sampler);
    TSR__REQUIRE(batch_size > 0, "sampler batches: batch size %" PRId64 " is not positive",
                 batch_size);
    TSR__REQUIRE(length != TSR_LENGTH_UNKNOWN,
                 "sampler batches: nobody knows how many items a %s sampler has", sampler->name);
    *count =
        drop_last ? length / (uint64_t)batch_size : tsr__div_up_u64(length, (uint64_t)batch_size);
    return TSR_OK;
}

tsr_status tsr_sampler_get_batch(tsr_sampler *sampler, uint64_t index, int64_t batch_size,
                                 uint64_t capacity, int64_t *indices, uint8_t *mask,
                                 uint64_t *count)
{
    TSR__REQUIRE(sampler != NULL && indices != NULL && count != NULL,
                 "sampler get batch: %s is NULL",
                 sampler == NULL   ? "sampler"
                 : indices == NULL ? "indices"
                                   : "count");
    TSR__REQUIRE(sampler->batch_max == 0,
                 "sampler get batch: a %s sampler gives batches of its own: seek and next batch",
                 sampler->name);
    TSR__REQUIRE(batch_size > 0, "sampler get batch: batch size %" PRId64 " is not positive",
                 batch_size);
    TSR__REQUIRE((uint64_t)batch_size <= capacity,
                 "sampler get batch: a batch may have %" PRId64
                 " indices, there is room for %" PRIu64,
                 batch_size, capacity);
    uint64_t start, before = sampler->position, reached, got = 0;
    uint64_t length = tsr_sampler_length(sampler);
    bool inside = tsr__mul_u64(index, (uint64_t)batch_size, &start) && start < length;
    TSR__REQUIRE(inside,
                 "sampler get batch: batch %" PRIu64 " of %" PRId64
                 " is beyond the end: there are %" PRIu64 " items",
                 index, batch_size, length);

    tsr_status status = tsr__sampler_seek_most(sampler, start, &reached);
    if (status == TSR_OK && reached == start)
        status = tsr_sampler_fill(sampler, (uint64_t)batch_size, indices, mask, &got);
    /* The way back is found when it is needed. */
    sampler->lost |= sampler->position != before;
    sampler->position = before;
    TSR__TRY(status);
    TSR__REQUIRE(got > 0,
                 "sampler get batch: batch %" PRIu64 " of %" PRId64
                 " is beyond the end: there are %" PRIu64 " items",
                 index, batch_size, reached);
    *count = got;
    return TSR_OK;
}

uint64_t tsr__fingerprint_torch(uint64_t hash, const tsr_torch_options *torch)
{
    hash = tsr__fingerprint(hash, (uint64_t)torch->version);
    hash = tsr__fingerprint(hash, torch->global_generator);
    hash = tsr__fingerprint(hash, torch->data_loader);
    return tsr__fingerprint(hash, (uint64_t)torch->seed_high);
}

tsr_status tsr__sampler_check_samples(const char *what, uint64_t n, int64_t num_samples,
                                      uint64_t *samples)
{
    TSR__REQUIRE(n > 0, "%s: there is nothing to draw from", what);
    TSR__REQUIRE(n <= TSR_MAX__ITEMS, "%s: %" PRIu64 " items are more than 2^62", what, n);
    TSR__REQUIRE(num_samples >= 0, "%s: num_samples %" PRId64 " is negative", what, num_samples);
    TSR__REQUIRE((uint64_t)num_samples <= TSR_MAX__ITEMS,
                 "%s: num_samples %" PRId64 " is more than 2^62", what, num_samples);
    *samples = num_samples == 0 ? n : (uint64_t)num_samples;
    return TSR_OK;
}
