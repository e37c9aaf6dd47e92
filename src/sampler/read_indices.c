/* Reads indices and batches from any sampler. */
#include <inttypes.h>
#include <string.h>

#include "sampler/sampler.h"

/* Reads indices, or one batch if the sampler gives batches. Does not change
 * the sampler's position. */
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
        sampler->must_seek = true;
    return status;
}

/* Returns how many indices a read can give at most, which may be less than the capacity. The mask
 * is set to 1 only for this many indices, because a caller may pass a capacity that is larger than
 * its arrays. */
static uint64_t useful_capacity(const tsr_sampler *sampler, uint64_t capacity)
{
    if (sampler->batch_max != 0)
        return tsr__min_u64(capacity, sampler->batch_max);
    uint64_t length = tsr_sampler_length(sampler);
    if (length == TSR_LENGTH_UNKNOWN)
        return capacity;
    return tsr__min_u64(capacity, length - tsr__min_u64(length, sampler->position));
}

tsr_status tsr_sampler_next(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                            uint8_t *mask, uint64_t *count)
{
    TSR__REQUIRE(sampler != NULL && indices != NULL && count != NULL, "sampler next: %s is NULL",
                 sampler == NULL   ? "sampler"
                 : indices == NULL ? "indices"
                                   : "count");
    uint64_t needed = tsr__max_u64(sampler->batch_max, 1), got = 0;
    TSR__REQUIRE(capacity >= needed,
                 "sampler next: a batch may have %" PRIu64 " indices, there is room for %" PRIu64,
                 needed, capacity);
    TSR__TRY(tsr__sampler_recover(sampler));
    TSR__TRY(read_items(sampler, needed, indices, mask, &got));
    sampler->position += got > 0;
    *count = got;
    return TSR_OK;
}

/* Reads batches until there is no room for another batch of the largest size. */
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
    TSR__TRY(tsr__sampler_recover(sampler));
    if (sampler->batch_max != 0)
        return fill_batches(sampler, capacity, indices, mask, count);
    uint64_t got = 0, useful = useful_capacity(sampler, capacity);
    if (useful > 0)
        TSR__TRY(read_items(sampler, useful, indices, mask, &got));
    sampler->position += got;
    *count = got;
    return TSR_OK;
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
                 "sampler batches: the length of the %s sampler is unknown", sampler->name);
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
    TSR__REQUIRE(
        sampler->batch_max == 0,
        "sampler get batch: a %s sampler gives batches: use tsr_sampler_seek and tsr_sampler_next",
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

    tsr_status status = tsr__sampler_seek_up_to(sampler, start, &reached);
    if (status == TSR_OK && reached == start)
        status = tsr_sampler_fill(sampler, (uint64_t)batch_size, indices, mask, &got);
    /* Only mark that the sampler must return to its position; the next call that needs the position
     * moves it. */
    sampler->must_seek |= sampler->position != before;
    sampler->position = before;
    TSR__TRY(status);
    TSR__REQUIRE(got > 0,
                 "sampler get batch: batch %" PRIu64 " of %" PRId64
                 " is beyond the end: there are %" PRIu64 " items",
                 index, batch_size, reached);
    *count = got;
    return TSR_OK;
}
