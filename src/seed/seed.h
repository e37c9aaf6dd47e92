/* Declarations that the files of the seed manager share. */
#ifndef TSR_SEED_SEED_H
#define TSR_SEED_SEED_H

#include <stdbool.h>

#include "tessera/seed.h"

#define TSR__SEED_MAX_EPOCH 1048575

/* A stream of random numbers, for the process, for a device or for a worker. Each stream is a
 * separate allocation, so that pointers to its generator stay valid when streams are added. */
typedef struct tsr__seed_stream {
    tsr_seed_kind kind;
    int id;
    int64_t seed;
    tsr_rng rng;
} tsr__seed_stream;

/* A set of streams, sorted by kind and then by id. */
typedef struct tsr__seed_set {
    tsr__seed_stream **streams;
    size_t count, capacity;
} tsr__seed_set;

/* Returns the stream, or NULL if the set does not contain it. */
tsr__seed_stream *tsr__seed_find(const tsr__seed_set *set, tsr_seed_kind kind, int id);

/* Gives the stream. If the set does not contain it, the function first adds a stream whose seed and
 * generator are not set. On failure the set does not change. */
tsr_status tsr__seed_add(tsr__seed_set *set, tsr_seed_kind kind, int id, tsr__seed_stream **stream);

/* Moves the streams of `fresh` into `set`, which must not contain any of them. On failure neither
 * set changes. */
tsr_status tsr__seed_merge(tsr__seed_set *set, tsr__seed_set *fresh);

void tsr__seed_set_finish(tsr__seed_set *set);

struct tsr_seed_manager {
    tsr_seed_manager_params params; /* the caller's, with defaults instead of zeros */
    int64_t epoch;
    tsr__seed_set set;
    tsr_seed_event *log;
    size_t log_count, log_capacity;
};

/* Returns whether there can be streams of this kind, which is false for the kind op and for unknown
 * kinds. */
static inline bool tsr__seed_has_stream(tsr_seed_kind kind)
{
    return kind == TSR_SEED_PROCESS || kind == TSR_SEED_DEVICE || kind == TSR_SEED_WORKER;
}

/* Returns whether a stream of this kind may have this id. There must be streams of this kind. */
static inline bool tsr__seed_id_fits(tsr_seed_kind kind, int64_t id)
{
    return id >= 0 && id < (kind == TSR_SEED_PROCESS ? 1 : TSR_MAX_SEED);
}

/* Replaces the manager's streams by those of a snapshot, and sets the epoch. The manager then owns
 * the streams, and `set` is empty. */
void tsr__seed_replace(tsr_seed_manager *manager, tsr__seed_set *set, int64_t epoch);

/* tsr_seed_save and tsr_seed_load in one format, for pointers that are not NULL, except for `data`
 * and `text` of saving. */
tsr_status tsr__seed_save_bytes(const tsr_seed_manager *manager, size_t capacity_bytes, void *data,
                                size_t *size_bytes);
tsr_status tsr__seed_save_json(const tsr_seed_manager *manager, size_t capacity_bytes, char *text,
                               size_t *size_bytes);
tsr_status tsr__seed_load_bytes(tsr_seed_manager *manager, const void *data, size_t size_bytes);
tsr_status tsr__seed_load_json(tsr_seed_manager *manager, const char *text, size_t size_bytes);

#endif
