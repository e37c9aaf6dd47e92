/* Lists the instruction sets for which the files that include base/loops.h are compiled, and finds
 * those that this processor supports. */
#ifndef TSR_BASE_LEVELS_H
#define TSR_BASE_LEVELS_H

#include <stdbool.h>

/* Instruction sets, the slowest first: a higher number means a better one. */
typedef enum tsr__level {
    TSR__LEVEL_BASE,
    TSR__LEVEL_AVX2,
    TSR__LEVEL_AVX512,
    TSR__LEVELS
} tsr__level;

/* Each instruction set has a table of functions. TSR__LEVEL_TABLES(tsr__kernels_) lists the
 * addresses of the tables of all instruction sets that are compiled: tsr__kernels_base,
 * tsr__kernels_avx2, … */
#if defined(__x86_64__)
#define TSR__LEVEL_TABLES(prefix)                                                                  \
    {                                                                                              \
        &prefix##base, &prefix##avx2, &prefix##avx512                                              \
    }
#else
#define TSR__LEVEL_TABLES(prefix)                                                                  \
    {                                                                                              \
        &prefix##base                                                                              \
    }
#endif

/* Returns whether this processor supports the instruction set. */
bool tsr__level_is_here(tsr__level level);

/* Returns the function table of the best instruction set that this processor supports. */
const void *tsr__level_best(const void *const tables[TSR__LEVELS]);
/* For tests and benchmarks. Returns the function table of the n-th instruction set, counted from 0,
 * that this processor supports. Returns NULL if the processor supports no more than n. */
const void *tsr__level_at(const void *const tables[TSR__LEVELS], int n);

#endif
