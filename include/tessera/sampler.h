/* Samplers: the order in which a dataset's items are read, and which process reads them. All
 * samplers have the same interface:
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
 * A sampler gives items: single indices, or batches of indices. Positions and lengths count items.
 * An epoch is one pass over the items. With the same parameters, epoch e is the same on every
 * machine and in every process, whatever was read before.
 *
 * A sampler may be used by one thread at a time. Different samplers are independent. No call
 * blocks, except for the time a sampler of the caller's takes. */
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
 * reference of its own, so the handles may be destroyed in any order. NULL is fine; *sampler
 * becomes NULL. */
TSR_API void tsr_sampler_destroy(tsr_sampler **sampler);

/* "sequential", "random", "subset", "weighted", "batch", "distributed", "length-sorted",
 * "stratified", "curriculum", or the name of a sampler of the caller's. Valid as long as the
 * sampler. */
TSR_API const char *tsr_sampler_name(const tsr_sampler *sampler);

/* The number of items in this epoch, including those already given, or TSR_LENGTH_UNKNOWN. */
#define TSR_LENGTH_UNKNOWN UINT64_MAX
TSR_API uint64_t tsr_sampler_length(const tsr_sampler *sampler);

/* The largest number of indices that a batch may have; 0 for a sampler of single indices. It is
 * never more than the number of items, if that is known for all epochs. */
TSR_API uint64_t tsr_sampler_batch_max(const tsr_sampler *sampler);

/* The number of items given so far in this epoch, which is the number of the next item. */
TSR_API uint64_t tsr_sampler_position(const tsr_sampler *sampler);
TSR_API int64_t tsr_sampler_epoch(const tsr_sampler *sampler);

/* Reads the next single index. At the end of the epoch *got is false and *index is not written.
 * Errors: TSR_ERR_INVALID for a sampler of batches; the errors of a sampler of the caller's;
 * TSR_ERR_NO_MEMORY if an order is computed. After a failure the position has not changed. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_next(tsr_sampler *sampler, int64_t *index, bool *got);

/* Reads the next batch into the caller's indices[capacity]; a sampler of single indices gives a
 * batch of one. *count is the number of indices, 0 at the end of the epoch. If `mask` is not NULL,
 * mask[i] is 1 for an index that counts and 0 for one that was added as padding
 * (TSR_TAIL_PAD_MASK). Errors: TSR_ERR_INVALID if `capacity` is less than tsr_sampler_batch_max or
 * 1; otherwise as above. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_next_batch(tsr_sampler *sampler, uint64_t capacity,
                                                        int64_t *indices, uint8_t *mask,
                                                        uint64_t *count);

/* Reads as many items as fit: `capacity` indices, fewer only at the end of the epoch. A sampler of
 * batches gives whole batches while there is room for the largest one. *count is the number of
 * indices written, 0 only at the end of the epoch or for capacity 0. `mask` is as above. Errors are
 * those of tsr_sampler_next_batch. After a failure the position has not changed. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_fill(tsr_sampler *sampler, uint64_t capacity,
                                                  int64_t *indices, uint8_t *mask, uint64_t *count);

/* Makes item `position` the next one. In the order feistel this takes constant time; reference
 * orders may have to draw all numbers in between, and a sampler of the caller's without `seek` is
 * read from the start of the epoch. Errors: TSR_ERR_INVALID for a position beyond the length;
 * otherwise as tsr_sampler_next. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_seek(tsr_sampler *sampler, uint64_t position);

/* Moves to the start of this epoch, which then gives the same items again. An epoch that was
 * resumed with another number of ranks starts with all of its items. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_reset(tsr_sampler *sampler);

/* Moves to the start of an epoch. A new sampler is in epoch 0. Errors: TSR_ERR_INVALID for an epoch
 * that the order does not have (only a distributed sampler has negative ones); TSR_ERR_OVERFLOW if
 * a reference order's seed + epoch or number of draws is out of range; otherwise as
 * tsr_sampler_next. After a failure nothing has changed. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_set_epoch(tsr_sampler *sampler, int64_t epoch);

/* Reads batch number `index` of this epoch, cut into batches of `batch_size` of which the last may
 * be shorter. The position does not change. Errors: TSR_ERR_INVALID for a batch size that is not
 * positive or above `capacity`, for a batch beyond the last, and for a sampler of batches, which
 * can seek instead; otherwise as tsr_sampler_next. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_get_batch(tsr_sampler *sampler, uint64_t index,
                                                       int64_t batch_size, uint64_t capacity,
                                                       int64_t *indices, uint8_t *mask,
                                                       uint64_t *count);
/* The number of these batches, without a shorter last one if `drop_last`. Errors: TSR_ERR_INVALID
 * for a batch size that is not positive, and if the length is unknown. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_batch_count(const tsr_sampler *sampler,
                                                         int64_t batch_size, bool drop_last,
                                                         uint64_t *count);

/* Saving and resuming -------------------------------------------------------------------------- */

/* Writes the epoch and position of a sampler and of those it wraps to the caller's `data`: at most
 * TSR_SAMPLER_STATE_BYTES, the same on every machine, with a version, a checksum and all parameters
 * except rank and ranks. *size_bytes is the number of bytes written. Errors: TSR_ERR_INVALID if
 * `capacity_bytes` is too small; the errors of a sampler of the caller's. */
#define TSR_SAMPLER_STATE_BYTES 256
TSR_API TSR_NODISCARD tsr_status tsr_sampler_save(const tsr_sampler *sampler, size_t capacity_bytes,
                                                  void *data, size_t *size_bytes);

/* Writes the state as it is after `position` items, for a program that has read more items than it
 * has used. Errors: those of tsr_sampler_save, and TSR_ERR_INVALID for a position beyond the
 * length. Only the current position is possible if a sampler of the caller's saves a state of its
 * own, and after a tsr_sampler_resume that failed and could not restore the previous position
 * either. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_save_at(const tsr_sampler *sampler, uint64_t position,
                                                     size_t capacity_bytes, void *data,
                                                     size_t *size_bytes);

/* Moves a sampler with the same parameters to where the saved one was. Any bytes may be passed.
 * Errors: TSR_ERR_INVALID, naming the offset and the reason: not a state of this version, a wrong
 * checksum, another kind of sampler, or another parameter, with its name and both values; otherwise
 * as tsr_sampler_next. After a failure nothing has changed.
 *
 * With another number of ranks, a distributed sampler continues with exactly the rest of the epoch,
 * partitioned among its ranks: position 0 is then the first item of the rest, and the length counts
 * the rest only. Every rank must have given as many items as the rank whose state is used. All
 * ranks resume from the same state; with TSR_TAIL_UNEVEN it must be that of rank 0, which has the
 * most items (TSR_ERR_INVALID if the rest does not follow from the state). A dataset in the order
 * dotnet with TSR_TAIL_DROP cannot be resumed with another number of ranks, because its order
 * depends on it, and neither can a distributed sampler inside another (TSR_ERR_INVALID). */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_resume(tsr_sampler *sampler, const void *data,
                                                    size_t size_bytes);

/* Orders --------------------------------------------------------------------------------------- */

typedef enum tsr_order {
    TSR_ORDER_FEISTEL =
        0,                /* this library's: any item at once, no memory (weighted: alias tables) */
    TSR_ORDER_TORCH = 1,  /* PyTorch's, bit for bit: MT19937 and 4 bytes of memory an item */
    TSR_ORDER_DOTNET = 2, /* a shuffle by .NET's System.Random, bit for bit: 4 bytes an item */
    TSR_ORDER_NONE = 3,   /* the items' own order */
    TSR_ORDER_MLX = 4     /* MLX 0.32's argsort(random.uniform), bit for bit: 4 bytes an item */
} tsr_order;

/* "feistel", "torch", "dotnet", "none", "mlx"; "?" for any other value. Static storage. */
TSR_API const char *tsr_order_name(tsr_order order);
/* Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_order_parse(const char *name, tsr_order *out);

/* Options of PyTorch that its results depend on. Zero: the sampler has its own generator. */
typedef struct tsr_torch_options {
    tsr_torch_version version;
    /* generator=None, after torch.manual_seed(seed) */
    bool global_generator;
    /* The sampler belongs to a DataLoader, which first draws 64 bits from the generator in each
     * epoch. */
    bool data_loader;
    /* For a distributed sampler: PyTorch's seed, from −2^63 to 2^64 − 1, is seed + seed_high ·
     * 2^64. So this is 1 for seeds of 2^63 or more, otherwise 0. */
    int seed_high;
} tsr_torch_options;

/* The permutation behind the order feistel: a keyed bijection of 0 … n − 1 as a plain value of 64
 * bytes, for any n up to 2^62, of which any element is computed in constant time. It is a Feistel
 * network on a grid of about √n by √n instead of on bits: alternating rounds add a hash of one
 * coordinate to the other, and results outside of n are permuted again (cycle walking). Source:
 * Black and Rogaway, "Ciphers with arbitrary finite domains" (CT-RSA 2002). Not for secrets. */
typedef struct tsr_feistel {
    uint64_t n;
    uint32_t rows, columns;
    uint64_t keys[6];
} tsr_feistel;

/* The permutation for (seed, epoch, pass); all bits of the three numbers count. Errors:
 * TSR_ERR_INVALID if n > 2^62. */
#define TSR_MAX_FEISTEL (UINT64_C(1) << 62)
TSR_API TSR_NODISCARD tsr_status tsr_feistel_init(uint64_t n, uint64_t seed, uint64_t epoch,
                                                  uint64_t pass, tsr_feistel *out);
/* The element at `position`, and the position of `element`. Both arguments must be below n, and no
 * pointer of these functions may be NULL. */
TSR_API uint64_t tsr_feistel_at(const tsr_feistel *order, uint64_t position);
TSR_API uint64_t tsr_feistel_find(const tsr_feistel *order, uint64_t element);
/* Writes the `count` elements at positions first, first + step, first + 2 · step, …, all below n.
 * Faster than one by one. */
TSR_API void tsr_feistel_fill(const tsr_feistel *order, uint64_t first, uint64_t step,
                              uint64_t count, int64_t *out);

/* Single indices ------------------------------------------------------------------------------- */

/* 0 … n − 1. Errors: TSR_ERR_INVALID when n > INT64_MAX, TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_sequential(uint64_t n, tsr_sampler **out);

typedef struct tsr_sampler_random_params {
    uint64_t n; /* items to draw from */
    tsr_order order;
    bool replacement;    /* draw each index from all n items, not only from those not yet drawn */
    int64_t num_samples; /* indices in an epoch; 0: n */
    int64_t seed;        /* PyTorch's seeds above INT64_MAX: the same bits */
    tsr_torch_options torch;
} tsr_sampler_random_params;
#define tsr_sampler_random_params(...) (&(tsr_sampler_random_params){__VA_ARGS__})

/* Gives a permutation of 0 … n − 1, followed by further permutations if num_samples > n; or draws
 * with replacement.
 *
 * In the orders torch, dotnet and mlx, the generator is seeded once and the epochs are successive
 * passes of it: the next epoch is cheap, any other takes time proportional to the draws before it.
 * torch: RandomSampler (randperm, randint). dotnet: Fisher and Yates' shuffle of 0 … n − 1 for each
 * permutation, and Next(0, n) for each draw with replacement. mlx: after mx.random.seed(seed),
 * argsort(random.uniform) for each permutation, and one random.randint for all draws with
 * replacement of an epoch; computing a permutation takes another 16 bytes of memory an item.
 * feistel: any item of any epoch in constant time; draws with replacement use Lemire's method on
 * Philox4x32-10 and are exactly uniform. none: 0 … n − 1 repeatedly, not with replacement.
 *
 * Errors: TSR_ERR_INVALID for n 0 or above 2^62, num_samples negative or above 2^62, an invalid
 * order or option, a .NET seed or n that is not an int32, and for MLX a negative seed, n above 2^32
 * − 1 (with replacement 2^31 − 1) or more draws than that; TSR_ERR_NO_MEMORY. */
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

/* Gives each of the indices once, in random order (SubsetRandomSampler). Epochs are as above.
 * `count` may be 0. Errors: TSR_ERR_INVALID if indices is NULL and count is not 0; otherwise as
 * above. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_subset(const tsr_sampler_subset_params *params,
                                                           tsr_sampler **out);

typedef struct tsr_sampler_weighted_params {
    /* Exactly one of the two, [count]; only read by the call. Their sum need not be 1. */
    const double *weights;
    const float *weights_f32; /* for torch: as multinomial of a float32 tensor, in float32 */
    uint64_t count;
    int64_t num_samples; /* indices in an epoch, at least 1 */
    bool no_replacement; /* draw each at most once */
    tsr_order order;     /* feistel, torch or mlx */
    int64_t seed;
    tsr_torch_options torch;
} tsr_sampler_weighted_params;
#define tsr_sampler_weighted_params(...) (&(tsr_sampler_weighted_params){__VA_ARGS__})

/* Draws index i with a probability proportional to weight i. A weight of 0 is never drawn.
 *
 * feistel, with replacement: Walker's alias method (ACM TOMS 3, 1977) on Philox4x32-10; O(1) a
 * draw, any item in constant time, 12 bytes a weight, up to 2^32 − 1 weights. Without replacement:
 * the largest values of log(u) / weight (Efraimidis and Spirakis, Information Processing Letters
 * 97, 2006), computed at the start of an epoch in O(count · log num_samples).
 *
 * torch: WeightedRandomSampler, that is torch.multinomial, with at most 2^24 weights. Equal bit for
 * bit with replacement. Without replacement, and from PyTorch 2.0 on for a single sample, equal to
 * builds of PyTorch without MKL, up to the last bit of the system's log1p; equal keys are ordered
 * by index. Epochs are successive passes of one generator.
 *
 * mlx: mx.random.categorical(log(weights / sum), num_samples=…), which draws a number for each
 * sample and weight, at most 2^32 − 1 in total, and takes time in proportion. Without replacement,
 * which MLX does not offer, the indices of the largest sums of one draw, the largest first. The
 * numbers equal MLX's bit for bit, and so do the samples unless two sums differ by less than the
 * rounding of 32-bit logarithms. Epochs are as above.
 *
 * Errors: TSR_ERR_INVALID for no weight or too many, a weight that is negative, infinite or NaN,
 * weights whose sum is 0 (torch with replacement: or overflows their type; mlx: or is 0 or infinite
 * in 32 bits), num_samples below 1, more samples without replacement than weights above 0 (mlx:
 * than shares above 0 in 32 bits), a negative seed for MLX; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_weighted(const tsr_sampler_weighted_params *params, tsr_sampler **out);

/* Samplers of samplers ------------------------------------------------------------------------- */

/* A sampler that wraps another (`base`) keeps a reference to it and moves it: as long as it exists,
 * nothing else may read or move the base. The caller still destroys its own handle of the base. */

typedef struct tsr_sampler_batch_params {
    tsr_sampler *base;
    int64_t batch_size; /* may exceed the number of items */
    bool drop_last;     /* leave out a last batch that is shorter */
} tsr_sampler_batch_params;
#define tsr_sampler_batch_params(...) (&(tsr_sampler_batch_params){__VA_ARGS__})

/* Gives a sampler's indices in batches, in its order (BatchSampler). Errors: TSR_ERR_INVALID if
 * base is NULL or gives batches, and for a batch size that is not positive; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_batch(const tsr_sampler_batch_params *params,
                                                          tsr_sampler **out);

/* What happens if n is not a multiple of the number of ranks. */
typedef enum tsr_tail {
    TSR_TAIL_PAD = 0, /* items from the start of the order are repeated until all ranks are even */
    TSR_TAIL_PAD_MASK = 1, /* the same, and the mask is 0 for the repeated items */
    TSR_TAIL_UNEVEN = 2,   /* every item once; some ranks get one item fewer */
    TSR_TAIL_DROP = 3      /* the remainder at the end of the (shuffled) order is left out */
} tsr_tail;

/* "pad", "pad-mask", "uneven", "drop"; "?" for any other value. Static storage. */
TSR_API const char *tsr_tail_name(tsr_tail tail);
/* Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_tail_parse(const char *name, tsr_tail *out);

typedef enum tsr_split {
    TSR_SPLIT_INTERLEAVED = 0, /* rank r gets items r, r + ranks, r + 2 · ranks, … of the order */
    TSR_SPLIT_CONTIGUOUS = 1   /* the order is cut into one range per rank; rank r gets the r-th */
} tsr_split;

/* "interleaved", "contiguous"; "?" for any other value. Static storage. */
TSR_API const char *tsr_split_name(tsr_split split);
/* Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_split_parse(const char *name, tsr_split *out);

typedef struct tsr_sampler_distributed_params {
    uint64_t n;          /* items of the dataset, or */
    tsr_sampler *base;   /* a sampler of indices or of batches */
    int64_t ranks, rank; /* ranks 0: both from tsr_rank_from_environment. If ranks is set, set rank
                            too: otherwise every process reads the share of rank 0 */
    tsr_order order;     /* of the dataset; ignored with base */
    tsr_tail tail;
    tsr_split split;
    int64_t seed; /* the same on all ranks */
    tsr_torch_options torch;
} tsr_sampler_distributed_params;
#define tsr_sampler_distributed_params(...) (&(tsr_sampler_distributed_params){__VA_ARGS__})

/* Gives one rank's share of a dataset in shuffled order, or of another sampler's items. All ranks
 * must use the same parameters, except for rank.
 *
 * torch: DistributedSampler; randperm with seed + epoch. dotnet: Fisher and Yates' shuffle with
 * System.Random of seed + epoch, wrapping as int32; with TSR_TAIL_DROP only the first
 * n / ranks · ranks items are shuffled (all other orders shuffle all n, then drop). mlx:
 * argsort(random.uniform) with the key of seed + epoch. feistel: the pair of seed and epoch is the
 * key.
 *
 * A wrapped sampler is moved to the start of its epoch, and to other epochs with this one. If its
 * length is unknown, the split must be interleaved, and TSR_TAIL_DROP reads one item of every rank
 * before it gives one.
 *
 * Errors: TSR_ERR_INVALID if both n and base are set, for n above 2^62, ranks or rank out of range,
 * and as for random; TSR_ERR_OVERFLOW if a wrapped sampler has more than 2^62 items; the errors of
 * tsr_rank_from_environment and of the wrapped sampler; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_distributed(const tsr_sampler_distributed_params *params, tsr_sampler **out);

/* The sizes of a distributed sampler. If it was resumed with another number of ranks, they are
 * those of the rest of the epoch. */
typedef struct tsr_distributed_info {
    int64_t ranks, rank;
    uint64_t n;      /* items to be partitioned, or TSR_LENGTH_UNKNOWN */
    uint64_t total;  /* items of all ranks, with padding and without dropped ones */
    uint64_t length; /* items of this rank */
} tsr_distributed_info;
/* Errors: TSR_ERR_INVALID for another kind of sampler. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_distributed_info(const tsr_sampler *sampler,
                                                              tsr_distributed_info *out);

/* The rank of this process and the number of ranks, from the launcher's variables. The first of
 * these pairs of which one is set counts, and then both must be set:
 *
 *     RANK, WORLD_SIZE                                torchrun, tessera launch
 *     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE      mpirun of Open MPI
 *     PMI_RANK, PMI_SIZE                              mpiexec of MPICH and its derivatives
 *     SLURM_PROCID, SLURM_STEP_NUM_TASKS              srun
 *
 * If none is set, rank 0 of 1. As in tsr_comm_create, PMIX_NAMESPACE and PMIX_RANK precede RANK,
 * unless they belong to a torchrun that was itself started through PMIx, and TESSERA_BOOT precedes
 * all: "env" selects RANK, "pmix" the others, "single" rank 0 of 1. A program whose communicator
 * was created in another way should pass the communicator's rank and size instead. Errors:
 * TSR_ERR_INVALID naming the variable that is missing, not a number or out of range; also for
 * PMIX_RANK alone, which does not give the number of ranks. */
TSR_API TSR_NODISCARD tsr_status tsr_rank_from_environment(int64_t *rank, int64_t *ranks);

/* Samplers of the caller's --------------------------------------------------------------------- */

/* The functions of a sampler. `self` is the pointer passed to tsr_sampler_create. Only `fill` and
 * `set_epoch` are required. A function that fails returns a status other than TSR_OK; the error
 * text then names the sampler, the function and the status. */
typedef struct tsr_sampler_ops {
    size_t struct_size; /* sizeof(tsr_sampler_ops) */
    const char *name;   /* copied; "custom" when NULL */

    /* 0: fill gives single indices. Otherwise each call gives one batch of 1 to batch_max indices.
     */
    uint64_t batch_max;

    /* Writes the next indices and their number, at most `capacity`, which is at least 1 and for
     * batches at least batch_max. Fewer than `capacity` indices, or for batches none, mean the end
     * of the epoch. `mask` is NULL or all 1; set mask[i] to 0 for an index that does not count. */
    tsr_status (*fill)(void *self, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count);

    /* Moves to the start of an epoch. Called before the first fill. */
    tsr_status (*set_epoch)(void *self, int64_t epoch);

    /* The number of items in this epoch, or TSR_LENGTH_UNKNOWN. NULL: always unknown. */
    uint64_t (*length)(void *self);

    /* Makes item `position`, at most the length, the next one. NULL: indices are read and
     * discarded. */
    tsr_status (*seek)(void *self, uint64_t position);

    /* A hash of the parameters: states of samplers with another hash are refused. NULL: 0. */
    uint64_t (*fingerprint)(void *self);

    /* For a sampler whose indices do not follow from epoch and position alone. save writes at most
     * TSR_SAMPLER_OWN_BYTES to a saved state. load is called after set_epoch and restores that
     * state, with the item that was next when it was saved. It may refuse the bytes, and must then
     * change nothing. Either both or none. */
    tsr_status (*save)(void *self, size_t capacity_bytes, void *data, size_t *size_bytes);
    tsr_status (*load)(void *self, const void *data, size_t size_bytes);

    void (*destroy)(void *self);
} tsr_sampler_ops;
#define TSR_SAMPLER_OWN_BYTES 16

/* Creates a sampler that can be used like any other, also inside others. The struct is copied. On
 * success `self` belongs to the sampler, which calls `destroy` at its end. Errors: TSR_ERR_INVALID
 * for an unknown struct_size, a missing function, a name of more than 31 bytes; the error of
 * set_epoch(0); TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create(const tsr_sampler_ops *ops, void *self,
                                                    tsr_sampler **out);

/* Samplers that depend on properties of the items ---------------------------------------------- */

/* The largest number of items of the samplers below. */
#define TSR_MAX_SAMPLER_SORTED (UINT64_C(1) << 31)

typedef struct tsr_sampler_length_sorted_params {
    const int64_t *lengths; /* [count], none negative; only read by the call */
    uint64_t count;
    int64_t batch_size;
    tsr_order order; /* of the batches: feistel, or none: the shortest items first */
    int64_t seed;
} tsr_sampler_length_sorted_params;
#define tsr_sampler_length_sorted_params(...) (&(tsr_sampler_length_sorted_params){__VA_ARGS__})

/* Gives batches of items of similar length, which need little padding: the items are sorted by
 * length, equal ones by index, and cut into batches. The order of the batches is random and differs
 * between epochs; the items within a batch stay the same. The shorter batch, of the longest items,
 * is at any place among the others. Takes four bytes of memory an item. `count` may be 0.
 *
 * Errors: TSR_ERR_INVALID if lengths is NULL and count is not 0, for a count above
 * TSR_MAX_SAMPLER_SORTED, a negative length, a batch size that is not positive, and the orders
 * torch, dotnet and mlx, which have no such sampler; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_length_sorted(const tsr_sampler_length_sorted_params *params, tsr_sampler **out);

typedef struct tsr_sampler_stratified_params {
    const int64_t *labels; /* [count], the class of each item, any values; only read by the call */
    uint64_t count;
    int64_t batch_size;
    tsr_order order; /* of the items within a class: feistel, or none: by index */
    int64_t seed;
} tsr_sampler_stratified_params;
#define tsr_sampler_stratified_params(...) (&(tsr_sampler_stratified_params){__VA_ARGS__})

/* Gives batches that each hold the classes in the proportions of the whole dataset, as closely as
 * whole items allow, and every item once. Places are assigned by largest remainder, and a class
 * that got less than its share in one batch gets more in the next: each place goes to the class
 * that is furthest behind its share of all places up to the end of that batch, among equal ones to
 * the smaller class; classes of the same size alternate. So no class is ever a whole item ahead,
 * and the items of a small class are spread over the epoch. The order of the items within a class
 * is random.
 *
 * Takes eight bytes of memory an item and 88 a class. Creating it sorts the labels and takes time
 * in proportion to batches × different class sizes. Errors are as above. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_stratified(const tsr_sampler_stratified_params *params, tsr_sampler **out);

typedef struct tsr_sampler_curriculum_params {
    const double *difficulties; /* [count], each in 0 … 1; only read by the call */
    uint64_t count;
    int64_t num_samples; /* indices in an epoch; 0: count */
    int64_t max_epochs;  /* E below, at least 1 */
    int64_t seed;
} tsr_sampler_curriculum_params;
#define tsr_sampler_curriculum_params(...) (&(tsr_sampler_curriculum_params){__VA_ARGS__})

/* Gives easy items first: epoch e draws from the items with a difficulty of at most e / (E − 1),
 * and from epoch E − 1 on from all. If no item is that easy, it draws from the easiest ones. It
 * draws num_samples items at random, each at most once, or with replacement if there are fewer
 * items. Takes twelve bytes of memory an item. Errors: TSR_ERR_INVALID if difficulties is NULL, for
 * a count of 0 or above TSR_MAX_SAMPLER_SORTED, a difficulty outside of 0 … 1 or NaN, num_samples
 * negative or above 2^62, max_epochs below 1; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_curriculum(const tsr_sampler_curriculum_params *params, tsr_sampler **out);

#ifdef __cplusplus
}
#endif

#endif
