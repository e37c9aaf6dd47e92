/* Declarations that the files of this module share. */
#ifndef TSR_RNG_RNG_H
#define TSR_RNG_RNG_H

#include "tessera/rng.h"

#define TSR__MT19937_WORDS 624

/* Returns the low 53 of 64 random bits as a fraction in [0, 1), as PyTorch converts bits to a
 * double. */
static inline double tsr__unit_double(uint64_t bits)
{
    return (double)(bits & ((UINT64_C(1) << 53) - 1)) * (1.0 / 9007199254740992.0);
}

/* Gives `version`. For TSR_TORCH_DEFAULT, it gives the version that this value stands for. Errors:
 * TSR_ERR_INVALID for an unknown version, with a text that starts with `what`, the caller's name.
 */
tsr_status tsr__torch_version(const char *what, tsr_torch_version version, tsr_torch_version *out);

/* The generators of tsr_rng, each with its own functions. No pointer may be NULL. A next_u64 is
 * (first word << 32) | second word, a next_double is tsr__unit_double of that. */

void tsr__philox_init(uint64_t seed, uint64_t stream, tsr_philox *out);
uint32_t tsr__philox_next_u32(tsr_philox *rng);
uint64_t tsr__philox_next_u64(tsr_philox *rng);

/* Seeds like torch.Generator.manual_seed, which uses only the lower 32 bits. */
void tsr__mt19937_init(uint64_t seed, tsr_mt19937 *out);
uint32_t tsr__mt19937_next_u32(tsr_mt19937 *rng);
uint64_t tsr__mt19937_next_u64(tsr_mt19937 *rng);
double tsr__mt19937_next_double(tsr_mt19937 *rng);
/* Has the effect of `words` calls of next_u32, but is faster. Takes time proportional to `words`.
 */
void tsr__mt19937_skip(tsr_mt19937 *rng, uint64_t words);

void tsr__dotnet_init(int32_t seed, tsr_dotnet *out);
/* NextDouble(). */
double tsr__dotnet_next_double(tsr_dotnet *rng);
/* NextBytes(): draws once for each byte. */
void tsr__dotnet_next_bytes(tsr_dotnet *rng, size_t size_bytes, uint8_t *out);
/* Has the effect of `draws` calls of Next(). */
void tsr__dotnet_skip(tsr_dotnet *rng, uint64_t draws);

void tsr__threefry_init(tsr_threefry_key key, tsr_threefry *out);
uint32_t tsr__threefry_next_u32(tsr_threefry *rng);
/* The hash function: computes two words from a counter of two words. `out` may be `counter`. */
void tsr__threefry_hash(tsr_threefry_key key, const uint32_t counter[2], uint32_t out[2]);

/* The maximum number of words from one key, because threefry's counters have 32 bits. */
#define TSR__MAX_THREEFRY_WORDS UINT64_C(0xffffffff)

/* tsr__threefry_uniform_at and tsr__threefry_randint_at return value number i of the `count` values
 * that tsr_threefry_uniform or tsr_threefry_randint computes. */
float tsr__threefry_uniform_at(tsr_threefry_key key, uint64_t count, uint64_t i);
int32_t tsr__threefry_randint_at(tsr_threefry_key key, int32_t low, int32_t high, uint64_t count,
                                 uint64_t i);
/* Does the same as tsr_threefry_argsort_uniform, but writes 32-bit indices. */
tsr_status tsr__threefry_argsort_narrow(tsr_threefry_key key, uint64_t n, uint32_t *out);

#endif
