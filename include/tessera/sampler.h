/* A sampler decides in which order the items of a dataset are read, and which process reads which
 * item. All samplers have the same interface:
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
 * What a sampler returns are called its items: depending on the sampler, each item is a single
 * index or a batch of indices. Positions and lengths are counted in items. An epoch is one pass
 * over the items. Samplers with the same parameters return the same items in epoch e on every
 * machine and in every process, no matter what was read before.
 *
 * A custom sampler is one whose functions the caller has written (tsr_sampler_create).
 *
 * Threads: only one thread at a time may use a sampler, the samplers that wrap it, and the loader
 * that reads from it. Other samplers are independent. No call blocks, except while it waits for a
 * function of a custom sampler. */
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
 * reference of its own, so the handles may be destroyed in any order. Sets *sampler to NULL. NULL
 * is allowed. */
TSR_API void tsr_sampler_destroy(tsr_sampler **sampler);

/* The number of items in this epoch, including those already given, or TSR_LENGTH_UNKNOWN. */
#define TSR_LENGTH_UNKNOWN UINT64_MAX
TSR_API uint64_t tsr_sampler_length(const tsr_sampler *sampler);

/* The number of items given so far in this epoch, which is the number of the next item. */
TSR_API uint64_t tsr_sampler_position(const tsr_sampler *sampler);
TSR_API int64_t tsr_sampler_epoch(const tsr_sampler *sampler);

/* What does not change between the epochs of a sampler, except if it is resumed. */
typedef struct tsr_sampler_info {
    size_t struct_size;
    /* "sequential", "random", "subset", "weighted", "batch", "distributed", "length-sorted",
     * "stratified" or "curriculum"; for a custom sampler, its name. Valid as long as the sampler
     * exists. */
    const char *name;
    /* The largest number of indices that a batch may have; 0 for a sampler of single indices. It is
     * never more than the number of items, if that is known for all epochs. */
    uint64_t batch_max;
    /* A distributed sampler's share; rank 0 of 1 for other samplers. If it was resumed with another
     * number of ranks, n and total describe the rest of the epoch. */
    int64_t ranks, rank;
    uint64_t n;     /* items that are divided over the ranks, or TSR_LENGTH_UNKNOWN */
    uint64_t total; /* items that all ranks get together: with padding, without dropped items */
} tsr_sampler_info;
TSR_API TSR_NODISCARD tsr_status tsr_sampler_get_info(const tsr_sampler *sampler,
                                                      tsr_sampler_info *info);

/* Reads the next item, an index or a batch, into the caller's indices[capacity]. *count is the
 * number of indices: 1 for a sampler of single indices, 0 at the end of the epoch. If `mask` is not
 * NULL, mask[i] is 1 for an index that counts and 0 for one that was added as padding
 * (TSR_TAIL_PAD_MASK). Errors: TSR_ERR_INVALID if `capacity` is less than the sampler's batch_max
 * or 1; the errors of a custom sampler's functions; TSR_ERR_NO_MEMORY if the call has to compute
 * the order of an epoch. After a failure the position has not changed. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_next(tsr_sampler *sampler, uint64_t capacity,
                                                  int64_t *indices, uint8_t *mask, uint64_t *count);

/* Reads as many items as fit: `capacity` indices, fewer only at the end of the epoch. A sampler of
 * batches gives whole batches while there is room for the largest one. *count is the number of
 * indices written, 0 only at the end of the epoch or for capacity 0. `mask` is as for
 * tsr_sampler_next. Errors are those of tsr_sampler_next. After a failure the position
 * has not changed. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_fill(tsr_sampler *sampler, uint64_t capacity,
                                                  int64_t *indices, uint8_t *mask, uint64_t *count);

/* Makes item `position` the next one. In the order feistel the call takes constant time. In the
 * orders torch, dotnet and mlx it may have to draw all random numbers up to that position. A custom
 * sampler without the function `seek` is read from the start of the epoch. Errors: TSR_ERR_INVALID
 * for a position beyond the length; otherwise as tsr_sampler_next. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_seek(tsr_sampler *sampler, uint64_t position);

/* Moves to the start of an epoch, also of the present one, which then gives the same items again. A
 * new sampler is in epoch 0. If the epoch was resumed with another number of ranks
 * (tsr_sampler_resume), it then has all of its items again, not only those that were left when the
 * state was saved. Errors: TSR_ERR_INVALID for an epoch
 * that the order does not support (only distributed samplers support negative epochs);
 * TSR_ERR_OVERFLOW if, in the order torch, dotnet or mlx, seed + epoch or the number of draws is
 * out of range; otherwise as tsr_sampler_next. After a failure nothing has changed. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_set_epoch(tsr_sampler *sampler, int64_t epoch);

/* Reads one batch of this epoch without changing the position. The epoch is divided into batches of
 * `batch_size` indices, of which the last may be shorter; `index` is the number of the batch,
 * counted from 0. Errors: TSR_ERR_INVALID for a batch size that is not positive or is above
 * `capacity`, for a batch beyond the last, and for a sampler of batches (use tsr_sampler_seek for
 * it); otherwise as tsr_sampler_next. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_get_batch(tsr_sampler *sampler, uint64_t index,
                                                       int64_t batch_size, uint64_t capacity,
                                                       int64_t *indices, uint8_t *mask,
                                                       uint64_t *count);
/* Gives the number of batches that tsr_sampler_get_batch can read. If `drop_last` is true, a
 * shorter last batch is not counted. Errors: TSR_ERR_INVALID for a batch size that is not positive,
 * and if the length is unknown. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_batch_count(const tsr_sampler *sampler,
                                                         int64_t batch_size, bool drop_last,
                                                         uint64_t *count);

/* Saving and resuming -------------------------------------------------------------------------- */

/* Saves the state that a sampler has after `position` items: its epoch and position, and those of
 * the samplers that it wraps. `position` is tsr_sampler_position(sampler), or another one in a
 * program that has read more items than it has used. Writes at most TSR_SAMPLER_STATE_BYTES to the
 * caller's `data`; *size_bytes is the number of bytes written. The bytes are the same on every
 * machine. They also contain a version, a checksum and all parameters except rank and ranks.
 *
 * Errors: TSR_ERR_INVALID if `capacity_bytes` is too small, and for a position beyond the length;
 * the errors of a custom sampler's functions. In two cases `position` must be the current position:
 * if a custom sampler saves a state of its own, and after a call of tsr_sampler_resume that failed
 * and could not restore the previous position. */
#define TSR_SAMPLER_STATE_BYTES 256
TSR_API TSR_NODISCARD tsr_status tsr_sampler_save(const tsr_sampler *sampler, uint64_t position,
                                                  size_t capacity_bytes, void *data,
                                                  size_t *size_bytes);

/* Moves a sampler to the epoch and position of a saved one. Both samplers must have the same
 * parameters. `data` may be any bytes. Errors: TSR_ERR_INVALID with a text that has the offset and
 * the reason: the data are not a state of this version, the checksum is wrong, the saved sampler is
 * of another kind, or a parameter differs (the text has its name and both values); otherwise as
 * tsr_sampler_next. After a failure nothing has changed. The checksum detects damage, not
 * deliberate changes: where moving to an epoch takes time in proportion to the draws before it
 * (tsr_sampler_create_random), a state from an adversary can name an epoch that takes years.
 *
 * A distributed sampler may have another number of ranks than the saved one. It then continues with
 * the rest of the epoch, which are exactly the items that the saved ranks have not given, and
 * divides the rest among its ranks. Position 0 is then the first item of the rank's share of the
 * rest, and the length is that of the share. When the state is saved, every rank must have given
 * the same number of items as the rank whose state is used. All ranks resume from the same state;
 * with TSR_TAIL_UNEVEN it must be that of rank 0, which has the most items (otherwise
 * TSR_ERR_INVALID, if the rest cannot be found). Two kinds of samplers cannot be resumed with
 * another number of ranks (TSR_ERR_INVALID): one with the order dotnet and TSR_TAIL_DROP, because
 * its order depends on the number of ranks, and a distributed sampler that wraps another
 * distributed sampler. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_resume(tsr_sampler *sampler, const void *data,
                                                    size_t size_bytes);

/* Orders --------------------------------------------------------------------------------------- */

typedef enum tsr_order {
    /* this library's own order: any item in constant time, without memory for the order (weighted
     * samplers need alias tables) */
    TSR_ORDER_FEISTEL = 0,
    /* PyTorch's order, bit for bit, from MT19937; needs 4 bytes of memory per item */
    TSR_ORDER_TORCH = 1,
    /* a shuffle by .NET's System.Random, bit for bit; needs 4 bytes of memory per item */
    TSR_ORDER_DOTNET = 2,
    TSR_ORDER_NONE = 3, /* no shuffling */
    /* MLX 0.32's argsort(random.uniform), bit for bit; needs 4 bytes of memory per item */
    TSR_ORDER_MLX = 4
} tsr_order;

/* Options of PyTorch that change its results. If all are 0, the sampler has
 * a generator of its own. */
typedef struct tsr_torch_options {
    size_t struct_size;
    tsr_torch_version version;
    /* The sampler was created with generator=None, after torch.manual_seed(seed). */
    bool global_generator;
    /* The sampler belongs to a DataLoader, which first draws 64 bits from the generator in each
     * epoch. */
    bool data_loader;
    /* For a distributed sampler: PyTorch's seed, from −2^63 to 2^64 − 1, is seed + seed_high ·
     * 2^64. So this is 1 for seeds of 2^63 or more, otherwise 0. */
    int seed_high;
} tsr_torch_options;
#define tsr_torch_options(...)                                                                     \
    (&(tsr_torch_options){.struct_size = sizeof(tsr_torch_options), __VA_ARGS__})

/* The permutation of 0 … n − 1 that the order feistel uses, for any n up to 2^62. It is a plain
 * value of 64 bytes, from which any element is computed in constant time. The permutation is a
 * Feistel network on a grid of about √n by √n instead of on bits: alternating rounds add a hash of
 * one coordinate to the other, and a result that is not below n is permuted again until it is
 * (cycle walking). Source: Black and Rogaway, "Ciphers with arbitrary finite domains" (CT-RSA
 * 2002). It must not be used to keep anything secret. */
typedef struct tsr_feistel {
    uint64_t n;
    uint32_t rows, columns;
    uint64_t keys[6];
} tsr_feistel;

/* Makes the permutation for (seed, epoch, pass). All bits of the three numbers have an effect.
 * Errors: TSR_ERR_INVALID if n > 2^62. */
#define TSR_MAX_FEISTEL (UINT64_C(1) << 62)
TSR_API TSR_NODISCARD tsr_status tsr_feistel_init(uint64_t n, uint64_t seed, uint64_t epoch,
                                                  uint64_t pass, tsr_feistel *out);
/* Returns the position of `element`, which must be below n. No pointer may be NULL. */
TSR_API uint64_t tsr_feistel_find(const tsr_feistel *order, uint64_t element);
/* Writes the `count` elements at positions first, first + step, first + 2 · step, …, all below n.
 */
TSR_API void tsr_feistel_fill(const tsr_feistel *order, uint64_t first, uint64_t step,
                              uint64_t count, int64_t *out);

/* Single indices ------------------------------------------------------------------------------- */

/* Gives 0 … n − 1 in ascending order. Errors: TSR_ERR_INVALID if n >
 * INT64_MAX, TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_sequential(uint64_t n, tsr_sampler **out);

typedef struct tsr_sampler_random_params {
    size_t struct_size;
    uint64_t n; /* items to draw from */
    tsr_order order;
    bool replacement;    /* draw each index from all n items, not only from those not yet drawn */
    int64_t num_samples; /* indices in an epoch; 0: n */
    int64_t seed; /* for PyTorch's seeds above INT64_MAX: the negative number with the same bits */
    const tsr_torch_options *torch;
} tsr_sampler_random_params;
#define tsr_sampler_random_params(...)                                                             \
    (&(tsr_sampler_random_params){.struct_size = sizeof(tsr_sampler_random_params), __VA_ARGS__})

/* Gives a permutation of 0 … n − 1, followed by further permutations if num_samples > n; or draws
 * with replacement.
 *
 * In the orders torch, dotnet and mlx, the generator is seeded once, and each epoch continues with
 * the numbers that follow those of the previous epoch. Moving to the next epoch is therefore cheap;
 * moving to any other epoch takes time proportional to the number of draws before it.
 *
 * The orders:
 *    torch     as PyTorch's RandomSampler (randperm; with replacement randint).
 *    dotnet    a shuffle of 0 … n − 1 by the method of Fisher and Yates for each permutation, and
 *              Next(0, n) for each draw with replacement.
 *    mlx       after mx.random.seed(seed), argsort(random.uniform) for each permutation, and one
 *              call of random.randint for all draws with replacement of an epoch. Computing a
 *              permutation takes another 16 bytes of memory per item.
 *    feistel   any item of any epoch in constant time. Draws with replacement use Lemire's method
 *              on Philox4x32-10 and are exactly uniform.
 *    none      0 … n − 1, repeated; it does not support drawing with replacement.
 *
 * Errors: TSR_ERR_INVALID for n 0 or above 2^62, num_samples negative or above 2^62, an invalid
 * order or option, a .NET seed or n that is not an int32, and for MLX a negative seed, n above 2^32
 * − 1 (with replacement 2^31 − 1) or more draws than that; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_random(const tsr_sampler_random_params *params,
                                                           tsr_sampler **out);

typedef struct tsr_sampler_subset_params {
    size_t struct_size;
    const int64_t *indices; /* [count], copied; any values */
    uint64_t count;
    tsr_order order;
    int64_t seed;
    const tsr_torch_options *torch;
} tsr_sampler_subset_params;
#define tsr_sampler_subset_params(...)                                                             \
    (&(tsr_sampler_subset_params){.struct_size = sizeof(tsr_sampler_subset_params), __VA_ARGS__})

/* Gives each of the indices once, in random order, as PyTorch's SubsetRandomSampler. Epochs are as
 * for tsr_sampler_create_random. `count` may be 0. Errors: TSR_ERR_INVALID if indices is NULL and
 * count is not 0; otherwise as tsr_sampler_create_random. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_subset(const tsr_sampler_subset_params *params,
                                                           tsr_sampler **out);

typedef struct tsr_sampler_weighted_params {
    size_t struct_size;
    /* The weights, [count]: exactly one of the two arrays must be set. They are read only during
     * the call. The sum of the weights need not be 1. */
    const double *weights;
    /* With the order torch, the results are those of multinomial of a float32 tensor, computed in
     * float32. */
    const float *weights_f32;
    uint64_t count;
    int64_t num_samples; /* indices in an epoch, at least 1 */
    bool replacement;    /* if false, each index is drawn at most once per epoch */
    tsr_order order;     /* feistel, torch or mlx */
    int64_t seed;
    const tsr_torch_options *torch;
} tsr_sampler_weighted_params;
#define tsr_sampler_weighted_params(...)                                                           \
    (&(tsr_sampler_weighted_params){.struct_size = sizeof(tsr_sampler_weighted_params),            \
                                    __VA_ARGS__})

/* Draws index i with a probability proportional to weight i. An index of weight 0 is never drawn.
 *
 * Order feistel: with replacement, the draws use Walker's alias method (ACM TOMS 3, 1977) on
 * Philox4x32-10. Any item is computed in constant time. It needs 12 bytes of memory per weight, and
 * allows up to 2^32 − 1 weights. Without replacement, the indices with the largest values of log(u)
 * / weight are chosen, where u is a random number for each index (Efraimidis and Spirakis,
 * Information Processing Letters 97, 2006). They are computed at the start of an epoch in time
 * O(count · log num_samples).
 *
 * Order torch: as PyTorch's WeightedRandomSampler, which calls torch.multinomial, with at most 2^24
 * weights. With replacement, the results equal PyTorch's bit for bit. Without replacement, and from
 * PyTorch 2.0 on also for a single sample, they equal those of a PyTorch built without MKL, unless
 * the last bit of the system's log1p differs; indices for which equal random numbers are drawn come
 * in ascending order. Each epoch continues with the numbers of one generator that follow those of
 * the previous epoch.
 *
 * Order mlx: as mx.random.categorical(log(weights / sum), num_samples=…). It draws a number for
 * each pair of a sample and a weight, at most 2^32 − 1 in total, and takes time in proportion to
 * them; the sample is the index whose sum of number and logarithm is the largest. MLX does not
 * offer drawing without replacement; here it gives the indices of the largest sums of one draw, the
 * largest first. The numbers equal MLX's bit for bit. The samples equal MLX's unless two sums
 * differ by less than the rounding of 32-bit logarithms. Epochs are as in the order torch.
 *
 * Errors: TSR_ERR_INVALID for no weight or too many, a weight that is negative, infinite or NaN,
 * weights whose sum is 0 (torch with replacement: or overflows the type of the weights; mlx: or is
 * 0 or infinite as a 32-bit float), num_samples below 1, more samples without replacement than
 * weights above 0 (mlx: than weights whose share of the sum is above 0 as a 32-bit float), a
 * negative seed for MLX; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_weighted(const tsr_sampler_weighted_params *params, tsr_sampler **out);

/* Samplers of samplers ------------------------------------------------------------------------- */

/* A sampler that wraps another sampler, its `base`, keeps a reference to the base and moves it. As
 * long as the wrapping sampler exists, nothing else may read or move the base. The caller must
 * still destroy its own handle of the base. */

typedef struct tsr_sampler_batch_params {
    size_t struct_size;
    tsr_sampler *base;
    int64_t batch_size; /* may exceed the number of items */
    bool drop_last;     /* leave out the last batch if it is shorter */
} tsr_sampler_batch_params;
#define tsr_sampler_batch_params(...)                                                              \
    (&(tsr_sampler_batch_params){.struct_size = sizeof(tsr_sampler_batch_params), __VA_ARGS__})

/* Gives the indices of the base in batches, in the order of the base, as PyTorch's BatchSampler.
 * Errors: TSR_ERR_INVALID if base is NULL or gives batches, and for a batch size that is not
 * positive; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create_batch(const tsr_sampler_batch_params *params,
                                                          tsr_sampler **out);

/* What a distributed sampler does if n is not a multiple of the number of ranks. */
typedef enum tsr_tail {
    /* items from the start of the order are repeated, so that all ranks get the same number */
    TSR_TAIL_PAD = 0,
    TSR_TAIL_PAD_MASK = 1, /* like PAD, and the mask is 0 for the repeated items */
    TSR_TAIL_UNEVEN = 2,   /* every item once; some ranks get one item fewer */
    TSR_TAIL_DROP = 3      /* the remainder at the end of the (shuffled) order is left out */
} tsr_tail;

typedef enum tsr_split {
    TSR_SPLIT_INTERLEAVED = 0, /* rank r gets items r, r + ranks, r + 2 · ranks, … of the order */
    TSR_SPLIT_CONTIGUOUS = 1   /* the order is cut into one range per rank; rank r gets the r-th */
} tsr_split;

typedef struct tsr_sampler_distributed_params {
    size_t struct_size;
    /* What is divided: either a dataset of n items, or the items of another sampler. */
    uint64_t n;
    tsr_sampler *base; /* a sampler of single indices or of batches; NULL if n is set */
    /* If ranks is 0, both numbers come from tsr_rank_from_environment. If ranks is set, rank must
     * be set too: otherwise it is 0, and every process reads the items of rank 0. */
    int64_t ranks, rank;
    tsr_order order; /* the order of the dataset; ignored if `base` is set */
    tsr_tail tail;
    tsr_split split;
    int64_t seed; /* must be the same on all ranks */
    const tsr_torch_options *torch;
} tsr_sampler_distributed_params;
#define tsr_sampler_distributed_params(...)                                                        \
    (&(tsr_sampler_distributed_params){.struct_size = sizeof(tsr_sampler_distributed_params),      \
                                       __VA_ARGS__})

/* Gives one rank's share of a dataset in shuffled order, or of another sampler's items. All ranks
 * must use the same parameters, except for rank.
 *
 * The orders of epoch e:
 *    torch     as PyTorch's DistributedSampler: randperm with the seed seed + e.
 *    dotnet    a shuffle by the method of Fisher and Yates with System.Random of seed + e, which
 *              wraps as an int32. With TSR_TAIL_DROP only the first n / ranks · ranks items are
 *              shuffled; all other orders shuffle all n items, and then leave out the remainder.
 *    mlx       argsort(random.uniform) with the key of seed + e.
 *    feistel   the permutation that tsr_feistel_init makes from seed and e.
 *
 * The call moves a wrapped sampler to the start of its epoch. When this sampler moves to another
 * epoch, the wrapped sampler moves, too. If its length is unknown, the split must be interleaved,
 * and TSR_TAIL_DROP reads one item for every rank before this sampler gives one.
 *
 * Errors: TSR_ERR_INVALID if both n and base are set, for n above 2^62, ranks or rank out of range,
 * and as for tsr_sampler_create_random; TSR_ERR_OVERFLOW if a wrapped sampler has more than 2^62
 * items; the errors of tsr_rank_from_environment and of the wrapped sampler; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_distributed(const tsr_sampler_distributed_params *params, tsr_sampler **out);

/* Gets the rank of this process and the number of ranks from the environment variables of the
 * program that launched the job. Each line below is a pair of variables. The first pair of which at
 * least one variable is set is used, and both of its variables must be set:
 *
 *     RANK, WORLD_SIZE                                torchrun, tessera launch
 *     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE      mpirun of Open MPI
 *     PMI_RANK, PMI_SIZE                              mpiexec of MPICH and its derivatives
 *     SLURM_PROCID, SLURM_STEP_NUM_TASKS              srun
 *
 * If none is set, the result is rank 0 of 1. As in tsr_comm_create, PMIX_NAMESPACE and PMIX_RANK
 * have precedence over RANK, unless they belong to a torchrun that was itself started through PMIx.
 * TESSERA_BOOT has precedence over all: "env" selects RANK, "pmix" the other pairs, and "single"
 * rank 0 of 1. A program whose communicator was created in another way should pass the
 * communicator's rank and size instead. Errors: TSR_ERR_INVALID naming the variable that is
 * missing, not a number or out of range; also for PMIX_RANK alone, which does not give the number
 * of ranks. */
TSR_API TSR_NODISCARD tsr_status tsr_rank_from_environment(int64_t *rank, int64_t *ranks);

/* Custom samplers ------------------------------------------------------------------------------ */

/* The functions of a sampler. `self` is the pointer passed to tsr_sampler_create. Only `fill` and
 * `set_epoch` are required. A function that fails returns a status other than TSR_OK; the error
 * text then names the sampler, the function and the status. */
typedef struct tsr_sampler_ops {
    size_t struct_size; /* sizeof(tsr_sampler_ops) */
    const char *name;   /* copied; "custom" when NULL */

    /* 0: `fill` writes single indices. Otherwise each call of it writes one batch of 1 to batch_max
     * indices. */
    uint64_t batch_max;

    /* Writes the next indices, at most `capacity`, and sets *count to their number. `capacity` is
     * at least 1, and at least batch_max for a sampler of batches. The epoch has ended if the
     * function writes fewer than `capacity` indices, or for a sampler of batches none. `mask` is
     * NULL or all 1; the function sets mask[i] to 0 for an index that is only padding. */
    tsr_status (*fill)(void *self, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count);

    /* Moves to the start of an epoch. Called before the first fill. */
    tsr_status (*set_epoch)(void *self, int64_t epoch);

    /* The number of items in this epoch, or TSR_LENGTH_UNKNOWN. NULL: always unknown. */
    uint64_t (*length)(void *self);

    /* Makes item `position`, at most the length, the next one. NULL: the library reads indices and
     * discards them. */
    tsr_status (*seek)(void *self, uint64_t position);

    /* Returns a hash of the sampler's parameters. The saved state of a sampler with another hash is
     * refused. NULL: the hash is 0. */
    uint64_t (*fingerprint)(void *self);

    /* For a sampler whose indices depend on more than the epoch and the position. `save` writes a
     * state of at most TSR_SAMPLER_OWN_BYTES, which becomes part of the saved state. `load` is
     * called after set_epoch and restores that state; the next item is then the one that was next
     * when the state was saved. `load` may refuse the bytes, and must then change nothing. Set both
     * functions or neither. */
    tsr_status (*save)(void *self, size_t capacity_bytes, void *data, size_t *size_bytes);
    tsr_status (*load)(void *self, const void *data, size_t size_bytes);

    void (*destroy)(void *self);
} tsr_sampler_ops;
#define TSR_SAMPLER_OWN_BYTES 16

/* Creates a custom sampler. It can be used like any other sampler, also as the base of another. The
 * struct is copied. On success `self` belongs to the sampler, which calls ops->destroy when it is
 * destroyed. Errors: TSR_ERR_INVALID for a missing function and for a name of more than 31 bytes;
 * the error of set_epoch(0); TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampler_create(const tsr_sampler_ops *ops, void *self,
                                                    tsr_sampler **out);

/* Samplers that depend on properties of the items ---------------------------------------------- */

/* The largest number of items of length-sorted, stratified and curriculum samplers. */
#define TSR_MAX_SAMPLER_SORTED (UINT64_C(1) << 31)

typedef struct tsr_sampler_length_sorted_params {
    size_t struct_size;
    const int64_t *lengths; /* [count], none negative; read only during the call */
    uint64_t count;
    int64_t batch_size;
    /* The order of the batches: feistel, or none, which gives the shortest items first. */
    tsr_order order;
    int64_t seed;
} tsr_sampler_length_sorted_params;
#define tsr_sampler_length_sorted_params(...)                                                      \
    (&(tsr_sampler_length_sorted_params){.struct_size = sizeof(tsr_sampler_length_sorted_params),  \
                                         __VA_ARGS__})

/* Gives batches of items of similar length, which need little padding. The items are sorted by
 * length, those of equal length by index, and then divided into batches. The order of the batches
 * is random and differs between epochs; the items of each batch stay the same. If count is not a
 * multiple of batch_size, the batch of the longest items is shorter; it may come at any place among
 * the others. The sampler takes four bytes of memory per item. `count` may be 0.
 *
 * Errors: TSR_ERR_INVALID if lengths is NULL and count is not 0, for a count above
 * TSR_MAX_SAMPLER_SORTED, a negative length, a batch size that is not positive, and the orders
 * torch, dotnet and mlx, which have no such sampler; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_length_sorted(const tsr_sampler_length_sorted_params *params, tsr_sampler **out);

typedef struct tsr_sampler_stratified_params {
    size_t struct_size;
    /* [count]: the class of each item, any values; read only during the call */
    const int64_t *labels;
    uint64_t count;
    int64_t batch_size;
    /* The order of the items within a class: feistel, or none, which is by index. */
    tsr_order order;
    int64_t seed;
} tsr_sampler_stratified_params;
#define tsr_sampler_stratified_params(...)                                                         \
    (&(tsr_sampler_stratified_params){.struct_size = sizeof(tsr_sampler_stratified_params),        \
                                      __VA_ARGS__})

/* Gives batches in each of which the classes have nearly the same proportions as in the full
 * dataset. An epoch has every item once.
 *
 * A class that makes up the fraction f of the dataset should have f · t of the first t places of an
 * epoch. The places of a batch are assigned one after another. Each goes to the class that is
 * furthest below its number f · t, where t is counted at the end of that batch; if several classes
 * are equally far below, to the smallest of them; classes of the same size alternate. A class that
 * got too little in one batch therefore gets more in the next. No class is ever a full item above
 * its number, and the items of a small class are spread over the epoch. The order of the items
 * within a class is random.
 *
 * The sampler takes eight bytes of memory per item and 88 per class. Creating it sorts the labels,
 * and then takes time in proportion to the number of batches times the number of different class
 * sizes. Errors are as for tsr_sampler_create_length_sorted. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_stratified(const tsr_sampler_stratified_params *params, tsr_sampler **out);

typedef struct tsr_sampler_curriculum_params {
    size_t struct_size;
    const double *difficulties; /* [count], each in 0 … 1; read only during the call */
    uint64_t count;
    int64_t num_samples; /* indices in an epoch; 0: count */
    int64_t max_epochs;  /* E in the comment below; at least 1 */
    int64_t seed;
} tsr_sampler_curriculum_params;
#define tsr_sampler_curriculum_params(...)                                                         \
    (&(tsr_sampler_curriculum_params){.struct_size = sizeof(tsr_sampler_curriculum_params),        \
                                      __VA_ARGS__})

/* Gives easy items first. Epoch e draws from the items with a difficulty of at most e / (E − 1),
 * and from epoch E − 1 on it draws from all items. If no item is that easy, it draws from the items
 * with the lowest difficulty. It draws num_samples items at random: each at most once, or with
 * replacement if there are fewer than num_samples items to draw from. The sampler takes twelve
 * bytes of memory per item. Errors: TSR_ERR_INVALID if difficulties is NULL, for a count of 0 or
 * above TSR_MAX_SAMPLER_SORTED, a difficulty outside of 0 … 1 or NaN, num_samples negative or above
 * 2^62, max_epochs below 1; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status
tsr_sampler_create_curriculum(const tsr_sampler_curriculum_params *params, tsr_sampler **out);

#ifdef __cplusplus
}
#endif

#endif
