/* What the files of the seed manager share. */
#ifndef TSR_SEED_SEED_H
#define TSR_SEED_SEED_H

#include <stdbool.h>

#include "tessera/seed.h"

#define TSR__SEED_MAX_EPOCH 1048575

/* One thing that is seeded. Each has memory of its own, so that its generator stays where it is. */
typedef struct tsr__seed_stream {
    tsr_seed_kind kind;
    int id;
    int64_t seed;
    tsr_rng rng;
} tsr__seed_stream;

/* Streams in the order of kind, then id. */
typedef struct tsr__seed_set {
    tsr__seed_stream **streams;
    size_t count, capacity;
} tsr__seed_set;

/* The stream, or NULL. */
tsr__seed_stream *tsr__seed_find(const tsr__seed_set *set, tsr_seed_kind kind, int id);

/* The stream, which is new when there was none; then its seed and generator are not set. On failure
 * nothing has changed. */
tsr_status tsr__seed_add(tsr__seed_set *set, tsr_seed_kind kind, int id, tsr__seed_stream **stream);

/* Moves streams that are not in the set into it. On failure nothing has changed. */
tsr_status tsr__seed_merge(tsr__seed_set *set, tsr__seed_set *fresh);

void tsr__seed_set_finish(tsr__seed_set *set);

struct tsr_seed_manager {
    tsr_seed_manager_params params; /* defaults filled in */
    int64_t epoch;
    tsr__seed_set set;
    tsr_seed_event *log;
    size_t log_count, log_capacity;
};

/* False for kind op and values that are no kind: they have no stream. */
static inline bool tsr__seed_has_stream(tsr_seed_kind kind)
{
    return kind == TSR_SEED_PROCESS || kind == TSR_SEED_DEVICE || kind == TSR_SEED_WORKER;
}

/* Whether a stream of a snapshot may have this kind and id. */
static inline bool tsr__seed_id_fits(tsr_seed_kind kind, int64_t id)
{
    return id >= 0 && id < (kind == TSR_SEED_PROCESS ? 1 : TSR_MAX_SEED);
}

/* Puts a snapshot's streams, which it takes, in the place of the manager's. */
void tsr__seed_replace(tsr_seed_manager *manager, tsr__seed_set *set, int64_t epoch);

#endif
