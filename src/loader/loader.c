/* Creates and destroys loaders, and moves them to other positions. */
#include "loader/loader.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "sampler/order/names.h"
#include "sampler/sampler.h"

#define ALIGNMENT 64

/* Params --------------------------------------------------------------------------------------- */

static tsr_status check_batch_sampler(const tsr_loader_params *params)
{
    TSR__REQUIRE(params->sampler == NULL, "loader: batch_sampler excludes sampler");
    TSR__REQUIRE(params->batch_size == 0,
                 "loader: batch_sampler excludes batch_size, which is %" PRId64,
                 params->batch_size);
    TSR__REQUIRE(!params->shuffle, "loader: batch_sampler excludes shuffle");
    TSR__REQUIRE(!params->drop_last, "loader: batch_sampler excludes drop_last");
    TSR__REQUIRE(params->batch_sampler->batch_max != 0,
                 "loader: a %s sampler gives single indices: pass it as sampler",
                 params->batch_sampler->name);
    return TSR_OK;
}

static tsr_status check_sampler(const tsr_loader_params *params)
{
    TSR__REQUIRE(!params->shuffle, "loader: sampler excludes shuffle");
    TSR__REQUIRE(params->sampler->batch_max == 0,
                 "loader: a %s sampler gives batches: pass it as batch_sampler",
                 params->sampler->name);
    return TSR_OK;
}

static tsr_status check_functions(const tsr_loader_params *params)
{
    TSR__REQUIRE(params->load_item != NULL || params->load_batch != NULL,
                 "loader: there is neither load_item nor load_batch");
    TSR__REQUIRE(params->load_item == NULL || params->load_batch == NULL,
                 "loader: load_item excludes load_batch");
    TSR__REQUIRE(params->load_item == NULL || params->batch_bytes == 0,
                 "loader: load_item excludes batch_bytes, which is %" PRIu64, params->batch_bytes);
    return TSR_OK;
}

static tsr_status check_workers(const tsr_loader_params *params)
{
    TSR__REQUIRE(params->workers >= 0 && params->workers <= TSR_MAX_LOADER_WORKERS,
                 "loader: %d workers are outside 0 to %d", params->workers, TSR_MAX_LOADER_WORKERS);
    TSR__REQUIRE(params->prefetch >= 0 && params->prefetch <= TSR_MAX_LOADER_PREFETCH,
                 "loader: prefetch %d is outside 0 to %d", params->prefetch,
                 TSR_MAX_LOADER_PREFETCH);
    TSR__REQUIRE(params->workers > 0 || params->prefetch == 0,
                 "loader: prefetch %d needs workers, of which there are 0", params->prefetch);
    TSR__REQUIRE(params->workers > 0 || params->timeout_ns == 0,
                 "loader: timeout_ns %" PRIu64 " needs workers, of which there are 0",
                 params->timeout_ns);
    TSR__REQUIRE(params->seed_strategy == TSR_SEED_STRATEGY_DOCUMENTED ||
                     params->seed_strategy == TSR_SEED_STRATEGY_HASHED,
                 "loader: %d is no seed strategy", (int)params->seed_strategy);
    return TSR_OK;
}

/* Gives the largest number of indices that a batch can have. */
static tsr_status check_loader_params(const tsr_loader_params *params, uint64_t *batch_max)
{
    TSR__TRY(check_functions(params));
    TSR__TRY(check_workers(params));
    TSR__REQUIRE(params->batch_size >= 0, "loader: batch size %" PRId64 " is negative",
                 params->batch_size);
    TSR__REQUIRE(params->shuffle || params->order == TSR_ORDER_FEISTEL,
                 "loader: order '%s' needs shuffle", tsr__order_name(params->order));
    uint64_t items = params->n;
    if (params->batch_sampler != NULL) {
        TSR__TRY(check_batch_sampler(params));
        *batch_max = params->batch_sampler->batch_max;
        return TSR_OK;
    }
    if (params->sampler != NULL) {
        TSR__TRY(check_sampler(params));
        items = tsr__sampler_max_length(params->sampler);
    } else {
        TSR__REQUIRE(params->n > 0,
                     "loader: there is nothing to read: n is 0, and there is no sampler");
    }
    *batch_max = tsr__batch_max(params->batch_size == 0 ? 1 : params->batch_size, items);
    return TSR_OK;
}

/* Makes a sampler of indices, random or sequential, if the params contain no sampler. */
static tsr_status make_index_sampler(const tsr_loader_params *params, tsr_sampler **out)
{
    if (!params->shuffle)
        return tsr_sampler_create_sequential(params->n, out);
    tsr_torch_options torch;
    TSR__TRY(TSR__TAKE_PART(tsr_torch_options, params->torch, &torch));
    torch.data_loader = torch.data_loader || params->order == TSR_ORDER_TORCH;
    const tsr_sampler_random_params random = {.struct_size = sizeof random,
                                              .n = params->n,
                                              .order = params->order,
                                              .seed = params->seed,
                                              .torch = &torch};
    return tsr_sampler_create_random(&random, out);
}

/* Creating and destroying ---------------------------------------------------------------------- */

static void free_slots(tsr_loader *loader)
{
    for (uint64_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        tsr__free(loader->slots[i].indices);
        tsr__free(loader->slots[i].mask);
        tsr__free(loader->slots[i].memory);
    }
    tsr__free(loader->slots);
}

void tsr_loader_destroy(tsr_loader **loader)
{
    if (loader == NULL || *loader == NULL)
        return;
    tsr__loader_stop(*loader);
    tsr_sampler_destroy(&(*loader)->batches);
    free_slots(*loader);
    tsr__free((*loader)->workers);
    tsr__free(*loader);
    *loader = NULL;
}

static tsr_status make_slots(tsr_loader *loader, uint64_t batch_max)
{
    const tsr_loader_params *params = &loader->params;
    uint64_t items_bytes, capacity, total;
    /* workers and prefetch were checked against their limits, so their product does not overflow */
    uint64_t prefetch = params->prefetch == 0 ? 2 : (uint64_t)params->prefetch;
    loader->slot_count = (uint64_t)params->workers * prefetch + 1;
    if (!tsr__mul_u64(batch_max, params->item_bytes, &items_bytes) ||
        !tsr__add_u64(items_bytes, params->batch_bytes, &capacity) ||
        !tsr__add_u64(capacity, ALIGNMENT, &total) || total > SIZE_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "loader: batches of %" PRIu64
                         " indices are too large: item_bytes is %" PRIu64
                         ", batch_bytes is %" PRIu64,
                         batch_max, params->item_bytes, params->batch_bytes);
    loader->capacity_bytes = capacity;
    loader->slots = tsr__calloc(loader->slot_count, sizeof *loader->slots);
    if (loader->slots == NULL)
        return TSR_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < loader->slot_count; i++) {
        tsr__slot *slot = &loader->slots[i];
        slot->indices = tsr__calloc(batch_max, sizeof *slot->indices);
        slot->mask = slot->indices != NULL ? tsr__calloc(batch_max, 1) : NULL;
        slot->memory = slot->mask != NULL ? tsr__calloc(1, (size_t)total) : NULL;
        if (slot->memory == NULL)
            return TSR_ERR_NO_MEMORY;
        slot->data = (uint8_t *)slot->memory + (ALIGNMENT - (uintptr_t)slot->memory % ALIGNMENT);
    }
    return TSR_OK;
}

static tsr_status make_workers(tsr_loader *loader)
{
    const tsr_loader_params *params = &loader->params;
    int count = params->workers == 0 ? 1 : params->workers;
    tsr_seed_point point = {.base = params->seed, .kind = TSR_SEED_WORKER, .node = params->node};
    int64_t key;
    loader->workers = tsr__calloc((size_t)count, sizeof *loader->workers);
    if (loader->workers == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        tsr__worker *worker = &loader->workers[i];
        worker->loader = loader;
        worker->self.id = point.worker = i;
        TSR__TRY(tsr_seed_derive(params->seed_strategy, &point, &worker->self.seed));
    }
    /* The key for the seeds of batches is derived with op 1, which the seed of no worker uses. */
    point.worker = 0;
    point.op = 1;
    TSR__TRY(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &point, &key));
    loader->batch_key = (uint64_t)key;
    return TSR_OK;
}

/* Sets the sampler that gives batches: the caller's, or a new one that makes batches from single
 * indices. */
static tsr_status make_batches(tsr_loader *loader)
{
    const tsr_loader_params *params = &loader->params;
    if (params->batch_sampler != NULL) {
        loader->batches = tsr__sampler_retain(params->batch_sampler);
        return TSR_OK;
    }
    tsr_sampler *indices = NULL;
    if (params->sampler == NULL)
        TSR__TRY(make_index_sampler(params, &indices));
    tsr_sampler_batch_params batch = {
        .struct_size = sizeof batch,
        .base = params->sampler != NULL ? params->sampler : indices,
        .batch_size = params->batch_size == 0 ? 1 : params->batch_size,
        .drop_last = params->drop_last,
    };
    tsr_status status = tsr_sampler_create_batch(&batch, &loader->batches);
    tsr_sampler_destroy(&indices);
    return status;
}

static tsr_status init_loader(tsr_loader *loader, uint64_t batch_max)
{
    TSR__TRY(make_workers(loader));
    TSR__TRY(make_slots(loader, batch_max));
    TSR__TRY(tsr__loader_start(loader));
    return make_batches(loader);
}

tsr_status tsr_loader_create(const tsr_loader_params *params, tsr_loader **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "loader: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_loader_params, params);
    uint64_t batch_max = 0;
    TSR__TRY(check_loader_params(params, &batch_max));
    tsr_loader *loader = tsr__calloc(1, sizeof *loader);
    if (loader == NULL)
        return TSR_ERR_NO_MEMORY;
    loader->params = *params;
    tsr_status status = init_loader(loader, batch_max);
    if (status != TSR_OK) {
        tsr_loader_destroy(&loader);
        return status;
    }
    /* Start with the batch at the sampler's position: the caller may have read the sampler
     * before. */
    tsr__loader_go_to(loader, tsr_sampler_position(loader->batches));
    *out = loader;
    return TSR_OK;
}

/* Moving --------------------------------------------------------------------------------------- */

/* Moves the sampler first. If this fails, the sampler has not moved, and the batches loaded ahead
 * remain valid. */
tsr_status tsr_loader_set_epoch(tsr_loader *loader, int64_t epoch)
{
    TSR__REQUIRE(loader != NULL, "loader set epoch: loader is NULL");
    TSR__TRY(tsr__loader_check_caller(loader, "loader set epoch"));
    TSR__TRY(tsr_sampler_set_epoch(loader->batches, epoch));
    tsr__loader_go_to(loader, 0);
    return TSR_OK;
}

tsr_status tsr_loader_seek(tsr_loader *loader, uint64_t position)
{
    TSR__REQUIRE(loader != NULL, "loader seek: loader is NULL");
    TSR__TRY(tsr__loader_check_caller(loader, "loader seek"));
    TSR__TRY(tsr_sampler_seek(loader->batches, position));
    tsr__loader_go_to(loader, position);
    return TSR_OK;
}

tsr_status tsr_loader_save(const tsr_loader *loader, size_t capacity_bytes, void *data,
                           size_t *size_bytes)
{
    TSR__REQUIRE(loader != NULL && data != NULL && size_bytes != NULL, "loader save: %s is NULL",
                 loader == NULL ? "loader"
                 : data == NULL ? "data"
                                : "size_bytes");
    if (loader->head == loader->tail)
        return tsr_sampler_save(loader->batches, tsr_sampler_position(loader->batches),
                                capacity_bytes, data, size_bytes);
    const tsr__slot *slot = tsr__slot_of(loader, loader->head);
    if (slot->sampler_bytes == 0)
        return tsr_sampler_save(loader->batches, loader->head, capacity_bytes, data, size_bytes);
    TSR__REQUIRE(capacity_bytes >= slot->sampler_bytes,
                 "loader save: the state takes %zu bytes, there is room for %zu",
                 slot->sampler_bytes, capacity_bytes);
    memcpy(data, slot->sampler, slot->sampler_bytes);
    *size_bytes = slot->sampler_bytes;
    return TSR_OK;
}

tsr_status tsr_loader_resume(tsr_loader *loader, const void *data, size_t size_bytes)
{
    TSR__REQUIRE(loader != NULL && data != NULL, "loader resume: %s is NULL",
                 loader != NULL ? "data" : "loader");
    TSR__TRY(tsr__loader_check_caller(loader, "loader resume"));
    TSR__TRY(tsr_sampler_resume(loader->batches, data, size_bytes));
    tsr__loader_go_to(loader, tsr_sampler_position(loader->batches));
    return TSR_OK;
}
