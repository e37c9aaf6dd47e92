/* Random number generators that reproduce those of other systems bit for bit. A generator is a
 * plain value in the caller's memory: it needs no freeing, and copying it copies its stream. Only
 * one thread at a time may use a generator; functions that take none are thread-safe.
 *
 *     tsr_rng rng;
 *     int64_t order[1000];
 *     tsr_status status = tsr_rng_init(TSR_RNG_MT19937, 42, 0, &rng);      // manual_seed(42)
 *     if (status == TSR_OK)                                               // randperm(1000)
 *         status = tsr_torch_randperm(&rng.as.mt19937, TSR_TORCH_DEFAULT, 1000, order);
 *
 * The functions tsr_rng_… work with a generator of any kind. The others compute what one other
 * system computes from its generator.
 *
 * A function that returns no status cannot fail, and its pointers must not be NULL. Positions and
 * numbers of draws count the generator's own outputs: 32-bit words, or calls of Next() for .NET. */
#ifndef TESSERA_RNG_H
#define TESSERA_RNG_H

#include <stdint.h>

#include "tessera/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Generators ----------------------------------------------------------------------------------- */

typedef enum tsr_rng_kind {
    /* Philox4x32-10, as in cuRAND and, on the device, in tsr_random_params (ops.h) */
    TSR_RNG_PHILOX = 0,
    /* MT19937, seeded like torch.Generator.manual_seed */
    TSR_RNG_MT19937 = 1,
    /* .NET's System.Random with a seed */
    TSR_RNG_DOTNET = 2,
    /* threefry2x32-20: the counters of JAX's partitionable threefry, under the key
       tsr_threefry_key_from_seed(seed) */
    TSR_RNG_THREEFRY = 3
} tsr_rng_kind;

/* Returns "philox", "mt19937", "dotnet" or "threefry", or "?" for any other value. The string is in
 * static storage. */
TSR_API const char *tsr_rng_kind_name(tsr_rng_kind kind);
/* Gives the kind called `name`. Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_rng_kind_parse(const char *name, tsr_rng_kind *out);

/* A stream of 2^64 words. Word i of (seed, stream) is word i % 4, lowest first, of the block with
 * key `seed` and counter (i / 4, stream). The device's functions make element i
 * from it with this seed, and with `stream` as subsequence (tsr_random_params, ops.h). Source:
 * Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). */
typedef struct tsr_philox {
    uint64_t seed;
    uint64_t stream;
    uint64_t position; /* the index of the next word; may be set to any value at any time */
    uint64_t block;    /* the block that `words` holds; UINT64_MAX if none */
    uint32_t words[4];
} tsr_philox;

/* Source: Matsumoto and Nishimura, "Mersenne Twister" (ACM TOMACS 8, 1998). */
typedef struct tsr_mt19937 {
    uint32_t words[624];
    uint32_t next; /* index of the next of `words`; 624: they must be computed anew */
} tsr_mt19937;

/* Knuth's subtractive generator (The Art of Computer Programming 2, 3.2.2) in the form that
 * System.Random(seed) has used since .NET Framework 1 and still uses in .NET 5 and later for
 * compatibility, with 32-bit wrapping arithmetic. */
typedef struct tsr_dotnet {
    int32_t table[56]; /* [0] is unused */
    int32_t next;      /* 0 … 55; advances before each draw */
    int32_t other;
} tsr_dotnet;

/* A key of threefry2x32-20. MLX and JAX use keys where other systems use generators. Source: the
 * article of Salmon et al. that tsr_philox names. */
typedef struct tsr_threefry_key {
    uint32_t words[2];
} tsr_threefry_key;

/* A stream of words, which MLX does not have. Words 2b and 2b+1 are the hash of the counter (high
 * word of b, low word of b) under the key. The stream's aligned 64-bit values are those of JAX's
 * partitionable threefry. */
typedef struct tsr_threefry {
    tsr_threefry_key key;
    uint64_t position; /* the index of the next word; may be set to any value at any time */
    uint64_t pair;     /* the counter b whose words `words` holds; UINT64_MAX if none */
    uint32_t words[2];
} tsr_threefry;

/* A generator of any kind, in 2.5 KB, of which the kind's own member is used. */
typedef struct tsr_rng {
    tsr_rng_kind kind;
    union {
        tsr_philox philox;
        tsr_mt19937 mt19937;
        tsr_dotnet dotnet;
        tsr_threefry threefry;
    } as;
} tsr_rng;

/* Makes a generator at the start of its stream. Pass negative seeds in two's complement. MT19937
 * uses only the lower 32 bits of the seed, and for .NET `seed` and −`seed` give the same stream, as
 * INT32_MIN and INT32_MAX do. `stream` selects one of the 2^64 streams that Philox has for each
 * seed, and must be 0 for the other kinds. Errors: TSR_ERR_INVALID for an unknown kind, for a .NET
 * seed outside INT32_MIN … INT32_MAX, and for a stream that the kind does not have. */
TSR_API TSR_NODISCARD tsr_status tsr_rng_init(tsr_rng_kind kind, uint64_t seed, uint64_t stream,
                                              tsr_rng *out);

/* Return the next 32 bits, the next 64 bits, (first word << 32) | second word, and a number in
 * [0, 1), (next_u64 & (2^53 − 1)) · 2^-53, as PyTorch's generator does. For .NET they return 4 or 8
 * bytes of NextBytes, lowest first, and NextDouble. */
TSR_API uint32_t tsr_rng_next_u32(tsr_rng *rng);
TSR_API uint64_t tsr_rng_next_u64(tsr_rng *rng);
TSR_API double tsr_rng_next_double(tsr_rng *rng);

/* Returns a value that is exactly uniform in 0 … n − 1 for n ≥ 1. For n = 0 it returns 0 without a
 * draw. Draws one 32-bit value for n ≤ 2^32 and one 64-bit value for larger n, and another one each
 * time a value is rejected. Source: Lemire, "Fast random integer generation in an interval" (ACM
 * TOMACS 29, 2019). */
TSR_API uint64_t tsr_rng_below(tsr_rng *rng, uint64_t n);

/* Skips the next `draws` outputs: 32-bit words, or calls of Next() for .NET. Takes constant time
 * for Philox and threefry, whose position wraps at 2^64, and time proportional to `draws` for the
 * others. */
TSR_API void tsr_rng_skip(tsr_rng *rng, uint64_t draws);

/* Writes the state to the caller's `data`, of `capacity_bytes`: a header with version and kind, the
 * state, and a checksum. The bytes are the same on every machine. *size_bytes is the number of
 * bytes written, at most TSR_RNG_STATE_BYTES. Errors: TSR_ERR_INVALID if `capacity_bytes` is too
 * small or the generator is damaged. */
#define TSR_RNG_STATE_BYTES 2516
TSR_API TSR_NODISCARD tsr_status tsr_rng_save(const tsr_rng *rng, size_t capacity_bytes, void *data,
                                              size_t *size_bytes);
/* Restores a saved generator. `data` may be any bytes. Errors: TSR_ERR_INVALID naming the offset
 * and the reason: a wrong length, an unknown format, version or kind, a checksum that does not
 * match, or an impossible state. */
TSR_API TSR_NODISCARD tsr_status tsr_rng_load(const void *data, size_t size_bytes, tsr_rng *out);

/* PyTorch -------------------------------------------------------------------------------------- */

/* The release of PyTorch to reproduce, because releases differ. */
typedef enum tsr_torch_version {
    TSR_TORCH_DEFAULT = 0, /* 2.6 */
    TSR_TORCH_1_13 = 113,  /* all releases before 2.0 */
    TSR_TORCH_2_0 = 200,   /* 2.0 to 2.5: multinomial of one sample uses another algorithm */
    TSR_TORCH_2_6 = 206,   /* randperm of n ≥ 214748364 draws 64 bits for each element */
    TSR_TORCH_2_7 = 207    /* and later: randint draws 64 bits for ranges ≥ 2^28, not ≥ 2^32 */
} tsr_torch_version;

/* torch.randint(low, high, (count,)): writes `count` values in low … high−1 to the caller's `out`.
 * It takes remainders as PyTorch does, so the values are not exactly uniform. Errors:
 * TSR_ERR_INVALID if low ≥ high or for an unknown version; then nothing is drawn. */
TSR_API TSR_NODISCARD tsr_status tsr_torch_randint(tsr_mt19937 *rng, tsr_torch_version version,
                                                   int64_t low, int64_t high, uint64_t count,
                                                   int64_t *out);

/* torch.randperm(n): writes n indices to the caller's `out`. Errors: TSR_ERR_INVALID for an unknown
 * version, TSR_ERR_OVERFLOW if n indices do not fit the address space. */
TSR_API TSR_NODISCARD tsr_status tsr_torch_randperm(tsr_mt19937 *rng, tsr_torch_version version,
                                                    uint64_t n, int64_t *out);

/* .NET System.Random --------------------------------------------------------------------------- */

/* Next(): returns 0 … INT32_MAX − 1. Its lowest 8 bits are the next byte of NextBytes(). */
TSR_API int32_t tsr_dotnet_next(tsr_dotnet *rng);
/* Next(min, max): gives min … max − 1, or min if min == max. Next(max) is Next(0, max). Draws twice
 * if max − min > INT32_MAX. Errors: TSR_ERR_INVALID if min > max; then nothing is drawn. */
TSR_API TSR_NODISCARD tsr_status tsr_dotnet_next_range(tsr_dotnet *rng, int32_t min, int32_t max,
                                                       int32_t *out);
/* Shuffles the caller's items in place by the method of Fisher and Yates, from the end, with j =
 * Next(0, i + 1). Errors: TSR_ERR_INVALID for more than INT32_MAX items. */
TSR_API TSR_NODISCARD tsr_status tsr_dotnet_shuffle(tsr_dotnet *rng, uint64_t count,
                                                    int64_t *items);

/* MLX and JAX ---------------------------------------------------------------------------------- */

/* The layout of keys and counters is that of MLX 0.32 (and of JAX without partitionable threefry).
 */

/* mx.random.key(seed): returns the key whose first word is the high word of `seed`. */
TSR_API tsr_threefry_key tsr_threefry_key_from_seed(uint64_t seed);
/* mx.random.split(key, count): writes `count` keys to the caller's `out`. Errors: TSR_ERR_INVALID
 * if count > 2^31. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_split(tsr_threefry_key key, uint64_t count,
                                                    tsr_threefry_key *out);
/* Advances *state like mx.random's implicit state: splits it in two, replaces *state by the first
 * key and returns the second. */
TSR_API tsr_threefry_key tsr_threefry_next_key(tsr_threefry_key *state);

/* mx.random.bits: writes `count` little-endian values of `width_bytes` (1, 2 or 4) to the caller's
 * `out`, of count · width_bytes bytes. The value of the i-th 32-bit word depends on the number of
 * words. Errors: TSR_ERR_INVALID for another width or more than 2^32 − 1 words. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_bits(tsr_threefry_key key, int width_bytes,
                                                   uint64_t count, void *out);
/* mx.random.uniform in f32: writes `count` values min((float)bits / 2^32, 1 − 2^-24) to the
 * caller's `out`. Errors: TSR_ERR_INVALID for more than 2^32 − 1 words. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_uniform(tsr_threefry_key key, uint64_t count,
                                                      float *out);
/* mx.random.randint of MLX up to 0.32 (later versions take remainders of bits): the floor of the
 * float low + (high − low) · u, clamped to low … high − 1. Errors: TSR_ERR_INVALID if low ≥ high or
 * for more than 2^32 − 1 words. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_randint(tsr_threefry_key key, int32_t low,
                                                      int32_t high, uint64_t count, int32_t *out);
/* mx.random.permutation(n): writes the stable argsort of n words of bits to the caller's `out`. It
 * temporarily uses 16 n bytes of memory. Errors: TSR_ERR_INVALID if n > 2^32 − 1,
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_permutation(tsr_threefry_key key, uint64_t n,
                                                          int64_t *out);
/* mx.argsort(mx.random.uniform((n,))): as tsr_threefry_permutation, but sorts uniform floats
 * instead of words of bits, which are more often equal. Errors as for tsr_threefry_permutation. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_argsort_uniform(tsr_threefry_key key, uint64_t n,
                                                              int64_t *out);

#ifdef __cplusplus
}
#endif

#endif
