/* Loads a dataset in batches, in worker threads, ahead of the program that uses them:
 *
 *     tsr_loader *loader = NULL;
 *     tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
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
 * A sampler decides which items are in each batch, the loader provides the memory, and the caller's
 * functions fill it. Batches come in the sampler's order and hold the same bytes for any number of
 * workers. The loader allocates all memory and starts all threads when it is created, and keeps
 * them until it is destroyed.
 *
 * Only one thread at a time may use a loader; this thread also runs the sampler. The caller's
 * functions run in the workers' threads, several at the same time, or without workers in the
 * caller's thread. They must not call the loader: reading and changing the position fail there with
 * TSR_ERR_INVALID. A child after fork() has no workers: reading and changing the position fail
 * there with TSR_ERR_INVALID, too, and destroying only frees the child's memory. A loader without
 * workers can be used in both processes independently. */
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

/* Arguments of the caller's functions ---------------------------------------------------------- */

/* One worker. It is the same object in all calls from this worker. */
typedef struct tsr_loader_worker {
    int id; /* 0 … workers − 1; without workers, the caller's thread has id 0 */
    /* The seed of kind worker, this id, and the params' seed and node, by the params' strategy. The
     * same in all epochs. */
    int64_t seed;
    void *context;      /* a pointer of the caller, which worker_init may set */
    const char *reason; /* why worker_init fails, which may set it; copied */
} tsr_loader_worker;

/* One batch to be loaded. */
typedef struct tsr_loader_work {
    uint64_t batch; /* the number of the batch in the epoch */
    int64_t epoch;
    const int64_t *indices; /* [count], at least one */
    const uint8_t *mask;    /* [count]: 0 for an index that is only padding (TSR_TAIL_PAD_MASK) */
    uint64_t count;
    void *data; /* [capacity_bytes], aligned to 64 bytes; contents undefined. NULL for 0 bytes */
    uint64_t capacity_bytes;

    /* Depends only on the params' seed and node, the epoch and the batch, so random numbers drawn
     * from it are the same for any number of workers. It is the first two words, low one first, of
     * Philox4x32-10 with the counter (batch, epoch), each with its low word first, under the key
     * that the hashed strategy gives for kind worker, that node, and op 1. */
    int64_t seed;
    /* Batch b belongs to worker b % workers, so random numbers drawn from a worker's own seed are
     * the same in every run with the same number of workers. */
    const tsr_loader_worker *worker;

    /* The function may set the following. */
    uint64_t size_bytes; /* bytes used in `data`; initially count · item_bytes + batch_bytes */
    /* The position in `indices` of the index being read, below `count`. If the function fails,
     * errors name this index. */
    uint64_t place;
    const char *reason; /* why it fails, in a few words; copied. NULL: the text of tsr_last_error
                           if a function of the library failed in this call */

    const void *internal;
} tsr_loader_work;

/* Returns true if the batch is no longer needed. A function that takes long may check it now and
 * then; if it is true, the function may return any status at once. */
TSR_API bool tsr_loader_stopping(const tsr_loader_work *work);

/* Creating ------------------------------------------------------------------------------------- */

typedef struct tsr_loader_params {
    size_t struct_size;
    /* What to read: a sampler, or n alone. The loader keeps a reference of its own to the sampler.
     * With a sampler, n is the number of items, and an index that is not below n is an error; 0
     * allows any index. */
    tsr_sampler *batch_sampler; /* a sampler of batches */
    tsr_sampler *sampler;       /* a sampler of single indices */
    uint64_t n;                 /* items of the dataset; without a sampler, all of them are read */

    int64_t batch_size; /* 0: 1 */
    bool drop_last;     /* leave out the last batch if it is shorter */
    bool shuffle;
    /* The order of the shuffle. TSR_ORDER_TORCH is that of PyTorch's DataLoader in a single
     * process. */
    tsr_order order;
    const tsr_torch_options *torch; /* data_loader need not be set */

    /* Set either load_item or load_batch. A function that fails returns a status other than TSR_OK.
     * load_item is called for each index, and of `work` it may only set `reason`. */
    tsr_status (*load_item)(void *user, tsr_loader_work *work, int64_t index, void *item);
    tsr_status (*load_batch)(void *user, tsr_loader_work *work);
    void *user;
    uint64_t item_bytes;  /* memory for each index of a batch. load_item fills one such range, its
                             argument `item`, which is NULL if item_bytes is 0; the ranges follow
                             each other directly */
    uint64_t batch_bytes; /* additional memory for each batch; not with load_item */

    /* Each worker calls worker_init, if not NULL, before its first batch; if it fails, so does the
     * batch. A worker calls worker_finish, if not NULL, when it ends, but only if worker_init has
     * succeeded, or if worker_init is NULL and the worker has begun a batch. */
    tsr_status (*worker_init)(void *user, tsr_loader_worker *worker);
    void (*worker_finish)(void *user, tsr_loader_worker *worker);

    int workers;  /* threads; 0: the caller's thread loads each batch in tsr_loader_next */
    int prefetch; /* batches to load ahead, per worker; 0: 2 */
    /* The time that tsr_loader_next waits for a batch; 0: without limit. */
    uint64_t timeout_ns;

    int64_t seed;                    /* the base seed of the shuffle, the workers and the batches */
    tsr_seed_strategy seed_strategy; /* how the workers' seeds are derived */
    /* The number of this process in the job, 0 … 16383. Processes with different numbers draw
     * different random numbers. */
    int node;
} tsr_loader_params;
#define tsr_loader_params(...)                                                                     \
    (&(tsr_loader_params){.struct_size = sizeof(tsr_loader_params), __VA_ARGS__})

#define TSR_MAX_LOADER_WORKERS 1024
#define TSR_MAX_LOADER_PREFETCH 65536

/* Creates a loader. It allocates memory for workers · prefetch + 1 batches (one without workers):
 * for each batch batch_bytes, and item_bytes + 9 for each index that a batch may have (8 bytes for
 * the index, 1 for the mask). The workers' stacks come in addition.
 *
 * Errors: TSR_ERR_INVALID for combinations that PyTorch's DataLoader refuses too:
 *
 *     sampler          with shuffle
 *     batch_sampler    with batch_size, shuffle, sampler or drop_last
 *     no workers       with prefetch or timeout_ns
 *
 * and if there is nothing to read; for a sampler of batches as `sampler`, or of indices as
 * `batch_sampler`; for none or both of load_item and load_batch; for numbers out of range; and the
 * errors of the shuffle's sampler and of the seeds. TSR_ERR_OVERFLOW if a batch does not fit the
 * address space; TSR_ERR_NO_MEMORY, also if a thread cannot be started. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_create(const tsr_loader_params *params,
                                                   tsr_loader **out);

/* Destroys a loader, possibly in the middle of an epoch. Batches that no worker has begun are not
 * loaded. Blocks until the workers have returned from the batches that they are loading, for which
 * tsr_loader_stopping is true. NULL is allowed; *loader becomes NULL. */
TSR_API void tsr_loader_destroy(tsr_loader **loader);

/* Reading -------------------------------------------------------------------------------------- */

/* A loaded batch. The memory belongs to the loader and is valid until the next call of
 * tsr_loader_next, set_epoch, seek, resume or destroy. */
typedef struct tsr_loader_batch {
    size_t struct_size;
    uint64_t batch; /* the number of the batch in the epoch */
    int64_t epoch;
    const int64_t *indices; /* [count] */
    const uint8_t *mask;    /* [count] */
    uint64_t count;
    const void *data;
    uint64_t size_bytes;
} tsr_loader_batch;

/* Gives the next batch. Blocks until it is loaded, or until timeout_ns has passed. At the end of
 * the epoch *got is false and *batch is not written. The workers begin to load an epoch in its
 * first call.
 *
 * Errors: the status of the caller's function, with a text such as "loader: batch 3 of epoch 0:
 * index 57: no such file"; TSR_ERR_INVALID for an index that is not below n; TSR_ERR_TIMEOUT; the
 * errors of the sampler. A batch that fails is reported when its turn comes, after all batches
 * before it. The position does not change then: the next call tries the same batch again, unless
 * tsr_loader_skip has skipped it. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_next(tsr_loader *loader, tsr_loader_batch *batch,
                                                 bool *got);

/* Where a loader is, and why the last call of tsr_loader_next failed. */
typedef struct tsr_loader_info {
    size_t struct_size;
    uint64_t length;   /* batches in this epoch, or TSR_LENGTH_UNKNOWN */
    uint64_t position; /* batches given or skipped so far in it: the number of the next batch */
    int64_t epoch;
    /* The status with which loading batch `position` failed in the last call of tsr_loader_next;
     * TSR_OK if no batch failed, and then the fields below are 0. */
    tsr_status failed;
    /* -1 for an index that is not below n, which no worker reads. */
    int failed_worker;
    /* The index that was being read, and its position in the batch. If load_batch set a place that
     * is not below the batch's count, the index is -1, and the place is what the function set. If
     * load_batch used too many bytes, this is the first index. */
    int64_t failed_index;
    uint64_t failed_place;
} tsr_loader_info;
TSR_API TSR_NODISCARD tsr_status tsr_loader_get_info(const tsr_loader *loader,
                                                     tsr_loader_info *info);
/* Skips the batch that failed. Errors: TSR_ERR_NOT_FOUND if the last call of tsr_loader_next did
 * not fail, or failed for another reason. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_skip(tsr_loader *loader);

/* tsr_loader_set_epoch and tsr_loader_seek do the same as tsr_sampler_set_epoch and
 * tsr_sampler_seek, with the same errors. Batches loaded ahead are discarded. The calls do not wait
 * for batches that are being loaded. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_set_epoch(tsr_loader *loader, int64_t epoch);
TSR_API TSR_NODISCARD tsr_status tsr_loader_seek(tsr_loader *loader, uint64_t position);

/* Saves the position of the reading program, regardless of what has been loaded ahead. The saved
 * state is that of the sampler of batches before the next batch, as tsr_sampler_save writes it.
 * Batches that tsr_loader_next has given count as used. Errors: those of tsr_sampler_save. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_save(const tsr_loader *loader, size_t capacity_bytes,
                                                 void *data, size_t *size_bytes);
/* Continues at a saved position, in a loader with the same parameters but any number of workers. If
 * it reads from a distributed sampler, the number of ranks may differ too (see tsr_sampler_resume).
 * Errors: those of tsr_sampler_resume. After a failure nothing has changed. */
TSR_API TSR_NODISCARD tsr_status tsr_loader_resume(tsr_loader *loader, const void *data,
                                                   size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
