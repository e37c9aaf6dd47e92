/* In what order a dataset's items are read, and by which process. One protocol for all samplers:
 *
 *     tsr_sampler *sampler = NULL;
 *     tsr_sampler_create_distributed(
 *         tsr_sampler_distributed_params(.n = 1000, .ranks = 8, .rank = 3, .seed = 42), &sampler);
 *     for (int64_t epoch = 0; epoch < epochs; epoch++) {
 *         tsr_sampler_set_epoch(sampler, epoch);
 *         do
 *             tsr_sampler_fill(sampler, 32, indices, NULL, &count);   // the next 32 indices
 *         while (count > 0);
 *     }
 *     tsr_sampler_destroy(&sampler);
 *
 * A sampler gives items: single indices, or batches of them. Positions and lengths count items. One
 * epoch is one pass over them; with the same parameters, epoch e is the same on every machine and
 * in every process, whatever was read before.
 *
 * A sampler belongs to one thread at a time. Different ones may be used in different threads. */
#ifndef TESSERA_SAMPLER_H
#define TESSERA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"
#include "tessera/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_sampler tsr_sampler;

/* Any sampler ---------------------------------------------------------------------------------- */

/* Gives up the caller's reference. A sampler or loader that was created with this sampler keeps a
 * reference of its own, so the handles may be destroyed in any order. NULL is fine; *sampler becomes
 * NULL. */
TSR_API void tsr_sampler_destroy(tsr_sampler **sampler);

/* "sequential", "random", "subset", "weighted", "batch", "distributed", "length-sorted",
 * "stratified", "curriculum", or the name that its writer gave it. Lives as long as the sampler. */
TSR_API const char *tsr_sampler_name(const tsr_sampler *sampler);

/* Items in this epoch, also those given already; TSR_LENGTH_UNKNOWN where nobody knows. */
#define TSR_LENGTH_UNKNOWN UINT64_MAX
TSR_API uint64_t tsr_sampler_length(const tsr_sampler *sampler);

/* 0 for a sampler of single indices; for one of batches the most indices that a batch may have,
 * which is not more than there are items, where that is known for all epochs. */
TSR_API uint64_t tsr_sampler_batch_max(const tsr_sampler *sampler);

/* Items given so far in this epoch, which is the number of the item that comes next. */
TSR_API uint64_t tsr_sampler_position(const tsr_sampler *sampler);
TSR_API int64_t tsr_sampler_epoch(const tsr_sampler *sampler);

/* The next single index. At the end of the epoch *got is false and *index is not written. Errors:
 * TSR_ERR_INVALID for a sampler of batches; those of a sampler of the caller's; TSR_ERR_NO_MEMORY
 * where an order is made. After a failure the position is where it was. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_next(tsr_sampler *sampler, int64_t *index, bool *got);

/* The next batch, or from a sampler of single indices the next index as a batch of one, into the
 * caller's `indices` with room for `capacity`. *count 0: the end of the epoch. Where `mask` is not
 * NULL, mask[i] is 1 for an index that counts and 0 for one that only fills up (TSR_TAIL_PAD_MASK).
 * Errors: TSR_ERR_INVALID when `capacity` is below the most that a batch may have, and below 1; and
 * as above. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_next_batch(tsr_sampler *sampler, uint64_t capacity,
                                                        int64_t *indices, uint8_t *mask,
                                                        uint64_t *count);

/* As many items as there is room for, one after another: `capacity` indices, fewer only at the end
 * of the epoch; from a sampler of batches whole batches, until there is not enough room for the
 * largest. *count is the number of indices written, 0 only at the end of the epoch (or for capacity
 * 0). `mask` as above. Errors as tsr_sampler_next_batch; after a failure the position is where it
 * was. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_fill(tsr_sampler *sampler, uint64_t capacity,
                                                  int64_t *indices, uint8_t *mask, uint64_t *count);

/* Makes item `position` the next one. At once for all samplers here in the order feistel; reference
 * orders may have to draw what lies between. A sampler of the caller's without `seek` starts again
 * and leaves out what comes before. Errors: TSR_ERR_INVALID for a position beyond the length;
 * otherwise as tsr_sampler_next. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_seek(tsr_sampler *sampler, uint64_t position);

/* Back to the start of this epoch, which then gives the same items again; in full, also where it
 * was resumed with another number of ranks. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_reset(tsr_sampler *sampler);

/* To the start of another epoch. A sampler starts in epoch 0. Errors: TSR_ERR_INVALID for an epoch
 * that the order does not have (negative ones only exist for a distributed sampler);
 * TSR_ERR_OVERFLOW where a reference's seed + epoch or number of draws would be out of range;
 * otherwise as tsr_sampler_next. After a failure nothing has changed. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_set_epoch(tsr_sampler *sampler, int64_t epoch);

/* Batch number `index` when this epoch is cut into batches of `batch_size`, of which the last may
 * be short; the position stays. Errors: TSR_ERR_INVALID for a batch size that is not positive or
 * above `capacity`, a batch beyond the last, and a sampler of batches (which can seek instead);
 * otherwise as tsr_sampler_next. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_get_batch(tsr_sampler *sampler, uint64_t index,
                                                       int64_t batch_size, uint64_t capacity,
                                                       int64_t *indices, uint8_t *mask,
                                                       uint64_t *count);
/* How many those are, without a short last one if `drop_last`. Errors: TSR_ERR_INVALID for a batch
 * size that is not positive and where the length is unknown. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_batch_count(const tsr_sampler *sampler,
                                                         int64_t batch_size, bool drop_last,
                                                         uint64_t *count);

/* Saving and resuming -------------------------------------------------------------------------- */

/* Where a sampler stands, also the ones it wraps: at most 64 bytes, the same on every machine, with
 * a header, version, checksum, and a fingerprint of all parameters (but not of rank and ranks).
 * Written to the caller's `data`; *size_bytes is what was used. Errors: TSR_ERR_INVALID when
 * `capacity_bytes` is too small; those of a sampler of the caller's. */
#define TSR_SAMPLER_STATE_BYTES 256
TSR_API TSR_NODISCARD tsr_status tsr_sampler_save(const tsr_sampler *sampler, size_t capacity_bytes,
                                                  void *data, size_t *size_bytes);

/* The state as it is when `position` items have been given, for a reader that is ahead of what has
 * been used. Errors: also TSR_ERR_INVALID for a position beyond the length, and for another than
 * the current one where a sampler of the caller's has a state of its own, or neither a state could
 * be resumed nor the place before it be found again yet. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_save_at(const tsr_sampler *sampler, uint64_t position,
                                                     size_t capacity_bytes, void *data,
                                                     size_t *size_bytes);

/* Brings a sampler with the same parameters to where the saved one stood. Any bytes may be given.
 * Errors: TSR_ERR_INVALID naming the offset and the reason: no state of this version, a checksum
 * that does not match, another kind of sampler, other parameters; otherwise as tsr_sampler_next.
 * After a failure nothing has changed.
 *
 * With another number of ranks, a distributed sampler continues with exactly what is left of the
 * epoch, and deals that to its ranks: position 0 is then the first of it, and the length counts no
 * more. Every rank must have given as many items as the one whose state is used; all resume with
 * one state, and where the tail is TSR_TAIL_UNEVEN with that of rank 0, which never has fewer items
 * than another (TSR_ERR_INVALID for a state from which it cannot be told what is left). A dataset
 * in the order dotnet with TSR_TAIL_DROP cannot: its order depends on the number of ranks, and
 * TSR_ERR_INVALID says so. Nor can a distributed sampler inside another. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_resume(tsr_sampler *sampler, const void *data,
                                                    size_t size_bytes);

/* Orders --------------------------------------------------------------------------------------- */

typedef enum tsr_order {
    TSR_ORDER_FEISTEL = 0, /* our own: any item at once, and no memory (weighted: alias tables) */
    TSR_ORDER_TORCH = 1,   /* PyTorch's, bit for bit: MT19937 and 4 bytes of memory an item */
    TSR_ORDER_DOTNET = 2,  /* a shuffle by .NET's System.Random, bit for bit: 4 bytes an item */
    TSR_ORDER_NONE = 3,    /* as they come */
    TSR_ORDER_MLX = 4      /* MLX 0.32's argsort(random.uniform), bit for bit: 4 bytes an item */
} tsr_order;

/* "feistel", "torch", "dotnet", "none", "mlx"; "?" for a value that is none. Static storage. */
TSR_API const char *tsr_order_name(tsr_order order);
/* Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_order_parse(const char *name, tsr_order *out);

/* What else PyTorch's result depends on. Zero: a generator of the sampler's own. */
typedef struct tsr_torch_options {
    tsr_torch_version version;
    /* generator=None, after torch.manual_seed(seed) */
    bool global_generator;
    /* The sampler is a DataLoader's, which draws 64 bits from the same generator first, each epoch.
     */
    bool data_loader;
    /* Distributed: what seed holds is seed + seed_high · 2^64, for PyTorch takes seeds from −2^63
     * to 2^64 − 1: 1 for those from 2^63 on, otherwise 0. */
    int seed_high;
} tsr_torch_options;

/* The permutation behind the order feistel: a keyed bijection of 0 … n − 1 as a plain value, 64
 * bytes for any n up to 2^62, of which any element is found at once. Alternating rounds add a hash
 * of the one half to the other, as in a Feistel network, but on a grid of about √n by √n rather
 * than on bits, and what falls outside of n is sent round again (cycle walking): Black and Rogaway,
 * "Ciphers with arbitrary finite domains" (CT-RSA 2002). Not for secrets. */
typedef struct tsr_feistel {
    uint64_t n;
    uint32_t rows, columns;
    uint64_t keys[6];
} tsr_feistel;

/* The permutation number (seed, epoch, pass); every one of the three counts fully. Errors:
 * TSR_ERR_INVALID when n > 2^62. */
#define TSR_MAX_FEISTEL (UINT64_C(1) << 62)
TSR_API TSR_NODISCARD tsr_status tsr_feistel_init(uint64_t n, uint64_t seed, uint64_t epoch,
                                                  uint64_t pass, tsr_feistel *out);
/* The element at `position`, and where an element is; both arguments are below n, and here and in
 * the next one pointers are not NULL. */
TSR_API uint64_t tsr_feistel_at(const tsr_feistel *order, uint64_t position);
TSR_API uint64_t tsr_feistel_find(const tsr_feistel *order, uint64_t element);
/* The elements at first, first + step, first + 2 · step, …: `count` of them, all below n. Faster
 * than one by one. */
TSR_API void tsr_feistel_fill(const tsr_feistel *order, uint64_t first, uint64_t step,
                              uint64_t count, int64_t *out);

/* Single indices ------------------------------------------------------------------------------- */

/* 0 … n − 1. Errors: TSR_ERR_INVALID when n > INT64_MAX, TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_sequential(uint64_t n, tsr_sampler **out);

typedef struct tsr_sampler_random_params {
    uint64_t n; /* items to draw from */
    tsr_order order;
    bool replacement;    /* draw each index from all n; otherwise only when all n have been drawn */
    int64_t num_samples; /* indices in an epoch; 0: n */
    int64_t seed;        /* PyTorch's above INT64_MAX go in two's complement */
    tsr_torch_options torch;
} tsr_sampler_random_params;
#define tsr_sampler_random_params(...) (&(tsr_sampler_random_params){__VA_ARGS__})

/* A permutation of 0 … n − 1, and further ones where num_samples > n; or draws with replacement.
 *
 * In the orders torch, dotnet and mlx, epoch e is what pass number e gives of one generator, seeded
 * once: going on to the next epoch is cheap, any other takes time proportional to the draws that
 * lie before it. torch: RandomSampler (randperm, randint). dotnet: Fisher and Yates' shuffle of
 * 0 … n − 1 for each permutation, and Next(0, n) for each draw with replacement. mlx: after
 * mx.random.seed(seed), argsort(random.uniform) for each permutation, and random.randint of all
 * draws of an epoch with replacement; making a permutation takes another 16 bytes of memory an
 * item. feistel: any item of any epoch at once; with replacement by Lemire's method from
 * Philox4x32-10, exactly uniform. none: 0 … n − 1 again and again, not with replacement.
 *
 * Errors: TSR_ERR_INVALID for n 0 or above 2^62, num_samples negative or above 2^62, an order or
 * option that cannot be, a .NET seed or n that is no int32, for MLX a negative seed, n above
 * 2^32 − 1 (with replacement 2^31 − 1) or more draws than that; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_random(const tsr_sampler_random_params *params,
                                                           tsr_sampler **out);

typedef struct tsr_sampler_subset_params {
    const int64_t *indices; /* [count], copied; any values */
    uint64_t count;
    tsr_order order;
    int64_t seed;
    tsr_torch_options torch;
} tsr_sampler_subset_params;
#define tsr_sampler_subset_params(...) (&(tsr_sampler_subset_params){__VA_ARGS__})

/* The given indices, each once, in random order (SubsetRandomSampler). Epochs as above. Errors:
 * TSR_ERR_INVALID for indices NULL with a count, and as above; no index at all is fine. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_subset(const tsr_sampler_subset_params *params,
                                                           tsr_sampler **out);

typedef struct tsr_sampler_weighted_params {
    /* One of the two, [count]; read now, not kept. They need not add up to one. */
    const double *weights;
    const float *weights_f32; /* torch.multinomial of a float32 tensor, which computes in float32 */
    uint64_t count;
    int64_t num_samples; /* indices in an epoch, at least 1 */
    bool no_replacement; /* draw each at most once */
    tsr_order order;     /* feistel, torch or mlx */
    int64_t seed;
    tsr_torch_options torch;
} tsr_sampler_weighted_params;
#define tsr_sampler_weighted_params(...) (&(tsr_sampler_weighted_params){__VA_ARGS__})

/* Index i with probability in proportion to weight i; a weight of 0 is never drawn.
 *
 * feistel, our own order, with replacement: Walker's alias method (ACM TOMS 3, 1977) from
 * Philox4x32-10: O(1) a draw, any item at once, 12 bytes a weight, up to 2^32 − 1 weights. Without
 * replacement: the largest of log(u) / weight (Efraimidis and Spirakis, Information Processing
 * Letters 97, 2006), found at the start of an epoch in O(count · log num_samples).
 *
 * torch: WeightedRandomSampler, that is torch.multinomial, at most 2^24 weights. Bit for bit with
 * replacement; without it (and, from PyTorch 2.0 on, for one sample) as builds without MKL compute
 * it, up to the last bit of the system's log1p and in the order of indices where keys are equal.
 * Epochs are successive passes of one generator.
 *
 * mlx: mx.random.categorical(log(weights / sum), num_samples=…): for each sample a number for each
 * weight, at most 2^32 − 1 in all, and time in proportion. Without replacement, which MLX does not
 * have, the largest of one draw's sums, the largest first. The numbers are MLX's bit for bit, and
 * so are the samples but where two sums differ by less than the rounding of logarithms in 32 bits.
 * Epochs as above.
 *
 * Errors: TSR_ERR_INVALID for no weight or too many, a weight that is negative, infinite or NaN,
 * weights that add up to 0 (torch with replacement: or to more than their type holds; mlx: or to 0
 * or infinity in 32 bits), no sample, more samples than there are weights above 0 to be drawn once
 * (mlx: shares above 0 in 32 bits), a negative seed of MLX's; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_weighted(const tsr_sampler_weighted_params *params, tsr_sampler **out);

/* Samplers of samplers ------------------------------------------------------------------------- */

/* A sampler that wraps another (`base`) keeps a reference to it and moves it: as long as it exists,
 * nothing else may read or move the base. The caller still destroys its own handle of the base. */

typedef struct tsr_sampler_batch_params {
    tsr_sampler *base;
    int64_t batch_size; /* also more than there are items */
    bool drop_last;     /* leave out a last batch that is short */
} tsr_sampler_batch_params;
#define tsr_sampler_batch_params(...) (&(tsr_sampler_batch_params){__VA_ARGS__})

/* Batches of a sampler's indices, in its order (BatchSampler). Errors: TSR_ERR_INVALID for no base
 * or one of batches, and a batch size that is not positive; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_batch(const tsr_sampler_batch_params *params,
                                                          tsr_sampler **out);

/* What happens when n is not a multiple of the number of ranks. */
typedef enum tsr_tail {
    TSR_TAIL_PAD = 0,      /* the order starts again, as often as needed, until all have as many */
    TSR_TAIL_PAD_MASK = 1, /* the same, and the mask tells which were added */
    TSR_TAIL_UNEVEN = 2,   /* every item once; some ranks get one fewer */
    TSR_TAIL_DROP = 3      /* what is left over at the end of the (shuffled) order is left out */
} tsr_tail;

/* "pad", "pad-mask", "uneven", "drop"; "?" for a value that is none. Static storage. */
TSR_API const char *tsr_tail_name(tsr_tail tail);
/* Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_tail_parse(const char *name, tsr_tail *out);

typedef enum tsr_split {
    TSR_SPLIT_INTERLEAVED = 0, /* rank r gets items r, r + ranks, r + 2 · ranks, … of the order */
    TSR_SPLIT_CONTIGUOUS = 1   /* rank r gets the r-th of as many stretches of the order */
} tsr_split;

/* "interleaved", "contiguous"; "?" for a value that is none. Static storage. */
TSR_API const char *tsr_split_name(tsr_split split);
/* Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_split_parse(const char *name, tsr_split *out);

typedef struct tsr_sampler_distributed_params {
    uint64_t n;          /* items of the dataset, or */
    tsr_sampler *base;   /* a sampler of indices or of batches */
    int64_t ranks, rank; /* ranks 0: both from tsr_rank_from_environment; otherwise a rank that is
                            forgotten is 0, on every process alike */
    tsr_order order;     /* of a dataset; a sampler keeps its own */
    tsr_tail tail;
    tsr_split split;
    int64_t seed; /* the same on all ranks */
    tsr_torch_options torch;
} tsr_sampler_distributed_params;
#define tsr_sampler_distributed_params(...) (&(tsr_sampler_distributed_params){__VA_ARGS__})

/* One rank's share of a dataset in shuffled order, or of what another sampler gives; all ranks
 * create theirs with the same parameters.
 *
 * torch: DistributedSampler; randperm with seed + epoch. dotnet: Fisher and Yates' shuffle with
 * System.Random of seed + epoch, wrapping as int32; with TSR_TAIL_DROP only the first
 * n / ranks · ranks items are shuffled (all other orders shuffle all n, then drop). mlx:
 * argsort(random.uniform) with the key of seed + epoch. feistel: the pair of seed and epoch is the
 * key.
 *
 * A wrapped sampler starts its epoch again, and follows to others. Where its length is unknown, the
 * split must be interleaved, and TSR_TAIL_DROP gives no item before a whole round of them exists.
 *
 * Errors: TSR_ERR_INVALID for n and base both given, n above 2^62, ranks or rank out of range, and
 * as for random; TSR_ERR_OVERFLOW when a wrapped sampler has more than 2^62 items; those of the
 * environment and of the wrapped sampler; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_distributed(const tsr_sampler_distributed_params *params, tsr_sampler **out);

/* What a distributed sampler works out; of what is left, where it was resumed with another number
 * of ranks. */
typedef struct tsr_distributed_info {
    int64_t ranks, rank;
    uint64_t n;      /* items to be dealt; TSR_LENGTH_UNKNOWN where that is not known */
    uint64_t total;  /* with those added, without those left out */
    uint64_t length; /* this rank's */
} tsr_distributed_info;
/* Errors: TSR_ERR_INVALID for another kind of sampler. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_distributed_info(const tsr_sampler *sampler,
                                                              tsr_distributed_info *out);

/* Which process of how many this one is, as its launcher says. The first of these that is set
 * counts, and then both must be:
 *
 *     RANK, WORLD_SIZE                                torchrun, tessera launch
 *     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE      mpirun of Open MPI
 *     PMI_RANK, PMI_SIZE                              mpiexec of MPICH and its kin
 *     SLURM_PROCID, SLURM_STEP_NUM_TASKS              srun
 *
 * With none of them, 0 of 1. As in tsr_comm_create, PMIX_NAMESPACE and PMIX_RANK come before RANK,
 * unless torchrun was started so, and TESSERA_BOOT before all: "env" for RANK, "pmix" for the
 * others, "single" for 0 of 1. A program with a communicator made otherwise gives that one's rank
 * and size. Errors: TSR_ERR_INVALID naming the variable that is missing, no number or out of range;
 * also for PMIX_RANK alone, which does not say how many. */
TSR_API TSR_NODISCARD tsr_status tsr_rank_from_environment(int64_t *rank, int64_t *ranks);

/* One's own sampler ---------------------------------------------------------------------------- */

/* What a sampler must be able to do. `self` is what tsr_sampler_create was given. Only `fill` and
 * `set_epoch` are required. What fails returns a status other than TSR_OK; the caller is told the
 * name, the function and the status. */
typedef struct tsr_sampler_ops {
    size_t struct_size; /* sizeof(tsr_sampler_ops) */
    const char *name;   /* copied; "custom" when NULL */

    /* 0: fill gives single indices. Otherwise it gives one batch each time, of 1 to so many. */
    uint64_t batch_max;

    /* Writes the next indices, at most `capacity` (never 0, for batches at least batch_max), and
     * their number. Fewer than `capacity`, for batches 0: the end of the epoch. mask[i], NULL or
     * all 1 before the call, is set to 0 for an index that does not count. */
    tsr_status (*fill)(void *self, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count);

    /* To the start of an epoch; called before the first fill. */
    tsr_status (*set_epoch)(void *self, int64_t epoch);

    /* Items in this epoch, or TSR_LENGTH_UNKNOWN, as without this function. */
    uint64_t (*length)(void *self);

    /* Makes this item, at most the length, the next one. */
    tsr_status (*seek)(void *self, uint64_t position);

    /* A hash of the parameters, so that a state cannot be resumed with others. */
    uint64_t (*fingerprint)(void *self);

    /* For a sampler that does not follow from epoch and position alone: at most
     * TSR_SAMPLER_OWN_BYTES of its own in a saved state. `load` is called after set_epoch, and
     * brings back the very state, with the item that was next when it was saved. It may refuse the
     * bytes, but must not change anything then. Both or none. */
    tsr_status (*save)(void *self, size_t capacity_bytes, void *data, size_t *size_bytes);
    tsr_status (*load)(void *self, const void *data, size_t size_bytes);

    void (*destroy)(void *self);
} tsr_sampler_ops;
#define TSR_SAMPLER_OWN_BYTES 16

/* A sampler that can be used like any other, also inside of others. The struct is copied; `self` is
 * the sampler's on success, to be destroyed with it. Errors: TSR_ERR_INVALID for a struct_size that
 * is unknown, a function that is missing, a name of more than 31 bytes; those of set_epoch(0);
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create(const tsr_sampler_ops *ops, void *self,
                                                    tsr_sampler **out);

/* By what the items are ------------------------------------------------------------------------ */

/* The most items of a sampler below. */
#define TSR_MAX_SAMPLER_SORTED (UINT64_C(1) << 31)

typedef struct tsr_sampler_length_sorted_params {
    const int64_t *lengths; /* [count], none negative; read now, not kept */
    uint64_t count;
    int64_t batch_size;
    tsr_order order; /* of the batches: feistel; none: the shortest items first */
    int64_t seed;
} tsr_sampler_length_sorted_params;
#define tsr_sampler_length_sorted_params(...) (&(tsr_sampler_length_sorted_params){__VA_ARGS__})

/* Batches of items that are about as long as each other, so that little has to be filled up: the
 * items sorted by length, equal ones by index, and cut into batches. The batches, not what is in
 * them, come in random order, another one each epoch; the one that is short, of the longest items,
 * anywhere among them. Four bytes of memory an item.
 *
 * Errors: TSR_ERR_INVALID for lengths NULL with a count, a count above TSR_MAX_SAMPLER_SORTED, a
 * negative length, a batch size that is not positive, and the orders torch, dotnet and mlx, for
 * there is no reference of this sampler; TSR_ERR_NO_MEMORY. No item at all is fine. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_length_sorted(const tsr_sampler_length_sorted_params *params, tsr_sampler **out);

typedef struct tsr_sampler_stratified_params {
    const int64_t *labels; /* [count], the class of each item, any values; read now, not kept */
    uint64_t count;
    int64_t batch_size;
    tsr_order order; /* of the items of a class: feistel; none: as they come */
    int64_t seed;
} tsr_sampler_stratified_params;
#define tsr_sampler_stratified_params(...) (&(tsr_sampler_stratified_params){__VA_ARGS__})

/* Batches that each hold the classes in the proportions of the whole dataset, as nearly as whole
 * items can; every item once. Places in a batch go by largest remainder, and what a class did not
 * get counts in the next batch: each place goes to the class that is furthest behind its share of
 * all places up to the end of that batch; of equal ones to the smaller class, and classes of the
 * same size take turns. So no class is ever a whole item ahead, and one with few items has them
 * spread over the epoch. Which items of a class come when is random.
 *
 * Eight bytes of memory an item, and 88 a class; creating one takes time for sorting the labels,
 * and for batches × different class sizes. Errors as above. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_stratified(const tsr_sampler_stratified_params *params, tsr_sampler **out);

typedef struct tsr_sampler_curriculum_params {
    const double *difficulties; /* [count], each in 0 … 1; read now, not kept */
    uint64_t count;
    int64_t num_samples; /* indices in an epoch; 0: count */
    int64_t max_epochs;  /* E below, at least 1 */
    int64_t seed;
} tsr_sampler_curriculum_params;
#define tsr_sampler_curriculum_params(...) (&(tsr_sampler_curriculum_params){__VA_ARGS__})

/* Easy items first: in epoch e those with a difficulty of at most e / (E − 1), from epoch E − 1 on
 * all. Where nothing is as easy as that, the easiest there are. Of these, num_samples at random:
 * each at most once, or where they are fewer than that, drawn with replacement. Twelve bytes of
 * memory an item. Errors: TSR_ERR_INVALID for difficulties NULL, no item, too many (as above), a
 * difficulty outside of 0 … 1 or NaN, num_samples negative or above 2^62, max_epochs below 1;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_curriculum(const tsr_sampler_curriculum_params *params, tsr_sampler **out);

#ifdef __cplusplus
}
#endif

#endif
