/* The dataset of the loader's tests. Each record says where it comes from. The functions here run
 * in the workers' threads, where Check's macros must not be used, so they count errors instead. */
#ifndef TESTS_LOADER_FIXTURE_H
#define TESTS_LOADER_FIXTURE_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rng/rng.h"
#include "support/check_main.h"
#include "tessera/loader.h"

typedef struct record {
    int64_t index, epoch;
    uint64_t batch, noise;
} record;

/* The caller's data. With all members zero, loading is immediate and never fails. */
typedef struct source {
    int jitter_us;       /* sleep up to this long for each batch */
    bool fail;           /* fail for the indices that `failing` selects */
    int64_t failing;     /* loading an index that is a multiple of this fails … */
    atomic_int failures; /* … this number of times; −1: always */
    bool hold;           /* batches from `held` on wait until released */
    bool stubborn;       /* held batches wait even if the loader is stopping */
    uint64_t held;
    atomic_bool let_go;
    atomic_int begun, running, max_running, wrong;
    atomic_int inits, finishes;
    const char *reason;
} source;

/* Resets the caller's data. Where the system has no fork, tests share a process, but must not share
 * these data. */
#define RESET_DATA                                                                                 \
    static void reset_data(void)                                                                   \
    {                                                                                              \
        memset(&data, 0, sizeof data);                                                             \
    }

static inline void sleep_us(int us)
{
    struct timespec time = {.tv_nsec = us * 1000L};
    nanosleep(&time, NULL);
}

static inline uint64_t fixture_mix(uint64_t value)
{
    value = (value ^ (value >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    return value ^ (value >> 29);
}

static inline void fixture_begin(source *from, const tsr_loader_work *work)
{
    atomic_fetch_add(&from->begun, 1);
    int running = atomic_fetch_add(&from->running, 1) + 1;
    int most = atomic_load(&from->max_running);
    while (running > most && !atomic_compare_exchange_weak(&from->max_running, &most, running))
        continue;
    if (from->jitter_us > 0)
        sleep_us((int)(fixture_mix(work->batch * 31 + (uint64_t)atomic_load(&from->begun)) %
                       (uint64_t)from->jitter_us));
    while (from->hold && work->batch >= from->held && !atomic_load(&from->let_go) &&
           (from->stubborn || !tsr_loader_stopping(work)))
        sleep_us(1000);
}

static inline bool fixture_fails(source *from, int64_t index)
{
    if (!from->fail || index % from->failing != 0)
        return false;
    int left = atomic_load(&from->failures);
    while (left > 0 && !atomic_compare_exchange_weak(&from->failures, &left, left - 1))
        continue;
    return left != 0;
}

static inline void fixture_write(const tsr_loader_work *work, uint64_t place, void *item)
{
    tsr_philox noise;
    tsr__philox_init((uint64_t)work->seed, place, &noise);
    record one = {.index = work->indices[place],
                  .epoch = work->epoch,
                  .batch = work->batch,
                  .noise = tsr__philox_next_u64(&noise)};
    memcpy(item, &one, sizeof one);
}

/* A load_item for tsr_loader_params whose item_bytes is sizeof(record). */
static inline tsr_status fixture_item(void *user, tsr_loader_work *work, int64_t index, void *item)
{
    source *from = user;
    if (work->place == 0)
        fixture_begin(from, work);
    if (index != work->indices[work->place] || (uintptr_t)work->data % 64 != 0 ||
        (uint8_t *)item != (uint8_t *)work->data + work->place * sizeof(record))
        atomic_fetch_add(&from->wrong, 1);
    fixture_write(work, work->place, item);
    bool failed = fixture_fails(from, index);
    if (failed)
        work->reason = from->reason;
    if (failed || work->place + 1 == work->count)
        atomic_fetch_sub(&from->running, 1);
    return failed ? TSR_ERR_IO : TSR_OK;
}

/* Parameters that load records for the `data` of the test file. */
#define PARAMS(...)                                                                                \
    tsr_loader_params(.user = &data, .load_item = fixture_item, .item_bytes = sizeof(record),      \
                      __VA_ARGS__)

/* A load_batch for tsr_loader_params. It writes only some of the records, depending on the batch's
 * number. */
static inline tsr_status fixture_batch(void *user, tsr_loader_work *work)
{
    source *from = user;
    tsr_status status = TSR_OK;
    fixture_begin(from, work);
    for (uint64_t i = 0; i < work->count && status == TSR_OK; i++) {
        work->place = i;
        fixture_write(work, i, (uint8_t *)work->data + i * sizeof(record));
        if (fixture_fails(from, work->indices[i])) {
            work->reason = from->reason;
            status = TSR_ERR_IO;
        }
    }
    work->size_bytes = (1 + work->batch % work->count) * sizeof(record);
    atomic_fetch_sub(&from->running, 1);
    return status;
}

static inline tsr_status fixture_init(void *user, tsr_loader_worker *worker)
{
    source *from = user;
    worker->context = from;
    atomic_fetch_add(&from->inits, 1);
    return TSR_OK;
}

static inline void fixture_finish(void *user, tsr_loader_worker *worker)
{
    source *from = user;
    atomic_fetch_add(&from->wrong, worker->context != user);
    atomic_fetch_add(&from->finishes, 1);
}

/* Continues an FNV-1a hash with all members of a batch. */
static inline tsr_loader_info loader_info(const tsr_loader *loader)
{
    tsr_loader_info info = TSR_INIT(tsr_loader_info);
    ck_assert_ok(tsr_loader_get_info(loader, &info));
    return info;
}

/* The batch that failed in the last call of tsr_loader_next. */
typedef struct loader_failure {
    uint64_t batch, place;
    int64_t epoch, index;
    int worker;
    tsr_status status;
} loader_failure;

/* Returns TSR_ERR_NOT_FOUND if no batch failed. */
static inline tsr_status find_failure(const tsr_loader *loader, loader_failure *out)
{
    const tsr_loader_info info = loader_info(loader);
    if (info.failed == TSR_OK) {
        ck_assert(info.failed_worker == 0 && info.failed_index == 0 && info.failed_place == 0);
        return TSR_ERR_NOT_FOUND;
    }
    *out = (loader_failure){.batch = info.position,
                            .place = info.failed_place,
                            .epoch = info.epoch,
                            .index = info.failed_index,
                            .worker = info.failed_worker,
                            .status = info.failed};
    return TSR_OK;
}

static inline uint64_t fixture_hash(uint64_t hash, const tsr_loader_batch *batch)
{
    const void *parts[] = {&batch->batch, &batch->epoch, batch->indices, batch->mask, batch->data};
    const size_t sizes[] = {8, 8, batch->count * 8, batch->count, batch->size_bytes};
    for (int part = 0; part < 5; part++)
        for (size_t i = 0; i < sizes[part]; i++)
            hash = (hash ^ ((const uint8_t *)parts[part])[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#define FIXTURE_HASH UINT64_C(0xcbf29ce484222325)

/* Reads the rest of the epoch. Returns the hash continued with its batches. */
static inline uint64_t fixture_read(tsr_loader *loader, uint64_t hash)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got = true;
    for (;;) {
        uint64_t position = loader_info(loader).position;
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        if (!got)
            return hash;
        ck_assert(batch.batch == position && batch.epoch == loader_info(loader).epoch);
        ck_assert(loader_info(loader).position == position + 1);
        hash = fixture_hash(hash, &batch);
    }
}

/* A sampler that a test implements, of unknown length: index i of an epoch is i² + epoch. Giving
 * the index `failing` fails a number of times. With `own`, the sampler also has a state, its sum.
 * If `secret` is not 0, the state cannot be saved before the index `secret`. */
typedef struct squares {
    int64_t count, at, epoch, failing, sum, secret;
    int failures;
} squares;

static inline tsr_status squares_fill(void *self, uint64_t capacity, int64_t *indices,
                                      uint8_t *mask, uint64_t *count)
{
    squares *s = self;
    (void)mask;
    int64_t at = s->at, sum = s->sum;
    *count = 0;
    for (; *count < capacity && at < s->count; at++) {
        if (s->failures > 0 && at == s->failing) {
            s->failures--;
            return TSR_ERR_IO;
        }
        sum += at;
        indices[(*count)++] = at * at + s->epoch + sum % 2;
    }
    s->at = at;
    s->sum = sum;
    return TSR_OK;
}

static inline tsr_status squares_set_epoch(void *self, int64_t epoch)
{
    squares *s = self;
    s->epoch = epoch;
    s->at = s->sum = 0;
    return TSR_OK;
}

static inline tsr_status squares_save(void *self, size_t capacity_bytes, void *data,
                                      size_t *size_bytes)
{
    const squares *s = self;
    int64_t state[] = {s->at, s->sum};
    if (s->secret != 0 && s->at == s->secret)
        return TSR_ERR_UNSUPPORTED;
    ck_assert(capacity_bytes >= sizeof state);
    memcpy(data, state, sizeof state);
    *size_bytes = sizeof state;
    return TSR_OK;
}

static inline tsr_status squares_load(void *self, const void *data, size_t size_bytes)
{
    squares *s = self;
    int64_t state[2];
    if (size_bytes != sizeof state)
        return TSR_ERR_INVALID;
    memcpy(state, data, sizeof state);
    s->at = state[0];
    s->sum = state[1];
    return TSR_OK;
}

static inline tsr_sampler *squares_create(squares *self, bool own)
{
    tsr_sampler *out = NULL;
    tsr_sampler_ops ops = {.struct_size = sizeof ops,
                           .name = "squares",
                           .fill = squares_fill,
                           .set_epoch = squares_set_epoch,
                           .save = own ? squares_save : NULL,
                           .load = own ? squares_load : NULL};
    ck_assert_ok(tsr_sampler_create(&ops, self, &out));
    return out;
}

#endif
