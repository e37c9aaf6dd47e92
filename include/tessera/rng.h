/* Random number generators that reproduce those of other systems bit for bit. A generator is a
 * plain value in the caller's memory: it needs no freeing, and copying it copies its stream. Only
 * one thread at a time may use a generator; functions that take none are thread-safe.
 *
 *     tsr_philox      Philox4x32-10, as in cuRAND and in tsr_random_bits (ops.h) on the device
 *     tsr_mt19937     MT19937 like PyTorch's CPU generator, with its randint and randperm
 *     tsr_dotnet      .NET's System.Random with a seed
 *     tsr_threefry    threefry2x32-20 in the form that MLX and JAX use
 *     tsr_rng         any of the four, chosen at run time
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

/* Philox4x32-10 -------------------------------------------------------------------------------- */

/* Computes one block of the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel
 * random numbers: as easy as 1, 2, 3" (SC 2011). The lowest word comes first. `out` may be
 * `counter`. */
TSR_API void tsr_philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A stream of 2^64 words. Word i of (seed, stream) is word i % 4 of the block with key `seed` and
 * counter (i / 4, stream). It is also element i of tsr_random_bits with this seed, and with
 * `stream` as subsequence. */
typedef struct tsr_philox {
    uint64_t seed;
    uint64_t stream;
    uint64_t position; /* the index of the next word; may be set to any value at any time */
    uint64_t block;    /* the block that `words` holds; UINT64_MAX if none */
    uint32_t words[4];
} tsr_philox;

TSR_API void tsr_philox_init(uint64_t seed, uint64_t stream, tsr_philox *out);
TSR_API uint32_t tsr_philox_next_u32(tsr_philox *rng);
/* Returns (first word << 32) | second word. */
TSR_API uint64_t tsr_philox_next_u64(tsr_philox *rng);
/* Returns (next_u64 & (2^53 − 1)) · 2^-53, which is in [0, 1). */
TSR_API double tsr_philox_next_double(tsr_philox *rng);

/* MT19937 as PyTorch --------------------------------------------------------------------------- */

/* Matsumoto and Nishimura, "Mersenne Twister" (ACM TOMACS 8, 1998). */
typedef struct tsr_mt19937 {
    uint32_t words[624];
    uint32_t next; /* index of the next of `words`; 624: they must be computed anew */
} tsr_mt19937;

/* Seeds like torch.Generator.manual_seed. `seed` may be any 64 bits (a negative seed in two's
 * complement), of which only the lower 32 are used. */
TSR_API void tsr_mt19937_init(uint64_t seed, tsr_mt19937 *out);
TSR_API uint32_t tsr_mt19937_next_u32(tsr_mt19937 *rng);
/* Returns (first word << 32) | second word. */
TSR_API uint64_t tsr_mt19937_next_u64(tsr_mt19937 *rng);
/* Returns (next_u64 & (2^53 − 1)) · 2^-53, which is in [0, 1). */
TSR_API double tsr_mt19937_next_double(tsr_mt19937 *rng);
/* Has the effect of `words` calls of next_u32, but is faster. Takes time
 * proportional to `words`. */
TSR_API void tsr_mt19937_skip(tsr_mt19937 *rng, uint64_t words);

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

/* Knuth's subtractive generator (The Art of Computer Programming 2, 3.2.2) in the form that
 * System.Random(seed) has used since .NET Framework 1 and still uses in .NET 5 and later for
 * compatibility, with 32-bit wrapping arithmetic. */
typedef struct tsr_dotnet {
    int32_t table[56]; /* [0] is unused */
    int32_t next;      /* 0 … 55; advances before each draw */
    int32_t other;
} tsr_dotnet;

/* `seed` and −`seed` give the same stream; INT32_MIN and INT32_MAX do too. */
TSR_API void tsr_dotnet_init(int32_t seed, tsr_dotnet *out);
/* Next(): returns 0 … INT32_MAX − 1. */
TSR_API int32_t tsr_dotnet_next(tsr_dotnet *rng);
/* Next(max): gives 0 … max − 1, or 0 if max is 0. Errors: TSR_ERR_INVALID for a negative max; then
 * nothing is drawn. */
TSR_API TSR_NODISCARD tsr_status tsr_dotnet_next_max(tsr_dotnet *rng, int32_t max, int32_t *out);
/* Next(min, max): gives min … max − 1, or min if min == max. Draws twice if max − min > INT32_MAX.
 * Errors: TSR_ERR_INVALID if min > max; then nothing is drawn. */
TSR_API TSR_NODISCARD tsr_status tsr_dotnet_next_range(tsr_dotnet *rng, int32_t min, int32_t max,
                                                       int32_t *out);
/* NextDouble(): returns a value in [0, 1). */
TSR_API double tsr_dotnet_next_double(tsr_dotnet *rng);
/* NextBytes(): draws once for each byte. */
TSR_API void tsr_dotnet_next_bytes(tsr_dotnet *rng, size_t size_bytes, uint8_t *out);
/* Has the effect of `draws` calls of Next(). Takes time proportional to `draws`. */
TSR_API void tsr_dotnet_skip(tsr_dotnet *rng, uint64_t draws);
/* Shuffles the caller's items in place by the method of Fisher and Yates, from the end, with j =
 * Next(0, i + 1). Errors: TSR_ERR_INVALID for more than INT32_MAX items. */
TSR_API TSR_NODISCARD tsr_status tsr_dotnet_shuffle(tsr_dotnet *rng, uint64_t count,
                                                    int64_t *items);

/* threefry2x32-20 ------------------------------------------------------------------------------ */

/* A key. MLX and JAX use keys where other systems use generators. Source: the article of Salmon et
 * al. that tsr_philox_block names. The layout of keys and counters is that of MLX 0.32 (and of JAX
 * without partitionable threefry).
 */
typedef struct tsr_threefry_key {
    uint32_t words[2];
} tsr_threefry_key;

/* The hash function: computes two words from a counter of two words. `out` may be `counter`. */
TSR_API void tsr_threefry_hash(tsr_threefry_key key, const uint32_t counter[2], uint32_t out[2]);
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

/* A stream of words, which MLX does not have. Words 2b and 2b+1 are the hash of the counter (high
 * word of b, low word of b). The stream's aligned 64-bit values are those of JAX's partitionable
 * threefry. */
typedef struct tsr_threefry {
    tsr_threefry_key key;
    uint64_t position; /* the index of the next word; may be set to any value at any time */
    uint64_t pair;     /* the counter b whose words `words` holds; UINT64_MAX if none */
    uint32_t words[2];
} tsr_threefry;

TSR_API void tsr_threefry_init(tsr_threefry_key key, tsr_threefry *out);
TSR_API uint32_t tsr_threefry_next_u32(tsr_threefry *rng);
/* Returns (first word << 32) | second word. */
TSR_API uint64_t tsr_threefry_next_u64(tsr_threefry *rng);
/* Returns (next_u64 & (2^53 − 1)) · 2^-53, which is in [0, 1). */
TSR_API double tsr_threefry_next_double(tsr_threefry *rng);

/* Any of them ---------------------------------------------------------------------------------- */

typedef enum tsr_rng_kind {
    TSR_RNG_PHILOX = 0,
    TSR_RNG_MT19937 = 1,
    TSR_RNG_DOTNET = 2,
    TSR_RNG_THREEFRY = 3
} tsr_rng_kind;

/* Returns "philox", "mt19937", "dotnet" or "threefry", or "?" for any other value. The string is in
 * static storage. */
TSR_API const char *tsr_rng_kind_name(tsr_rng_kind kind);
/* Gives the kind called `name`. Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_rng_kind_parse(const char *name, tsr_rng_kind *out);

/* A generator of any kind, in 2.5 KB. The functions of the generator's own type may be used on the
 * union's member too. */
typedef struct tsr_rng {
    tsr_rng_kind kind;
    union {
        tsr_philox philox;
        tsr_mt19937 mt19937;
        tsr_dotnet dotnet;
        tsr_threefry threefry;
    } as;
} tsr_rng;

/* Makes a generator of this kind at the start of its stream (stream 0 for Philox). Pass negative
 * seeds in two's complement. Errors: TSR_ERR_INVALID for an unknown kind, and for a .NET seed
 * outside INT32_MIN … INT32_MAX. */
TSR_API TSR_NODISCARD tsr_status tsr_rng_init(tsr_rng_kind kind, uint64_t seed, tsr_rng *out);

/* These three functions call the function of the generator's kind, for example tsr_philox_next_u32.
 * For .NET they return 4 or 8 bytes of NextBytes, lowest first, and NextDouble. */
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

#ifdef __cplusplus
}
#endif

#endif
