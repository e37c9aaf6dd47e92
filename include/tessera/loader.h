/* Reads a dataset in batches, ahead of who uses them, in threads of its own:
 *
 *     tsr_loader *loader = NULL;
 *     tsr_loader_create(
 *         tsr_loader_params(.n = 50000, .batch_size = 32, .shuffle = true, .seed = 42,
 *                           .workers = 4, .item_bytes = 3072, .load_item = decode,
 *                           .user = dataset), &loader);
 *     for (int64_t epoch = 0; epoch < epochs; epoch++) {
 *         tsr_loader_set_epoch(loader, epoch);
 *         while (tsr_loader_next(loader, &batch, &got) == TSR_OK && got)
 *             train(batch.data, batch.indices, batch.count);
 *     }
 *     tsr_loader_destroy(&loader);
 *
 * What a sampler says decides what is in each batch; the loader gives memory for it; and functions
 * of the caller's fill that memory. Batches come in the sampler's order, and hold the same bytes,
 * for any number of workers. All memory and threads are taken when the loader is created, and live
 * until it is destroyed.
 *
 * A loader belongs to one thread at a time, which also runs the sampler. The functions of the
 * caller's run in the workers' threads, several at once; without workers, in the caller's. They
 * must not call the loader. A child after fork() has no workers: reading and going elsewhere are
 * TSR_ERR_INVALID there, and destroying frees the child's memory alone. A loader without workers
 * goes on in both, each for itself. */
#ifndef TESSERA_LOADER_H
#define TESSERA_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"
#include "tessera/sampler.h"
#include "tessera/seed.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_loader tsr_loader;

/* What the caller's functions see -------------------------------------------------------------- */

/* One worker, for as long as it lives. */
typedef struct tsr_loader_worker {
    int id; /* 0 … workers − 1; without workers, the caller's thread is number 0 */
    /* tsr_seed_documented or tsr_seed_hashed of kind worker, this id, and the params' seed and
     * node; in all epochs the same. */
    int64_t seed;
    void *context;      /* what worker_init sets is the worker's */
    const char *reason; /* worker_init may set it before it fails; copied */
} tsr_loader_worker;

/* One batch to be loaded. */
typedef struct tsr_loader_work {
    uint64_t batch; /* its number in the epoch */
    int64_t epoch;
    const int64_t *indices; /* [count], at least one */
    const uint8_t *mask;    /* [count]: 0 for an index that only fills up (TSR_TAIL_PAD_MASK) */
    uint64_t count;
    void *data; /* aligned to 64 bytes; holds anything at first */
    uint64_t capacity_bytes;

    /* Follows from the params' seed and node, epoch and batch alone: what is drawn from it is the
     * same for any number of workers. The first two words, low one first, of Philox4x32-10 with
     * counter (batch, epoch), each low word first, under the key that tsr_seed_hashed gives for
     * kind worker, that node, and op 1. */
    int64_t seed;
    /* Batch b belongs to worker b % workers, so that also what a worker draws from its own seed is
     * the same in every run with as many workers. */
    const tsr_loader_worker *worker;

    /* What the function sets. */
    uint64_t size_bytes; /* used of data; before the call, count · item_bytes + batch_bytes */
    uint64_t place;      /* in `indices`, of the one being read: a failure names that index */
    const char *reason;  /* before it fails, in a few words why; copied. NULL: what tsr_last_error
                            says, where a function of the library failed in here */

    const void *internal;
} tsr_loader_work;

/* Whether nobody waits for this batch any more: a function that takes long may ask now and then,
 * and return anything. */
TSR_API bool tsr_loader_stopping(const tsr_loader_work *work);

/* Creating ------------------------------------------------------------------------------------- */

typedef struct tsr_loader_params {
    /* What to read: one of the first two, or n. With a sampler, n is how many items there are:
     * another index is an error. 0: any index is fine. */
    tsr_sampler *batch_sampler; /* of batches */
    tsr_sampler *sampler;       /* of single indices */
    uint64_t n;                 /* the items of a dataset: in order, or shuffled */

    int64_t batch_size; /* 0: 1 */
    bool drop_last;     /* leave out a last batch that is short */
    bool shuffle;
    tsr_order order; /* of the shuffle. torch: what PyTorch's DataLoader gives without ranks */
    tsr_torch_options torch; /* data_loader need not be set */

    /* One of the two. What fails returns a status other than TSR_OK. The first is called for each
     * index, and may only set `reason`. */
    tsr_status (*load_item)(void *user, tsr_loader_work *work, int64_t index, void *item);
    tsr_status (*load_batch)(void *user, tsr_loader_work *work);
    void *user;
    uint64_t item_bytes;  /* of memory for each index that a batch may have; load_item is given its
                             share, one behind the other */
    uint64_t batch_bytes; /* and for each batch besides; not with load_item */

    /* Called by each worker before its first batch, if not NULL; where it fails, so does the batch.
     * And when it ends, where worker_init had succeeded or is NULL and a batch was begun. */
    tsr_status (*worker_init)(void *user, tsr_loader_worker *worker);
    void (*worker_finish)(void *user, tsr_loader_worker *worker);

    int workers;  /* threads; 0: the caller's does all the work when it asks for a batch */
    int prefetch; /* batches ahead for each worker; 0: 2 */
    /* How long tsr_loader_next waits for a batch; 0: as long as it takes. */
    uint64_t timeout_ns;

    int64_t seed;                    /* of the shuffle, the workers and the batches */
    tsr_seed_strategy seed_strategy; /* of the workers' seeds */
    int node; /* which process of the job this is, so that no two draw the same: 0 … 16383 */
} tsr_loader_params;
#define tsr_loader_params(...) (&(tsr_loader_params){__VA_ARGS__})

#define TSR_MAX_LOADER_WORKERS 1024
#define TSR_MAX_LOADER_PREFETCH 65536

/* Takes, besides the workers' stacks, workers · prefetch + 1 batches of memory (one without
 * workers): batch_bytes, and item_bytes + 9 for each index that a batch may have.
 *
 * Errors: TSR_ERR_INVALID for what excludes each other, as in PyTorch's DataLoader:
 *
 *     sampler          with shuffle
 *     batch_sampler    with batch_size, shuffle, sampler or drop_last
 *     no workers       with prefetch or timeout_ns
 *
 * and for nothing to read from; a sampler of batches as `sampler`, or of indices as
 * `batch_sampler`; no function or both; numbers out of range; those of the shuffle's sampler and
 * of the seeds. TSR_ERR_OVERFLOW for more memory than can be numbered; TSR_ERR_NO_MEMORY, also
 * where a thread cannot be started. On failure the samplers remain the caller's. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_create(const tsr_loader_params *params,
                                                   tsr_loader **out);

/* Also in the middle of an epoch. Batches that nobody has begun are left; those being loaded are
 * waited for (tsr_loader_stopping is true for them). NULL is fine; *loader becomes NULL. */
TSR_API void tsr_loader_destroy(tsr_loader **loader);

/* Reading -------------------------------------------------------------------------------------- */

/* A batch as its function left it. The pointers are the loader's, and valid until the next call of
 * tsr_loader_next, set_epoch, seek, resume or destroy. */
typedef struct tsr_loader_batch {
    uint64_t batch; /* its number in the epoch */
    int64_t epoch;
    const int64_t *indices; /* [count] */
    const uint8_t *mask;    /* [count] */
    uint64_t count;
    const void *data;
    uint64_t size_bytes;
} tsr_loader_batch;

/* The next batch. At the end of the epoch *got is false and *batch is not written. The first call
 * of an epoch sets the workers to work.
 *
 * Errors: what a function of the caller's returned, "loader: batch 3 of epoch 0: index 57: no such
 * file"; TSR_ERR_INVALID for an index that is not below n; TSR_ERR_TIMEOUT; those of the sampler.
 * They come where the batch would have come, after all before it. The position stays, so the next
 * call tries the same batch again, unless it is skipped. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_next(tsr_loader *loader, tsr_loader_batch *batch,
                                                 bool *got);

/* What the last call of tsr_loader_next failed with, where that was a batch. */
typedef struct tsr_loader_failure {
    uint64_t batch;
    int64_t epoch;
    int64_t index;  /* the one that was being read */
    uint64_t place; /* of that in the batch */
    int worker;     /* -1: an index that is not below n */
    tsr_status status;
} tsr_loader_failure;
/* Errors: TSR_ERR_NOT_FOUND where that did not fail, or for another reason. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_failed(const tsr_loader *loader,
                                                   tsr_loader_failure *out);
/* Leaves out the batch that tsr_loader_failed tells of. Errors: as that. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_skip(tsr_loader *loader);

/* Batches in this epoch, or TSR_LENGTH_UNKNOWN. */
TSR_API uint64_t tsr_loader_length(const tsr_loader *loader);
/* Batches given or skipped so far in this epoch, which is the number of the next. */
TSR_API uint64_t tsr_loader_position(const tsr_loader *loader);
TSR_API int64_t tsr_loader_epoch(const tsr_loader *loader);

/* As for the sampler (tsr_sampler_set_epoch, tsr_sampler_seek), with the same errors; what has been
 * loaded ahead is thrown away, at once. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_set_epoch(tsr_loader *loader, int64_t epoch);
TSR_API TSR_NODISCARD tsr_status tsr_loader_seek(tsr_loader *loader, uint64_t position);

/* Where the reader stands, whatever has been loaded ahead: the state of the sampler of batches, as
 * it was before the next batch (tsr_sampler_save). Batches given count as used. Errors: those of
 * the sampler. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_save(const tsr_loader *loader, size_t capacity_bytes,
                                                 void *data, size_t *size_bytes);
/* Continues there, in a loader with the same parameters but any number of workers; where it reads
 * from a distributed sampler, also with another number of ranks (tsr_sampler_resume). Errors: as
 * tsr_sampler_resume. After a failure nothing has changed. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_resume(tsr_loader *loader, const void *data,
                                                   size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
