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
