/* Declarations that the files of the seed manager share. */
#ifndef TSR_SEED_SEED_H
#define TSR_SEED_SEED_H

#include <stdbool.h>

#include "tessera/seed.h"

#define TSR__SEED_MAX_EPOCH 1048575

/* The process, a device or a worker that is seeded. Each is a separate allocation, so that pointers
 * to its generator stay valid. */
typedef struct tsr__seed_stream {
    tsr_seed_kind kind;
    int id;
    int64_t seed;
    tsr_rng rng;
} tsr__seed_stream;

/* Streams, sorted by kind, then id. */
typedef struct tsr__seed_set {
    tsr__seed_stream **streams;
    size_t count, capacity;
} tsr__seed_set;

/* Returns the stream, or NULL. */
tsr__seed_stream *tsr__seed_find(const tsr__seed_set *set, tsr_seed_kind kind, int id);

/* Gives the stream, and adds it first if there is none. The seed and generator of a new stream are
 * not set. On failure nothing has changed. */
tsr_status tsr__seed_add(tsr__seed_set *set, tsr_seed_kind kind, int id, tsr__seed_stream **stream);

/* Moves the streams of `fresh`, none of which may be in the set, into the set. On failure nothing
 * has changed. */
tsr_status tsr__seed_merge(tsr__seed_set *set, tsr__seed_set *fresh);

void tsr__seed_set_finish(tsr__seed_set *set);

struct tsr_seed_manager {
    tsr_seed_manager_params params; /* defaults filled in */
    int64_t epoch;
    tsr__seed_set set;
    tsr_seed_event *log;
    size_t log_count, log_capacity;
};

/* Returns whether streams of this kind exist. They do not for kind op and unknown kinds. */
static inline bool tsr__seed_has_stream(tsr_seed_kind kind)
{
    return kind == TSR_SEED_PROCESS || kind == TSR_SEED_DEVICE || kind == TSR_SEED_WORKER;
}

/* Returns whether a stream of this kind, which must have streams, may have this id. */
static inline bool tsr__seed_id_fits(tsr_seed_kind kind, int64_t id)
{
    return id >= 0 && id < (kind == TSR_SEED_PROCESS ? 1 : TSR_MAX_SEED);
}

/* Replaces the manager's streams by those of a snapshot, and sets the epoch. It takes the streams:
 * `set` is empty afterwards. */
void tsr__seed_replace(tsr_seed_manager *manager, tsr__seed_set *set, int64_t epoch);

#endif
