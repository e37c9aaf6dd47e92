/* The functions that the caller's thread uses to read: they queue batches that workers load, and
 * give loaded batches to the caller. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/struct_size.h"
#include "loader/loader.h"
#include "sampler/sampler.h"

/* Returns the state for a new batch. If one of its indices is negative or not below n, the state is
 * failed, so that the caller gets an error instead of this batch. */
static tsr__slot_state check_indices(const tsr_loader *loader, tsr__slot *slot)
{
    uint64_t n = loader->params.n;
    for (uint64_t i = 0; n != 0 && i < slot->count; i++)
        if ((uint64_t)slot->indices[i] >= n) {
            slot->trouble = TSR__TROUBLE_INDEX;
            slot->status = TSR_ERR_INVALID;
            slot->place = i;
            return TSR__SLOT_FAILED;
        }
    return TSR__SLOT_QUEUED;
}

/* Reads batch number `tail` from the sampler and queues it, unless the epoch ends or the sampler
 * fails. A failure is reported only when the caller asks for this batch. Until then, the caller's
 * last error must not change. */
static void queue_next_batch(tsr_loader *loader)
{
    const tsr__error before = tsr__error_take();
    tsr__slot *slot = tsr__slot_of(loader, loader->tail);
    uint64_t count = 0;
    /* Keep the sampler's state before this batch, for tsr_loader_save: when the caller has reached
     * this batch, the sampler has already been read further. */
    if (tsr_sampler_save(loader->batches, loader->batches->position, sizeof slot->sampler,
                         slot->sampler, &slot->sampler_bytes) != TSR_OK)
        slot->sampler_bytes = 0;
    tsr_status status = tsr_sampler_next(loader->batches, loader->batches->batch_max, slot->indices,
                                         slot->mask, &count);
    if (status != TSR_OK) {
        loader->sampler_status = status;
        tsr__loader_copy_text(loader->sampler_reason, tsr_last_error());
    } else if (count == 0) {
        loader->ended = true;
    } else {
        slot->batch = loader->tail;
        slot->epoch = tsr_sampler_epoch(loader->batches);
        slot->count = count;
        tsr__loader_append(loader, check_indices(loader, slot));
    }
    tsr__error_put_back(&before);
}

static void draw_ahead(tsr_loader *loader)
{
    while (!loader->ended && loader->sampler_status == TSR_OK &&
           loader->tail - loader->head < tsr__loader_ahead(loader) &&
           !tsr__loader_busy(loader, tsr__slot_of(loader, loader->tail)))
        queue_next_batch(loader);
}

static tsr_status tell_sampler(tsr_loader *loader)
{
    tsr_status status = loader->sampler_status;
    loader->sampler_status = TSR_OK; /* the next call reads the sampler again */
    return tsr__fail(status, "loader: batch %" PRIu64 " of epoch %" PRId64 ": %s", loader->tail,
                     tsr_sampler_epoch(loader->batches), loader->sampler_reason);
}

/* Fails with the reason that the caller's function gave. If it gave none, fails with the function's
 * name and status. */
static tsr_status tell_reason(const tsr__slot *slot, const char *what, const char *function)
{
    if (slot->reason[0] != '\0')
        return tsr__fail(slot->status, "%s: %s", what, slot->reason);
    const char *name = tsr_status_name(slot->status);
    if (strcmp(name, "TSR_ERR_?") == 0)
        return tsr__fail(slot->status, "%s: %s returned %d, which is no tsr_status", what, function,
                         (int)slot->status);
    return tsr__fail(slot->status, "%s: %s failed with %s", what, function, name);
}

static tsr_status tell(tsr_loader *loader, const tsr__slot *slot)
{
    const tsr_loader_params *params = &loader->params;
    char batch[64], what[160];
    loader->failed = true;
    (void)snprintf(batch, sizeof batch, "loader: batch %" PRIu64 " of epoch %" PRId64, slot->batch,
                   slot->epoch);
    switch (slot->trouble) {
    case TSR__TROUBLE_LOAD:
        (void)snprintf(what, sizeof what, "%s: index %" PRId64, batch, slot->indices[slot->place]);
        return tell_reason(slot, what, params->load_item != NULL ? "load_item" : "load_batch");
    case TSR__TROUBLE_PLACE:
        (void)snprintf(what, sizeof what,
                       "%s: load_batch set place %" PRIu64 " in a batch of %" PRIu64, batch,
                       slot->place, slot->count);
        return tell_reason(slot, what, "load_batch");
    case TSR__TROUBLE_INIT:
        (void)snprintf(what, sizeof what, "%s: worker %d", batch,
                       tsr__loader_worker_of(loader, slot->batch)->self.id);
        return tell_reason(slot, what, "worker_init");
    case TSR__TROUBLE_SIZE:
        return tsr__fail(slot->status, "%s: load_batch used %" PRIu64 " bytes, there are %" PRIu64,
                         batch, slot->size_bytes, loader->capacity_bytes);
    case TSR__TROUBLE_INDEX:
        break;
    }
    return tsr__fail(slot->status, "%s: index %" PRId64 " is outside of 0 to %" PRIu64, batch,
                     slot->indices[slot->place], params->n - 1);
}

static void describe_batch(const tsr__slot *slot, tsr_loader_batch *batch)
{
    const tsr_loader_batch described = {
        .struct_size = sizeof described,
        .batch = slot->batch,
        .epoch = slot->epoch,
        .indices = slot->indices,
        .mask = slot->mask,
        .count = slot->count,
        .data = slot->data,
        .size_bytes = slot->size_bytes,
    };
    tsr__struct_write(sizeof described, &described, batch);
}

/* Waits for the batch at `head`. If there are no workers, loads it in the calling thread. */
static tsr_status finish_head(tsr_loader *loader, const struct timespec *deadline,
                              tsr__slot_state *state)
{
    tsr__slot *slot = tsr__slot_of(loader, loader->head);
    if (loader->params.workers == 0) {
        if (slot->state == TSR__SLOT_QUEUED)
            slot->state = tsr__loader_run(&loader->workers[0], slot);
        *state = slot->state;
        return TSR_OK;
    }
    if (tsr__loader_wait(loader, slot, deadline, state))
        return TSR_OK;
    return tsr__fail(TSR_ERR_TIMEOUT,
                     "loader: batch %" PRIu64 " of epoch %" PRId64 " was not loaded within %" PRIu64
                     " ns",
                     loader->head, tsr_sampler_epoch(loader->batches), loader->params.timeout_ns);
}

tsr_status tsr_loader_next(tsr_loader *loader, tsr_loader_batch *batch, bool *got)
{
    TSR__REQUIRE(loader != NULL && batch != NULL && got != NULL, "loader next: %s is NULL",
                 loader == NULL  ? "loader"
                 : batch == NULL ? "batch"
                                 : "got");
    TSR__TRY(tsr__struct_check_out("tsr_loader_batch", batch));
    TSR__TRY(tsr__loader_check_caller(loader, "loader next"));
    struct timespec deadline, *limit = NULL;
    if (loader->params.timeout_ns != 0) {
        tsr__loader_deadline(loader->params.timeout_ns, &deadline);
        limit = &deadline;
    }
    const tsr__slot *slot = tsr__slot_of(loader, loader->head);
    if (loader->failed && slot->trouble != TSR__TROUBLE_INDEX)
        tsr__loader_retry(loader);
    loader->failed = false;

    tsr__slot_state state = TSR__SLOT_FREE;
    while (state == TSR__SLOT_FREE) {
        draw_ahead(loader);
        if (loader->head == loader->tail && loader->sampler_status != TSR_OK)
            return tell_sampler(loader);
        if (loader->head == loader->tail && loader->ended) {
            *got = false;
            return TSR_OK;
        }
        /* If the slot is free after this call, it contained an abandoned batch. The next iteration
         * then queues a new batch in it. */
        TSR__TRY(finish_head(loader, limit, &state));
    }
    if (state == TSR__SLOT_FAILED)
        return tell(loader, slot);
    describe_batch(slot, batch);
    *got = true;
    tsr__loader_take(loader);
    if (loader->params.workers > 0)
        draw_ahead(loader);
    return TSR_OK;
}

tsr_status tsr_loader_get_info(const tsr_loader *loader, tsr_loader_info *info)
{
    TSR__REQUIRE(loader != NULL && info != NULL, "loader info: %s is NULL",
                 loader != NULL ? "info" : "loader");
    tsr_loader_info value = {
        .struct_size = sizeof value,
        .length = tsr_sampler_length(loader->batches),
        .position = loader->head,
        .epoch = tsr_sampler_epoch(loader->batches),
    };
    if (loader->failed) {
        const tsr__slot *slot = tsr__slot_of(loader, loader->head);
        const bool no_worker = slot->trouble == TSR__TROUBLE_INDEX;
        value.failed = slot->status;
        value.failed_index = slot->trouble == TSR__TROUBLE_PLACE ? -1 : slot->indices[slot->place];
        value.failed_place = slot->place;
        value.failed_worker = no_worker ? -1 : tsr__loader_worker_of(loader, slot->batch)->self.id;
    }
    TSR__GIVE(tsr_loader_info, &value, info);
    return TSR_OK;
}

tsr_status tsr_loader_skip(tsr_loader *loader)
{
    TSR__REQUIRE(loader != NULL, "loader skip: loader is NULL");
    TSR__TRY(tsr__loader_check_caller(loader, "loader skip"));
    if (!loader->failed)
        return tsr__fail(TSR_ERR_NOT_FOUND, "loader: batch %" PRIu64 " has not failed",
                         loader->head);
    loader->failed = false;
    tsr__loader_take(loader);
    return TSR_OK;
}
