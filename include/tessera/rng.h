/* Random number generators that reproduce those of other systems bit for bit, as plain values in
 * the caller's memory: nothing to free, copying one copies its stream. A generator belongs to one
 * thread at a time; functions without one are thread-safe.
 *
 *     tsr_philox      Philox4x32-10: cuRAND's core, and the one that tsr_random uses on the device
 *     tsr_mt19937     MT19937 as PyTorch's CPU generator, with its randint and randperm
 *     tsr_dotnet      .NET's System.Random with a seed
 *     tsr_threefry    threefry2x32-20 as MLX and JAX use it
 *     tsr_rng         any of the four, chosen at run time
 *
 * A function that returns no status cannot fail; pointers are then not NULL. Positions and counts
 * of draws are in the generator's own outputs: 32-bit words, or for .NET calls of Next(). */
#ifndef TESSERA_RNG_H
#define TESSERA_RNG_H

#include <stdint.h>

#include "tessera/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Philox4x32-10 -------------------------------------------------------------------------------- */

/* One block of the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3" (SC 2011). Lowest word first. `out` may be `counter`. */
TSR_API void tsr_philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A stream of 2^64 words. Word i of (seed, stream) is word i % 4 of the block with key `seed` and
 * counter (i / 4, stream), the same as element i of tsr_random with that seed and subsequence. */
typedef struct tsr_philox {
    uint64_t seed;
    uint64_t stream;
    uint64_t position; /* the word that comes next; may be set to any value at any time */
    uint64_t block;    /* which block `words` holds; UINT64_MAX when none */
    uint32_t words[4];
} tsr_philox;

TSR_API void tsr_philox_init(uint64_t seed, uint64_t stream, tsr_philox *out);
TSR_API uint32_t tsr_philox_next_u32(tsr_philox *rng);
/* (first word << 32) | second word. */
TSR_API uint64_t tsr_philox_next_u64(tsr_philox *rng);
/* In [0, 1): (next_u64 & (2^53 − 1)) · 2^-53. */
TSR_API double tsr_philox_next_double(tsr_philox *rng);

/* MT19937 as PyTorch --------------------------------------------------------------------------- */

/* Matsumoto and Nishimura, "Mersenne Twister" (ACM TOMACS 8, 1998). */
typedef struct tsr_mt19937 {
    uint32_t words[624];
    uint32_t next; /* of `words`; 624: a new set is due */
} tsr_mt19937;

/* As torch.Generator.manual_seed: any 64 bits (a negative seed in two's complement), of which the
 * lower 32 count. */
TSR_API void tsr_mt19937_init(uint64_t seed, tsr_mt19937 *out);
TSR_API uint32_t tsr_mt19937_next_u32(tsr_mt19937 *rng);
/* (first word << 32) | second word. */
TSR_API uint64_t tsr_mt19937_next_u64(tsr_mt19937 *rng);
/* In [0, 1): (next_u64 & (2^53 − 1)) · 2^-53. */
TSR_API double tsr_mt19937_next_double(tsr_mt19937 *rng);
/* As `words` calls of next_u32, but faster. Takes time proportional to `words`. */
TSR_API void tsr_mt19937_skip(tsr_mt19937 *rng, uint64_t words);

/* Which release of PyTorch is to be reproduced, where they differ. */
typedef enum tsr_torch_version {
    TSR_TORCH_DEFAULT = 0, /* 2.6 */
    TSR_TORCH_1_13 = 113,  /* all before 2.0 */
    TSR_TORCH_2_0 = 200,   /* 2.0 to 2.5: multinomial of one sample takes another path */
    TSR_TORCH_2_6 = 206,   /* randperm of n ≥ 214748364 draws 64 bits for each element */
    TSR_TORCH_2_7 = 207    /* and later: randint draws 64 bits from a range of 2^28, not 2^32, on */
} tsr_torch_version;

/* torch.randint(low, high, (count,)): out[i] in low … high−1, by remainder, as PyTorch does (not
 * exactly uniform). Errors: TSR_ERR_INVALID when low ≥ high or for an unknown version; then nothing
 * is drawn. */
TSR_API TSR_NODISCARD tsr_status tsr_torch_randint(tsr_mt19937 *rng, tsr_torch_version version,
                                                   int64_t low, int64_t high, uint64_t count,
                                                   int64_t *out);

/* torch.randperm(n): writes n indices to the caller's `out`. Errors: TSR_ERR_INVALID for an unknown
 * version, TSR_ERR_OVERFLOW when n indices are more than memory can hold. */
TSR_API TSR_NODISCARD tsr_status tsr_torch_randperm(tsr_mt19937 *rng, tsr_torch_version version,
                                                    uint64_t n, int64_t *out);

/* .NET System.Random --------------------------------------------------------------------------- */

/* Knuth's subtractive generator (The Art of Computer Programming 2, 3.2.2) in the form that
 * System.Random(seed) has had since .NET Framework 1 and keeps in .NET 5 and later for
 * compatibility, with 32-bit wrapping arithmetic. */
typedef struct tsr_dotnet {
    int32_t table[56]; /* [0] is unused */
    int32_t next;      /* 0 … 55; moves before each draw */
    int32_t other;
} tsr_dotnet;

/* `seed` and −`seed` give the same stream; INT32_MIN that of INT32_MAX. */
TSR_API void tsr_dotnet_init(int32_t seed, tsr_dotnet *out);
/* Next(): 0 … INT32_MAX − 1. */
TSR_API int32_t tsr_dotnet_next(tsr_dotnet *rng);
/* Next(max): 0 … max − 1, and 0 for max 0. Errors: TSR_ERR_INVALID for a negative max; nothing is
 * drawn. */
TSR_API TSR_NODISCARD tsr_status tsr_dotnet_next_max(tsr_dotnet *rng, int32_t max, int32_t *out);
/* Next(min, max): min … max − 1, and min for min == max. Draws twice when max − min > INT32_MAX.
 * Errors: TSR_ERR_INVALID when min > max; nothing is drawn. */
TSR_API TSR_NODISCARD tsr_status tsr_dotnet_next_range(tsr_dotnet *rng, int32_t min, int32_t max,
                                                       int32_t *out);
/* NextDouble(): in [0, 1). */
TSR_API double tsr_dotnet_next_double(tsr_dotnet *rng);
/* NextBytes(): one draw for each byte. */
TSR_API void tsr_dotnet_next_bytes(tsr_dotnet *rng, size_t size_bytes, uint8_t *out);
/* As `draws` calls of Next(). Takes time proportional to `draws`. */
TSR_API void tsr_dotnet_skip(tsr_dotnet *rng, uint64_t draws);
/* Fisher and Yates' shuffle from the end, j = Next(0, i + 1), of the caller's items. Errors:
 * TSR_ERR_INVALID when there are more than INT32_MAX. */
TSR_API TSR_NODISCARD tsr_status tsr_dotnet_shuffle(tsr_dotnet *rng, uint64_t count,
                                                    int64_t *items);

/* threefry2x32-20 ------------------------------------------------------------------------------ */

/* A key, which in MLX and JAX is what a generator is elsewhere. Source: Salmon et al., as above;
 * the layout of keys and counters is that of MLX 0.32 (and JAX without partitionable threefry). */
typedef struct tsr_threefry_key {
    uint32_t words[2];
} tsr_threefry_key;

/* The hash itself: two words from a counter of two words. `out` may be `counter`. */
TSR_API void tsr_threefry_hash(tsr_threefry_key key, const uint32_t counter[2], uint32_t out[2]);
/* mx.random.key(seed): the high word first. */
TSR_API tsr_threefry_key tsr_threefry_key_from_seed(uint64_t seed);
/* mx.random.split(key, count) into the caller's `out`. Errors: TSR_ERR_INVALID when count > 2^31.
 */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_split(tsr_threefry_key key, uint64_t count,
                                                    tsr_threefry_key *out);
/* mx.random's implicit state: replaces *state by the first half of its split and returns the
 * second.
 */
TSR_API tsr_threefry_key tsr_threefry_next_key(tsr_threefry_key *state);

/* mx.random.bits: `count` values of `width_bytes` (1, 2 or 4), little-endian, in count ·
 * width_bytes bytes of the caller's. Word i of 32 depends on how many words there are. Errors:
 * TSR_ERR_INVALID for another width or more than 2^32 − 1 words. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_bits(tsr_threefry_key key, int width_bytes,
                                                   uint64_t count, void *out);
/* mx.random.uniform in f32: min((float)bits / 2^32, 1 − 2^-24). Errors as above. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_uniform(tsr_threefry_key key, uint64_t count,
                                                      float *out);
/* mx.random.randint up to MLX 0.32 (later ones take remainders of bits): floor of the float
 * low + (high − low) · u, clamped to low … high − 1. Errors: TSR_ERR_INVALID when low ≥ high, and
 * as above. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_randint(tsr_threefry_key key, int32_t low,
                                                      int32_t high, uint64_t count, int32_t *out);
/* mx.random.permutation(n): the stable argsort of n words of bits, into the caller's `out`. Uses
 * 16 n bytes of memory meanwhile. Errors: TSR_ERR_INVALID when n > 2^32 − 1, TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_permutation(tsr_threefry_key key, uint64_t n,
                                                          int64_t *out);
/* mx.argsort(mx.random.uniform((n,))): the same with floats, which tie more often. */
TSR_API TSR_NODISCARD tsr_status tsr_threefry_argsort_uniform(tsr_threefry_key key, uint64_t n,
                                                              int64_t *out);

/* A stream of words, which MLX does not have: words 2b and 2b+1 are the hash of counter (high, low
 * word of b). Its aligned 64-bit values are those of JAX's partitionable threefry. */
typedef struct tsr_threefry {
    tsr_threefry_key key;
    uint64_t position; /* the word that comes next; may be set to any value at any time */
    uint64_t pair;     /* which b `words` holds; UINT64_MAX when none */
    uint32_t words[2];
} tsr_threefry;

TSR_API void tsr_threefry_init(tsr_threefry_key key, tsr_threefry *out);
TSR_API uint32_t tsr_threefry_next_u32(tsr_threefry *rng);
/* (first word << 32) | second word. */
TSR_API uint64_t tsr_threefry_next_u64(tsr_threefry *rng);
/* In [0, 1): (next_u64 & (2^53 − 1)) · 2^-53. */
TSR_API double tsr_threefry_next_double(tsr_threefry *rng);

/* Any of them ---------------------------------------------------------------------------------- */

typedef enum tsr_rng_kind {
    TSR_RNG_PHILOX = 0,
    TSR_RNG_MT19937 = 1,
    TSR_RNG_DOTNET = 2,
    TSR_RNG_THREEFRY = 3
} tsr_rng_kind;

/* "philox", "mt19937", "dotnet", "threefry"; "?" for a value that is no kind. Static storage. */
TSR_API const char *tsr_rng_kind_name(tsr_rng_kind kind);
/* The kind called `name`. Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_rng_kind_parse(const char *name, tsr_rng_kind *out);

/* 2.5 KB. The generator inside may be used by its own functions too. */
typedef struct tsr_rng {
    tsr_rng_kind kind;
    union {
        tsr_philox philox;
        tsr_mt19937 mt19937;
        tsr_dotnet dotnet;
        tsr_threefry threefry;
    } as;
} tsr_rng;

/* A generator of this kind at the start of its stream (Philox: of stream 0). Negative seeds are
 * passed in two's complement. Errors: TSR_ERR_INVALID for a value that is no kind, and for a .NET
 * seed outside INT32_MIN … INT32_MAX. */
TSR_API TSR_NODISCARD tsr_status tsr_rng_init(tsr_rng_kind kind, uint64_t seed, tsr_rng *out);

/* The generator's next_u32, next_u64 and next_double. For .NET: 4 or 8 bytes of NextBytes, lowest
 * first, and NextDouble. */
TSR_API uint32_t tsr_rng_next_u32(tsr_rng *rng);
TSR_API uint64_t tsr_rng_next_u64(tsr_rng *rng);
TSR_API double tsr_rng_next_double(tsr_rng *rng);

/* Exactly uniform in 0 … n − 1 for n ≥ 1; 0 for n 0, without a draw. Takes one 32-bit value for
 * n ≤ 2^32 and one 64-bit value for larger n, and another one each time the first is rejected.
 * Source: Lemire, "Fast random integer generation in an interval" (ACM TOMACS 29, 2019). */
TSR_API uint64_t tsr_rng_below(tsr_rng *rng, uint64_t n);

/* Leaves out the next `draws` outputs: 32-bit words, or for .NET calls of Next(). In no time for
 * Philox and threefry, whose position wraps at 2^64; for the others in time proportional to
 * `draws`. */
TSR_API void tsr_rng_skip(tsr_rng *rng, uint64_t draws);

/* The state as bytes, the same on every machine: a header with version and kind, the state, and a
 * checksum. Written to the caller's `data`, at most TSR_RNG_STATE_BYTES; *size_bytes is what was
 * used. Errors: TSR_ERR_INVALID when `capacity_bytes` is too small or the generator is damaged. */
#define TSR_RNG_STATE_BYTES 2516
TSR_API TSR_NODISCARD tsr_status tsr_rng_save(const tsr_rng *rng, size_t capacity_bytes, void *data,
                                              size_t *size_bytes);
/* The generator that was saved. Any bytes may be given. Errors: TSR_ERR_INVALID naming the offset
 * and the reason: too short or too long, no such format, version or kind, a checksum that does not
 * match, a state that cannot be. */
TSR_API TSR_NODISCARD tsr_status tsr_rng_load(const void *data, size_t size_bytes, tsr_rng *out);

#ifdef __cplusplus
}
#endif

#endif
