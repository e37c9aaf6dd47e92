/* What the generators share. */
#ifndef TSR_DATA_RNG_H
#define TSR_DATA_RNG_H

#include "tessera/rng.h"

#define TSR__MT19937_WORDS 624

/* The 53 low bits as a fraction, as PyTorch makes a double. */
static inline double tsr__unit_double(uint64_t bits)
{
    return (double)(bits & ((UINT64_C(1) << 53) - 1)) * (1.0 / 9007199254740992.0);
}

/* Puts the version that TSR_TORCH_DEFAULT stands for in its place; `what` names the caller in the
 * error for a value that is no version. */
tsr_status tsr__torch_version(const char *what, tsr_torch_version version, tsr_torch_version *out);

#endif
