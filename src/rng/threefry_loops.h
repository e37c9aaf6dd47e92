/* Hashes of many counters, for each instruction set that is built. */
#ifndef TSR_RNG_THREEFRY_LOOPS_H
#define TSR_RNG_THREEFRY_LOOPS_H

#include <stddef.h>

#include "tessera/rng.h"

/* Counters (first + i, second + i): their first words to `low`, their second ones to `high`. */
typedef void tsr__threefry_fn(tsr_threefry_key key, uint32_t first, uint32_t second, size_t count,
                              uint32_t *low, uint32_t *high);

typedef struct tsr__threefry_loops {
    tsr__threefry_fn *pairs;
} tsr__threefry_loops;

extern const tsr__threefry_loops tsr__threefry_loops_base, tsr__threefry_loops_avx2,
    tsr__threefry_loops_avx512;

#endif
