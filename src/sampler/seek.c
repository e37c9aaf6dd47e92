/* Moves a sampler to a position, to an epoch or to a saved state, and recovers after failures. */
#include <inttypes.h>

#include "sampler/sampler.h"

static tsr_status apply_state(tsr_sampler *sampler, tsr__state_reader *reader);

/* Moves the sampler back to this epoch, position and state. If this fails, the next call that needs
 * the position tries again. */
static tsr_status return_to(tsr_sampler *sampler, const tsr__rollback *back, int64_t epoch,
                            uint64_t position)
{
    tsr__state_reader reader = tsr__state_body(back->state, back->size_bytes);
    sampler->rollback.size_bytes = 0;
    tsr_status status = apply_state(sampler, &reader);
    if (status != TSR_OK) {
        sampler->epoch = epoch;
        sampler->position = position;
        sampler->must_seek = true;
        sampler->rollback = *back;
    }
    return status;
}

/* If an earlier tsr_sampler_resume failed and could not restore the state before it, tries again to
 * restore this state. */
static tsr_status roll_back(tsr_sampler *sampler)
{
    const tsr__rollback back = sampler->rollback;
    if (back.size_bytes == 0)
        return TSR_OK;
    return return_to(sampler, &back, sampler->epoch, sampler->position);
}

/* Moves to `position`, or to the end if that comes first. On failure the sampler's position does
 * not change. */
static tsr_status move_to(tsr_sampler *sampler, uint64_t position, uint64_t *reached)
{
    uint64_t inner_position;
    TSR__TRY(roll_back(sampler));
    if (sampler->class_->seek != NULL) {
        tsr_status status = sampler->class_->seek(sampler, position, &inner_position);
        if (status != TSR_OK) {
            sampler->must_seek = true;
            return status;
        }
    } else {
        inner_position = tsr__min_u64(position, tsr_sampler_length(sampler));
    }
    sampler->position = inner_position;
    sampler->must_seek = false;
    *reached = inner_position;
    return TSR_OK;
}

tsr_status tsr__sampler_seek_up_to(tsr_sampler *sampler, uint64_t position, uint64_t *reached)
{
    if (position == sampler->position && !sampler->must_seek) {
        *reached = position;
        return TSR_OK;
    }
    return move_to(sampler, position, reached);
}

tsr_status tsr__sampler_recover(tsr_sampler *sampler)
{
    uint64_t position = sampler->position;
    return sampler->must_seek ? move_to(sampler, position, &position) : TSR_OK;
}

tsr_status tsr_sampler_seek(tsr_sampler *sampler, uint64_t position)
{
    TSR__REQUIRE(sampler != NULL, "sampler seek: sampler is NULL");
    uint64_t length = tsr_sampler_length(sampler), before = sampler->position, reached;
    TSR__REQUIRE(length == TSR_LENGTH_UNKNOWN || position <= length,
                 "sampler seek: position %" PRIu64 " is beyond the end: there are %" PRIu64
                 " items",
                 position, length);
    TSR__TRY(move_to(sampler, position, &reached));
    if (reached == position)
        return TSR_OK;
    /* The sampler's end was not known before this attempt, so the position
     * has to be restored now. */
    sampler->position = before;
    sampler->must_seek = true;
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
        /* A sampler that the caller has implemented, or that wraps one, may have changed
         * incompletely. */
        sampler->must_seek = true;
        return status;
    }
    sampler->epoch = epoch;
    sampler->position = 0;
    sampler->must_seek = false;
    sampler->rollback.size_bytes = 0;
    return TSR_OK;
}

/* Applies a state. The reader is at the state's epoch. After a failure, the sampler may have
 * been changed incompletely. */
static tsr_status apply_state(tsr_sampler *sampler, tsr__state_reader *reader)
{
    int64_t epoch;
    uint64_t position, resumed, length;
    TSR__TRY(tsr__state_get_signed(reader, &epoch));
    TSR__TRY(tsr__state_get(reader, &position));
    resumed = position;
    TSR__TRY(tsr_sampler_set_epoch(sampler, epoch));
    if (sampler->class_->load != NULL)
        TSR__TRY(sampler->class_->load(sampler, position, reader, &resumed));
    if (reader->at != reader->size)
        return TSR__STATE_FAIL(reader, "%zu bytes too many", reader->size - reader->at);
    length = tsr_sampler_length(sampler);
    TSR__REQUIRE(resumed <= length,
                 "sampler resume: position %" PRIu64 " is beyond the end: there are %" PRIu64
                 " items",
                 resumed, length);
    return tsr_sampler_seek(sampler, resumed);
}

/* Saves the sampler's state, so that it can be restored later. After an earlier failure, the
 * caller's own sampler may not be at the saved position. If the caller's sampler has a state of its
 * own, it must first be moved to this position, because its state can only be saved there. */
static tsr_status save_before(tsr_sampler *sampler, tsr__rollback *out)
{
    const tsr__error last = tsr__error_take();
    out->length = tsr_sampler_length(sampler);
    if (tsr_sampler_save(sampler, sampler->position, sizeof out->state, out->state,
                         &out->size_bytes) != TSR_OK) {
        uint64_t reached;
        TSR__TRY(tsr__sampler_seek_up_to(sampler, sampler->position, &reached));
        TSR__TRY(tsr_sampler_save(sampler, sampler->position, sizeof out->state, out->state,
                                  &out->size_bytes));
    }
    tsr__error_put_back(&last);
    return TSR_OK;
}

tsr_status tsr_sampler_resume(tsr_sampler *sampler, const void *data, size_t size_bytes)
{
    TSR__REQUIRE(sampler != NULL && data != NULL, "sampler resume: %s is NULL",
                 sampler != NULL ? "data" : "sampler");
    tsr__rollback before;
    tsr__state_reader reader;
    TSR__TRY(tsr__state_open(sampler, data, size_bytes, &reader));
    TSR__TRY(save_before(sampler, &before));
    const int64_t epoch = sampler->epoch;
    const uint64_t position = sampler->position;
    tsr_status status = apply_state(sampler, &reader);
    if (status == TSR_OK)
        return TSR_OK;

    /* Report the first error, not an error of restoring the state. */
    const tsr__error first = tsr__error_take();
    (void)!return_to(sampler, &before, epoch, position);
    tsr__error_put_back(&first);
    return status;
}
