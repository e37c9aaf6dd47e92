/* Loops that hash many counters, compiled once for each instruction set. */
#ifndef TSR_RNG_THREEFRY_LOOPS_H
#define TSR_RNG_THREEFRY_LOOPS_H

#include <stddef.h>

#include "tessera/rng.h"

/* Hashes the counters (first + i, second + i) for i from 0 to count − 1. Writes the first words of
 * the results to `low` and the second words to `high`. */
typedef void tsr__threefry_fn(tsr_threefry_key key, uint32_t first, uint32_t second, size_t count,
                              uint32_t *low, uint32_t *high);

typedef struct tsr__threefry_loops {
    tsr__threefry_fn *pairs;
} tsr__threefry_loops;

extern const tsr__threefry_loops tsr__threefry_loops_base, tsr__threefry_loops_avx2,
    tsr__threefry_loops_avx512;

#endif
