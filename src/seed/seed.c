/* The seed manager. It seeds random streams and records every seed in a log. */
#include "seed/seed.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"

void tsr__seed_replace(tsr_seed_manager *manager, tsr__seed_set *set, int64_t epoch)
{
    tsr__seed_set_finish(&manager->set);
    manager->set = *set;
    manager->epoch = epoch;
    *set = (tsr__seed_set){0};
    tsr__log(TSR_LOG_DEBUG, "seed: restored %zu streams at epoch %" PRId64, manager->set.count,
             epoch);
}

static tsr_status check_seed_params(const tsr_seed_manager_params *params)
{
    TSR__REQUIRE(params->strategy == TSR_SEED_STRATEGY_DOCUMENTED ||
                     params->strategy == TSR_SEED_STRATEGY_HASHED,
                 "seed: %d is no strategy", (int)params->strategy);
    TSR__REQUIRE(strcmp(tsr_rng_kind_name(params->rng), "?") != 0,
                 "seed: %d is no kind of generator", (int)params->rng);
    const bool hashed = params->derive == NULL && params->strategy == TSR_SEED_STRATEGY_HASHED;
    TSR__REQUIRE(!hashed || params->rng == TSR_RNG_PHILOX || params->rng == TSR_RNG_THREEFRY,
                 "seed: hashed seeds have 64 bits, of which %s would take 32",
                 tsr_rng_kind_name(params->rng));
    TSR__REQUIRE(params->device_count >= 0 && params->device_count <= TSR_MAX_SEED,
                 "seed: %d devices are outside 0 to %d", params->device_count, TSR_MAX_SEED);
    TSR__REQUIRE(params->worker_count >= 0 && params->worker_count <= TSR_MAX_SEED,
                 "seed: %d workers are outside 0 to %d", params->worker_count, TSR_MAX_SEED);
    TSR__REQUIRE(params->node >= 0, "seed: node %d is negative", params->node);
    return TSR_OK;
}

static tsr_status derive(const tsr_seed_manager *manager, tsr_seed_point point, int64_t *seed)
{
    const tsr_seed_manager_params *params = &manager->params;
    point.node = params->node;
    point.epoch = manager->epoch;
    if (params->derive != NULL)
        return params->derive(params->user, &point, seed);
    return tsr_seed_derive(params->strategy, &point, seed);
}

/* Checks that the strategy can derive seeds for all devices and workers. If it cannot, seeding
 * would fail with every base seed. A formula of the caller's is not checked, because it must not be
 * called before a stream is seeded. */
static tsr_status check_strategy(const tsr_seed_manager *manager)
{
    const tsr_seed_manager_params *params = &manager->params;
    const int workers = params->worker_count;
    const tsr_seed_point device = {.kind = TSR_SEED_DEVICE, .device = params->device_count - 1};
    const tsr_seed_point worker = {.kind = TSR_SEED_WORKER,
                                   .worker = workers > 0 ? workers - 1 : 0};
    int64_t seed;
    if (params->derive != NULL)
        return TSR_OK;
    TSR__TRY(derive(manager, device, &seed));
    return derive(manager, worker, &seed);
}

tsr_status tsr_seed_manager_create(const tsr_seed_manager_params *params, tsr_seed_manager **out)
{
    TSR__REQUIRE(out != NULL, "seed: out is NULL");
    TSR__TAKE(tsr_seed_manager_params, params);
    tsr_seed_manager_params chosen = *params;
    TSR__TRY(check_seed_params(&chosen));
    if (chosen.device_count == 0)
        chosen.device_count = 1;
    TSR__TRY(check_strategy(&(tsr_seed_manager){.params = chosen}));
    tsr_seed_manager *manager = tsr__calloc(1, sizeof *manager);
    if (manager == NULL)
        return TSR_ERR_NO_MEMORY;
    manager->params = chosen;
    *out = manager;
    return TSR_OK;
}

void tsr_seed_manager_destroy(tsr_seed_manager **manager)
{
    if (manager == NULL || *manager == NULL)
        return;
    tsr__seed_set_finish(&(*manager)->set);
    tsr__free((*manager)->log);
    tsr__free(*manager);
    *manager = NULL;
}

tsr_status tsr_seed_set_epoch(tsr_seed_manager *manager, int64_t epoch)
{
    TSR__REQUIRE(manager != NULL, "seed: manager is NULL");
    TSR__REQUIRE(epoch >= 0 && epoch <= TSR__SEED_MAX_EPOCH,
                 "seed: epoch %" PRId64 " is outside 0 to %d", epoch, TSR__SEED_MAX_EPOCH);
    manager->epoch = epoch;
    return TSR_OK;
}

/* One of several streams that are seeded together: if one of them cannot be seeded, none is. */
typedef struct seeding {
    tsr_seed_kind kind;
    int id;
    int64_t seed;
    tsr__seed_stream *stream;
} seeding;

/* Seeds all streams of the list. Steps that can fail come first: initialising the generators as a
 * test, and allocating memory for the log and for new streams. Seeds, generators and the log change
 * only after all of these steps have succeeded. */
static tsr_status seed_together(tsr_seed_manager *manager, seeding *list, size_t count)
{
    tsr_rng tried;
    for (size_t i = 0; i < count; i++)
        if (tsr_rng_init(manager->params.rng, (uint64_t)list[i].seed, 0, &tried) != TSR_OK)
            return tsr__fail_context(TSR_ERR_INVALID, "seed: %s %d",
                                     tsr_seed_kind_name(list[i].kind), list[i].id);
    void *log = manager->log;
    TSR__TRY(
        tsr__grow(&log, &manager->log_capacity, manager->log_count + count, sizeof *manager->log));
    manager->log = log;

    tsr__seed_set fresh = {0};
    tsr_status status = TSR_OK;
    for (size_t i = 0; i < count && status == TSR_OK; i++) {
        list[i].stream = tsr__seed_find(&manager->set, list[i].kind, list[i].id);
        if (list[i].stream == NULL)
            status = tsr__seed_add(&fresh, list[i].kind, list[i].id, &list[i].stream);
    }
    if (status == TSR_OK)
        status = tsr__seed_merge(&manager->set, &fresh);
    if (status != TSR_OK) {
        tsr__seed_set_finish(&fresh);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        tsr__seed_stream *stream = list[i].stream;
        stream->seed = list[i].seed;
        if (tsr_rng_init(manager->params.rng, (uint64_t)stream->seed, 0, &stream->rng) != TSR_OK)
            return TSR_ERR_INVALID; /* unreachable: the same call succeeded above */
        manager->log[manager->log_count++] =
            (tsr_seed_event){sizeof(tsr_seed_event), stream->kind, stream->id, stream->seed};
        tsr__log(TSR_LOG_DEBUG, "seed: %s %d: %" PRId64, tsr_seed_kind_name(stream->kind),
                 stream->id, stream->seed);
    }
    return TSR_OK;
}

/* Appends the streams of a kind with the ids 0 … count − 1, and their seeds, to the list. */
static tsr_status derive_all(const tsr_seed_manager *manager, int64_t base, tsr_seed_kind kind,
                             int count, seeding *list, size_t *used)
{
    for (int id = 0; id < count; id++) {
        seeding *next = &list[*used];
        *next = (seeding){.kind = kind, .id = id};
        tsr_seed_point point = {.base = base,
                                .kind = kind,
                                .device = kind == TSR_SEED_DEVICE ? id : 0,
                                .worker = kind == TSR_SEED_WORKER ? id : 0};
        TSR__TRY(derive(manager, point, &next->seed));
        (*used)++;
    }
    return TSR_OK;
}

static tsr_status seed_many(tsr_seed_manager *manager, int64_t base, int processes, int devices,
                            int workers)
{
    seeding *list =
        tsr__calloc((size_t)processes + (size_t)devices + (size_t)workers, sizeof *list);
    if (list == NULL)
        return TSR_ERR_NO_MEMORY;
    size_t count = 0;
    tsr_status status = derive_all(manager, base, TSR_SEED_PROCESS, processes, list, &count);
    if (status == TSR_OK)
        status = derive_all(manager, base, TSR_SEED_DEVICE, devices, list, &count);
    if (status == TSR_OK)
        status = derive_all(manager, base, TSR_SEED_WORKER, workers, list, &count);
    if (status == TSR_OK)
        status = seed_together(manager, list, count);
    tsr__free(list);
    return status;
}

tsr_status tsr_seed_global(tsr_seed_manager *manager, int64_t base)
{
    TSR__REQUIRE(manager != NULL, "seed: manager is NULL");
    return seed_many(manager, base, 1, manager->params.device_count, manager->params.worker_count);
}

static tsr_status check_has_stream(tsr_seed_kind kind)
{
    TSR__REQUIRE(tsr__seed_has_stream(kind), "seed: kind %s has no stream",
                 tsr_seed_kind_name(kind));
    return TSR_OK;
}

tsr_status tsr_seed_all(tsr_seed_manager *manager, tsr_seed_kind kind, int64_t base, int count)
{
    TSR__REQUIRE(manager != NULL, "seed: manager is NULL");
    TSR__REQUIRE(kind == TSR_SEED_DEVICE || kind == TSR_SEED_WORKER,
                 "seed: kind %s is neither device nor worker", tsr_seed_kind_name(kind));
    const bool devices = kind == TSR_SEED_DEVICE;
    const int usual = devices ? manager->params.device_count : manager->params.worker_count;
    if (count == 0)
        count = usual;
    TSR__REQUIRE(count >= 1 && count <= TSR_MAX_SEED, "seed: %d %ss are outside 1 to %d", count,
                 tsr_seed_kind_name(kind), TSR_MAX_SEED);
    return seed_many(manager, base, 0, devices ? count : 0, devices ? 0 : count);
}

tsr_status tsr_seed_set(tsr_seed_manager *manager, tsr_seed_kind kind, int id, int64_t seed)
{
    TSR__REQUIRE(manager != NULL, "seed: manager is NULL");
    TSR__TRY(check_has_stream(kind));
    TSR__REQUIRE(tsr__seed_id_fits(kind, id), "seed: %s %d is outside 0 to %d",
                 tsr_seed_kind_name(kind), id, kind == TSR_SEED_PROCESS ? 0 : TSR_MAX_SEED - 1);
    return seed_together(manager, &(seeding){.kind = kind, .id = id, .seed = seed}, 1);
}

static tsr_status find_stream(const tsr_seed_manager *manager, tsr_seed_kind kind, int id,
                              tsr__seed_stream **out)
{
    tsr__seed_stream *stream = tsr__seed_find(&manager->set, kind, id);
    if (stream == NULL && kind == TSR_SEED_PROCESS && id == 0)
        return tsr__fail(TSR_ERR_NOT_FOUND, "seed: the process has not been seeded");
    if (stream == NULL)
        return tsr__fail(TSR_ERR_NOT_FOUND, "seed: %s %d has not been seeded",
                         tsr_seed_kind_name(kind), id);
    *out = stream;
    return TSR_OK;
}

tsr_status tsr_seed_of(const tsr_seed_manager *manager, tsr_seed_kind kind, int id, int64_t *seed)
{
    TSR__REQUIRE(manager != NULL && seed != NULL, "seed: %s is NULL",
                 manager != NULL ? "seed" : "manager");
    tsr__seed_stream *stream = NULL;
    TSR__TRY(check_has_stream(kind));
    TSR__TRY(find_stream(manager, kind, id, &stream));
    *seed = stream->seed;
    return TSR_OK;
}

tsr_status tsr_seed_of_op(const tsr_seed_manager *manager, int64_t base, int device, int op,
                          int64_t *seed)
{
    TSR__REQUIRE(manager != NULL && seed != NULL, "seed: %s is NULL",
                 manager != NULL ? "seed" : "manager");
    tsr_seed_point point = {.base = base, .kind = TSR_SEED_OP, .device = device, .op = op};
    return derive(manager, point, seed);
}

tsr_status tsr_seed_stream(tsr_seed_manager *manager, tsr_seed_kind kind, int id, tsr_rng **stream)
{
    TSR__REQUIRE(manager != NULL && stream != NULL, "seed: %s is NULL",
                 manager != NULL ? "stream" : "manager");
    tsr__seed_stream *found = NULL;
    TSR__TRY(check_has_stream(kind));
    TSR__TRY(find_stream(manager, kind, id, &found));
    *stream = &found->rng;
    return TSR_OK;
}

uint64_t tsr_seed_event_count(const tsr_seed_manager *manager)
{
    return manager != NULL ? manager->log_count : 0;
}

tsr_status tsr_seed_get_event(const tsr_seed_manager *manager, uint64_t index,
                              tsr_seed_event *event)
{
    TSR__REQUIRE(manager != NULL && event != NULL, "seed: %s is NULL",
                 manager != NULL ? "event" : "manager");
    if (index >= manager->log_count)
        return tsr__fail(TSR_ERR_NOT_FOUND, "seed: there is no entry %" PRIu64 " in a log of %zu",
                         index, manager->log_count);
    TSR__GIVE(tsr_seed_event, &manager->log[index], event);
    return TSR_OK;
}

void tsr_seed_clear_events(tsr_seed_manager *manager)
{
    if (manager != NULL)
        manager->log_count = 0;
}

static tsr_status check_format(tsr_seed_format format)
{
    TSR__REQUIRE(format == TSR_SEED_FORMAT_BYTES || format == TSR_SEED_FORMAT_JSON,
                 "seed: %d is no format of snapshots", (int)format);
    return TSR_OK;
}

tsr_status tsr_seed_save(const tsr_seed_manager *manager, tsr_seed_format format,
                         size_t capacity_bytes, void *data, size_t *size_bytes)
{
    TSR__REQUIRE(manager != NULL && size_bytes != NULL, "seed: %s is NULL",
                 manager != NULL ? "size_bytes" : "manager");
    TSR__TRY(check_format(format));
    if (format == TSR_SEED_FORMAT_JSON)
        return tsr__seed_save_json(manager, capacity_bytes, data, size_bytes);
    return tsr__seed_save_bytes(manager, capacity_bytes, data, size_bytes);
}

tsr_status tsr_seed_load(tsr_seed_manager *manager, tsr_seed_format format, const void *data,
                         size_t size_bytes)
{
    TSR__REQUIRE(manager != NULL && data != NULL, "seed: %s is NULL",
                 manager != NULL ? "data" : "manager");
    TSR__TRY(check_format(format));
    if (format == TSR_SEED_FORMAT_JSON)
        return tsr__seed_load_json(manager, data, size_bytes);
    return tsr__seed_load_bytes(manager, data, size_bytes);
}
