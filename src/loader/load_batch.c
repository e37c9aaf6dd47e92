/* Loads one batch with the caller's functions, in the calling thread. */
#include <string.h>

#include "base/philox.h"
#include "loader/loader.h"

void tsr__loader_copy_text(char out[TSR__REASON_BYTES], const char *text)
{
    size_t size = strlen(text);
    if (size >= TSR__REASON_BYTES) {
        size = TSR__REASON_BYTES - 1;
        while (size > 0 && ((unsigned char)text[size] & 0xc0u) == 0x80u)
            size--;
    }
    memcpy(out, text, size);
    out[size] = '\0';
}

static tsr__slot_state fail_slot(tsr__slot *slot, tsr__loader_trouble trouble, tsr_status status,
                                 const char *reason)
{
    slot->trouble = trouble;
    slot->status = status;
    tsr__loader_copy_text(slot->reason, reason != NULL ? reason : tsr_last_error());
    return TSR__SLOT_FAILED;
}

static int64_t batch_seed(const tsr_loader *loader, const tsr__slot *slot)
{
    uint64_t epoch = (uint64_t)slot->epoch, bits;
    uint32_t counter[4] = {(uint32_t)slot->batch, (uint32_t)(slot->batch >> 32), (uint32_t)epoch,
                           (uint32_t)(epoch >> 32)};
    uint32_t key[2] = {(uint32_t)loader->batch_key, (uint32_t)(loader->batch_key >> 32)}, words[4];
    int64_t seed;
    tsr__philox4x32(counter, key, words);
    bits = (uint64_t)words[1] << 32 | words[0];
    memcpy(&seed, &bits, sizeof seed);
    return seed;
}

/* Loads the items of a batch one by one. Ends at the first failure, or when the batch has been
 * abandoned. */
static tsr_status load_items(const tsr_loader_params *params, tsr_loader_work *work,
                             const tsr__slot *slot, uint64_t *place)
{
    for (uint64_t i = 0; i < slot->count && !tsr_loader_stopping(work); i++) {
        *place = work->place = i;
        uint8_t *item = params->item_bytes > 0 ? slot->data + i * params->item_bytes : NULL;
        TSR__TRY(params->load_item(params->user, work, slot->indices[i], item));
    }
    return TSR_OK;
}

static tsr__slot_state load_with_caller(tsr__worker *worker, tsr__slot *slot)
{
    const tsr_loader *loader = worker->loader;
    const tsr_loader_params *params = &loader->params;
    tsr_loader_work work = {
        .batch = slot->batch,
        .epoch = slot->epoch,
        .indices = slot->indices,
        .mask = slot->mask,
        .count = slot->count,
        .data = loader->capacity_bytes > 0 ? slot->data : NULL,
        .capacity_bytes = loader->capacity_bytes,
        .seed = batch_seed(loader, slot),
        .worker = &worker->self,
        .size_bytes = slot->count * params->item_bytes + params->batch_bytes,
        .internal = slot,
    };
    slot->place = 0;
    slot->size_bytes = work.size_bytes;
    tsr_status status;
    if (params->load_item != NULL) {
        status = load_items(params, &work, slot, &slot->place);
    } else {
        status = params->load_batch(params->user, &work);
        slot->size_bytes = work.size_bytes;
        /* A function that has succeeded may leave the place after the last index. */
        slot->place = status != TSR_OK ? work.place : 0;
    }
    if (status != TSR_OK && slot->place >= slot->count)
        return fail_slot(slot, TSR__TROUBLE_PLACE, status, work.reason);
    if (status != TSR_OK)
        return fail_slot(slot, TSR__TROUBLE_LOAD, status, work.reason);
    if (slot->size_bytes > loader->capacity_bytes)
        return fail_slot(slot, TSR__TROUBLE_SIZE, TSR_ERR_INVALID, "");
    return TSR__SLOT_LOADED;
}

static tsr__slot_state init_worker(tsr__worker *worker, tsr__slot *slot)
{
    const tsr_loader_params *params = &worker->loader->params;
    if (!worker->ready && params->worker_init != NULL) {
        worker->self.reason = NULL;
        tsr_status status = params->worker_init(params->user, &worker->self);
        if (status != TSR_OK) {
            slot->place = 0;
            return fail_slot(slot, TSR__TROUBLE_INIT, status, worker->self.reason);
        }
    }
    worker->ready = true;
    return load_with_caller(worker, slot);
}

/* The loader whose functions this thread is running, or NULL. */
static _Thread_local const tsr_loader *running;

bool tsr__loader_is_running(const tsr_loader *loader)
{
    return running == loader;
}

tsr__slot_state tsr__loader_run(tsr__worker *worker, tsr__slot *slot)
{
    const tsr_loader *const outer = running;
    /* Clear the thread's error text, so that `fail_slot` finds only texts that this batch has
     * recorded. Restore the old text afterwards, because a successful call must not change it. */
    const tsr__error before = tsr__error_take();
    running = worker->loader;
    tsr__slot_state state = init_worker(worker, slot);
    running = outer;
    tsr__error_put_back(&before);
    return state;
}

void tsr__loader_worker_end(tsr__worker *worker)
{
    const tsr_loader_params *params = &worker->loader->params;
    if (worker->ready && params->worker_finish != NULL)
        params->worker_finish(params->user, &worker->self);
    worker->ready = false;
}

bool tsr_loader_stopping(const tsr_loader_work *work)
{
    const tsr__slot *slot = work != NULL ? work->internal : NULL;
    return slot != NULL && atomic_load_explicit(&slot->abandoned, memory_order_relaxed);
}
