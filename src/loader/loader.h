/* What the files of the loader share.
 *
 * Batch b of an epoch is loaded into slot b % slot_count. Those from `head` to `tail` are on their
 * way, in order; the one before `head` may be in the caller's hands, and so there is one slot more
 * than batches ahead. The caller's thread draws from the sampler, fills in `indices` of a slot that
 * is free and queues it; the worker that the batch belongs to loads it; the caller's thread takes
 * it. When the reader goes elsewhere, slots that a worker is busy with are only marked: the worker
 * frees them, and nobody waits before such a slot is needed. */
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
    TSR__SLOT_BUSY, /* the worker's alone, but for `abandoned` */
    TSR__SLOT_LOADED,
    TSR__SLOT_FAILED
} tsr__slot_state;

typedef enum tsr__loader_trouble {
    TSR__TROUBLE_LOAD, /* what load_item or load_batch returned */
    TSR__TROUBLE_INIT, /* what worker_init returned */
    TSR__TROUBLE_SIZE, /* load_batch used more memory than there is */
    TSR__TROUBLE_INDEX /* the sampler gave an index that is not below n */
} tsr__loader_trouble;

#define TSR__REASON_BYTES 1024

typedef struct tsr__slot {
    tsr__slot_state state; /* under the lock */
    atomic_bool abandoned; /* busy with a batch that nobody waits for */

    uint64_t batch, count, size_bytes;
    int64_t epoch;
    int64_t *indices;
    uint8_t *mask, *data;
    void *memory;                             /* that `data` is in */
    uint8_t sampler[TSR_SAMPLER_STATE_BYTES]; /* the sampler before it gave this batch */
    size_t sampler_bytes;                     /* 0: it could not be saved */

    /* Where it failed. */
    tsr__loader_trouble trouble;
    tsr_status status;
    uint64_t place;
    char reason[TSR__REASON_BYTES]; /* empty: none is known */
} tsr__slot;

typedef struct tsr__worker {
    tsr_loader_worker self;
    tsr_loader *loader;
    bool ready; /* worker_init has succeeded; only its own thread asks */
    pthread_t thread;
    pthread_cond_t wake;
} tsr__worker;

struct tsr_loader {
    tsr_loader_params params; /* the samplers in it are not used */
    tsr_sampler *batches;
    uint64_t batch_key; /* of the batches' seeds */
    uint64_t capacity_bytes;

    tsr__worker *workers; /* without threads, one for the caller's */
    int made, started;    /* workers whose condition exists, and whose thread runs */
    bool have_lock, have_done;
    unsigned generation; /* of the process whose threads they are: base/fork.h */
    pthread_mutex_t lock;
    pthread_cond_t done; /* a worker is through with a slot */
    bool stopping;       /* under the lock */

    /* Only the caller's thread changes these, and not without the lock. */
    tsr__slot *slots;
    uint64_t slot_count, head, tail;

    /* Of the caller's thread alone. */
    bool ended;                /* the sampler has no batch number `tail` */
    bool failed;               /* the batch at `head` failed, and the caller has been told */
    tsr_status sampler_status; /* with which it failed to give batch number `tail` */
    char sampler_reason[TSR__REASON_BYTES];
};

static inline tsr__slot *tsr__slot_of(const tsr_loader *loader, uint64_t batch)
{
    return &loader->slots[batch % loader->slot_count];
}

/* Whose batch this is. */
static inline tsr__worker *tsr__loader_worker_of(const tsr_loader *loader, uint64_t batch)
{
    uint64_t count = loader->params.workers == 0 ? 1 : (uint64_t)loader->params.workers;
    return &loader->workers[batch % count];
}

/* How many batches may be on their way. */
static inline uint64_t tsr__loader_ahead(const tsr_loader *loader)
{
    return loader->params.workers == 0 ? 1 : loader->slot_count - 1;
}

/* What excludes each other, and what is out of range; gives the most indices of a batch. */
tsr_status tsr__loader_check(const tsr_loader_params *params, uint64_t *batch_max);
/* The shuffle's sampler, or one in order, where the params name none. */
tsr_status tsr__loader_make_sampler(const tsr_loader_params *params, tsr_sampler **out);

/* Cuts in whole characters. */
void tsr__loader_copy_text(char out[TSR__REASON_BYTES], const char *text);

/* Calls the caller's functions for one slot, and notes in it how that went; the state is left to
 * be set: TSR__SLOT_LOADED or TSR__SLOT_FAILED is returned. */
tsr__slot_state tsr__loader_run(tsr__worker *worker, tsr__slot *slot);
/* At the end of a worker. */
void tsr__loader_worker_end(tsr__worker *worker);

/* The lock, and a thread for every worker; what was begun is ended by tsr__loader_stop. */
tsr_status tsr__loader_start(tsr_loader *loader);
/* An error in a child of fork(), which has no workers, on behalf of `what`. */
tsr_status tsr__loader_refuse_child(const tsr_loader *loader, const char *what);
void tsr__loader_stop(tsr_loader *loader);
/* Batch number `tail` is on its way: in its slot, queued or failed. */
void tsr__loader_append(tsr_loader *loader, tsr__slot_state state);
/* The batch at `head`, which failed, is queued again; is taken, or left out. */
void tsr__loader_retry(tsr_loader *loader);
void tsr__loader_take(tsr_loader *loader);
/* Leaves all batches on their way, and goes on with this one. */
void tsr__loader_go_to(tsr_loader *loader, uint64_t position);

/* Whether a worker is still busy with a batch that was in this slot. */
bool tsr__loader_busy(tsr_loader *loader, const tsr__slot *slot);
/* Waits until this slot is loaded, failed or free. False when the deadline, if not NULL, has
 * passed.
 */
bool tsr__loader_wait(tsr_loader *loader, const tsr__slot *slot, const struct timespec *deadline,
                      tsr__slot_state *state);
void tsr__loader_deadline(uint64_t timeout_ns, struct timespec *out);

#endif
