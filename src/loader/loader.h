/* Declarations that the files of the loader share.
 *
 * Batch b of an epoch is loaded into slot b % slot_count. Batches `head` to `tail` − 1 are in
 * progress, in order. The caller may still use the batch before `head`, so there is one slot more
 * than batches ahead. The caller's thread reads the sampler, writes `indices` of a free slot and
 * queues the slot. The worker to which the batch belongs loads it. The caller's thread then takes
 * it. When the reader moves, slots that workers are loading are only marked as abandoned. The
 * worker frees such a slot when it is done, and the caller's thread waits only if it needs the
 * slot. */
#ifndef TSR_LOADER_LOADER_H
#define TSR_LOADER_LOADER_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/checked.h"
#include "base/error.h"
#include "tessera/loader.h"

typedef enum tsr__slot_state {
    TSR__SLOT_FREE,
    TSR__SLOT_QUEUED,
    TSR__SLOT_BUSY, /* only the worker uses it, except for `abandoned` */
    TSR__SLOT_LOADED,
    TSR__SLOT_FAILED
} tsr__slot_state;

typedef enum tsr__loader_trouble {
    TSR__TROUBLE_LOAD, /* load_item or load_batch failed */
    TSR__TROUBLE_INIT, /* worker_init failed */
    TSR__TROUBLE_SIZE, /* load_batch set size_bytes above capacity_bytes */
    TSR__TROUBLE_INDEX /* the sampler gave an index that is not below n */
} tsr__loader_trouble;

#define TSR__REASON_BYTES 1024

typedef struct tsr__slot {
    tsr__slot_state state; /* guarded by the lock */
    atomic_bool abandoned; /* a worker is loading a batch that is no longer needed */

    uint64_t batch, count, size_bytes;
    int64_t epoch;
    int64_t *indices;
    uint8_t *mask, *data;
    void *memory;                             /* the allocation that holds `data` */
    uint8_t sampler[TSR_SAMPLER_STATE_BYTES]; /* the sampler's state before this batch */
    size_t sampler_bytes;                     /* 0: it could not be saved */

    /* Valid if the batch failed. */
    tsr__loader_trouble trouble;
    tsr_status status;
    uint64_t place;
    char reason[TSR__REASON_BYTES]; /* empty: none is known */
} tsr__slot;

typedef struct tsr__worker {
    tsr_loader_worker self;
    tsr_loader *loader;
    bool ready; /* worker_init has succeeded; used by the worker's thread only */
    pthread_t thread;
    pthread_cond_t wake;
} tsr__worker;

struct tsr_loader {
    tsr_loader_params params; /* its samplers are not used: see `batches` */
    tsr_sampler *batches;
    uint64_t batch_key; /* of the batches' seeds */
    uint64_t capacity_bytes;

    tsr__worker *workers; /* without worker threads, one for the caller's thread */
    int made, started;    /* workers whose condition exists; workers whose thread runs */
    bool have_lock, have_done;
    unsigned generation; /* of the process that has the threads: base/fork.h */
    pthread_mutex_t lock;
    pthread_cond_t done; /* signalled when a worker has finished a slot */
    bool stopping;       /* guarded by the lock */

    /* Only the caller's thread changes these, and only with the lock held. */
    tsr__slot *slots;
    uint64_t slot_count, head, tail;

    /* Only the caller's thread uses these. */
    bool ended;                /* the sampler has no batch number `tail` */
    bool failed;               /* the batch at `head` failed, and this has been reported */
    tsr_status sampler_status; /* of the sampler's failure to give batch number `tail` */
    char sampler_reason[TSR__REASON_BYTES];
};

static inline tsr__slot *tsr__slot_of(const tsr_loader *loader, uint64_t batch)
{
    return &loader->slots[batch % loader->slot_count];
}

/* Returns the worker to which this batch belongs. */
static inline tsr__worker *tsr__loader_worker_of(const tsr_loader *loader, uint64_t batch)
{
    uint64_t count = loader->params.workers == 0 ? 1 : (uint64_t)loader->params.workers;
    return &loader->workers[batch % count];
}

/* Returns how many batches may be in progress. */
static inline uint64_t tsr__loader_ahead(const tsr_loader *loader)
{
    return loader->params.workers == 0 ? 1 : loader->slot_count - 1;
}

/* Checks the params, and gives the largest number of indices of a batch. */
tsr_status tsr__loader_check(const tsr_loader_params *params, uint64_t *batch_max);
/* Makes the sampler of indices for params without a sampler: a random or a sequential one. */
tsr_status tsr__loader_make_sampler(const tsr_loader_params *params, tsr_sampler **out);

/* Copies a text. A longer one is cut, but not within a UTF-8 character. */
void tsr__loader_copy_text(char out[TSR__REASON_BYTES], const char *text);

/* Calls the caller's functions for one slot and records the result in it, except for the state:
 * returns TSR__SLOT_LOADED or TSR__SLOT_FAILED, which the caller must set. */
tsr__slot_state tsr__loader_run(tsr__worker *worker, tsr__slot *slot);
/* Calls worker_finish if it is due. Call it when a worker ends. */
void tsr__loader_worker_end(tsr__worker *worker);

/* Makes the lock and starts a thread for every worker. After a failure, tsr__loader_stop undoes the
 * steps that succeeded. */
tsr_status tsr__loader_start(tsr_loader *loader);
/* Fails in a child of fork(), which has no workers. `what` starts the error text. */
tsr_status tsr__loader_refuse_child(const tsr_loader *loader, const char *what);
void tsr__loader_stop(tsr_loader *loader);
/* Adds batch number `tail`, whose slot is filled in, with the state queued or failed. */
void tsr__loader_append(tsr_loader *loader, tsr__slot_state state);
/* Queues the failed batch at `head` again. */
void tsr__loader_retry(tsr_loader *loader);
/* Removes the batch at `head`, which is given to the caller or skipped. */
void tsr__loader_take(tsr_loader *loader);
/* Abandons all batches in progress and continues with batch `position`. */
void tsr__loader_go_to(tsr_loader *loader, uint64_t position);

/* Returns whether a worker is still loading a batch into this slot. */
bool tsr__loader_busy(tsr_loader *loader, const tsr__slot *slot);
/* Waits until this slot is loaded, failed or free. Returns false if the deadline, if not NULL, has
 * passed. */
bool tsr__loader_wait(tsr_loader *loader, const tsr__slot *slot, const struct timespec *deadline,
                      tsr__slot_state *state);
void tsr__loader_deadline(uint64_t timeout_ns, struct timespec *out);

#endif
