/* Declarations that the files of the loader share.
 *
 * A loader has a ring buffer of slots, each of which can hold one batch: batch b of an epoch uses
 * slot b % slot_count. The batches from `head` to `tail` − 1 are prefetched or being prefetched.
 * There is one slot more than batches that may be prefetched, because the caller may still use the
 * batch before `head`.
 *
 * For each batch, the caller's thread reads the sampler, writes `indices` of a free slot and queues
 * the slot. The worker that is responsible for the batch loads it. The caller's thread then takes
 * the batch. When the loader moves to another position, slots that workers are loading are only
 * marked as abandoned. The worker frees such a slot when it has finished. The caller's thread waits
 * for this only if it needs the slot. */
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
    TSR__SLOT_BUSY, /* a worker loads the slot's batch; other threads may only set `abandoned` */
    TSR__SLOT_LOADED,
    TSR__SLOT_FAILED
} tsr__slot_state;

typedef enum tsr__loader_trouble {
    TSR__TROUBLE_LOAD,  /* load_item or load_batch failed */
    TSR__TROUBLE_PLACE, /* load_batch failed, and set a place that is not below the count */
    TSR__TROUBLE_INIT,  /* worker_init failed */
    TSR__TROUBLE_SIZE,  /* load_batch set size_bytes above capacity_bytes */
    TSR__TROUBLE_INDEX  /* the sampler gave an index that is not below n */
} tsr__loader_trouble;

#define TSR__REASON_BYTES 1024

typedef struct tsr__slot {
    tsr__slot_state state; /* protected by the lock */
    atomic_bool abandoned; /* a worker is loading a batch that is no longer needed */

    uint64_t batch, count, size_bytes;
    int64_t epoch;
    int64_t *indices;
    uint8_t *mask, *data;
    void *memory;                             /* the allocated memory that contains `data` */
    uint8_t sampler[TSR_SAMPLER_STATE_BYTES]; /* the sampler's state before this batch */
    size_t sampler_bytes;                     /* 0 if the state could not be saved */

    /* The following members are valid if loading the batch failed. */
    tsr__loader_trouble trouble;
    tsr_status status;
    uint64_t place;                 /* not below `count` for TSR__TROUBLE_PLACE */
    char reason[TSR__REASON_BYTES]; /* an empty text if no reason is known */
} tsr__slot;

typedef struct tsr__worker {
    tsr_loader_worker self;
    tsr_loader *loader;
    bool ready; /* whether worker_init has succeeded; only the worker's thread uses this */
    pthread_t thread;
    pthread_cond_t wake;
} tsr__worker;

struct tsr_loader {
    tsr_loader_params params; /* its samplers are not used; `batches` is used instead */
    tsr_sampler *batches;
    uint64_t batch_key; /* the key from which the seeds of batches are derived */
    uint64_t capacity_bytes;

    tsr__worker *workers; /* if there are no worker threads, one entry for the caller's thread */
    /* made: number of workers whose condition variable exists; started: number of workers whose
     * thread runs */
    int made, started;
    bool have_lock, have_done;
    unsigned generation; /* generation of the process that started the threads: see base/fork.h */
    pthread_mutex_t lock;
    pthread_cond_t done; /* signalled when a worker has finished with a slot */
    bool stopping;       /* protected by the lock */

    /* Only the caller's thread changes these members, and only while it holds the lock. */
    tsr__slot *slots;
    uint64_t slot_count, head, tail;

    /* Only the caller's thread uses these members. */
    bool ended;  /* the epoch ends before batch number `tail` */
    bool failed; /* the batch at `head` failed, and the caller has got its error */
    /* the error if the sampler failed to give batch number `tail`, otherwise TSR_OK */
    tsr_status sampler_status;
    char sampler_reason[TSR__REASON_BYTES];
};

static inline tsr__slot *tsr__slot_of(const tsr_loader *loader, uint64_t batch)
{
    return &loader->slots[batch % loader->slot_count];
}

/* Returns the worker that is responsible for this batch: workers take batches round-robin. */
static inline tsr__worker *tsr__loader_worker_of(const tsr_loader *loader, uint64_t batch)
{
    uint64_t count = loader->params.workers == 0 ? 1 : (uint64_t)loader->params.workers;
    return &loader->workers[batch % count];
}

/* Returns the largest number of batches that may be prefetched at the same time. */
static inline uint64_t tsr__loader_ahead(const tsr_loader *loader)
{
    return loader->params.workers == 0 ? 1 : loader->slot_count - 1;
}

/* Copies a text. A text that is longer than the buffer is cut, but not within a UTF-8 character. */
void tsr__loader_copy_text(char out[TSR__REASON_BYTES], const char *text);

/* Loads the batch of one slot with the caller's functions and stores the result in the slot. The
 * slot's new state, TSR__SLOT_LOADED or TSR__SLOT_FAILED, is only returned, and the caller must set
 * it. */
tsr__slot_state tsr__loader_run(tsr__worker *worker, tsr__slot *slot);
/* Returns whether the calling thread is inside one of the caller's functions for this loader. */
bool tsr__loader_is_running(const tsr_loader *loader);
/* Calls the caller's worker_finish if worker_init has succeeded. Call this function when a worker
 * ends. */
void tsr__loader_worker_end(tsr__worker *worker);

/* Creates the lock and starts the threads of all workers. If this fails, tsr__loader_stop undoes
 * the steps that succeeded. */
tsr_status tsr__loader_start(tsr_loader *loader);
/* Fails in a process that fork() has created, because the workers' threads do not exist there, and
 * in the caller's functions. The error text starts with `what`. */
tsr_status tsr__loader_check_caller(const tsr_loader *loader, const char *what);
void tsr__loader_stop(tsr_loader *loader);
/* Adds batch number `tail` to the prefetched batches, with the state queued or failed. The other
 * members of its slot must have been set. */
void tsr__loader_append(tsr_loader *loader, tsr__slot_state state);
/* Queues the failed batch at `head` once more. */
void tsr__loader_retry(tsr_loader *loader);
/* Removes the batch at `head` from the prefetched batches, because it is given to the caller or
 * skipped. */
void tsr__loader_take(tsr_loader *loader);
/* Abandons all prefetched batches and continues with batch number `position`. */
void tsr__loader_go_to(tsr_loader *loader, uint64_t position);

/* Returns whether a worker is still loading a batch into this slot. */
bool tsr__loader_busy(tsr_loader *loader, const tsr__slot *slot);
/* Waits until this slot is loaded, failed or free. `deadline` may be NULL. Returns false if the
 * deadline passes first. */
bool tsr__loader_wait(tsr_loader *loader, const tsr__slot *slot, const struct timespec *deadline,
                      tsr__slot_state *state);
void tsr__loader_deadline(uint64_t timeout_ns, struct timespec *out);

#endif
