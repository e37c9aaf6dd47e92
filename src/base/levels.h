/* The instruction sets for which files that use base/loops.h are compiled, and the choice of those
 * that this processor has. */
#ifndef TSR_BASE_LEVELS_H
#define TSR_BASE_LEVELS_H

/* A better instruction set has a higher number. */
typedef enum tsr__level {
    TSR__LEVEL_BASE,
    TSR__LEVEL_AVX2,
    TSR__LEVEL_AVX512,
    TSR__LEVELS
} tsr__level;

/* The tables of all instruction sets that are built: TSR__LEVEL_TABLES(tsr__kernels_) lists the
 * addresses of tsr__kernels_base, tsr__kernels_avx2, … */
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

/* Returns the table of the best instruction set that this processor has. */
const void *tsr__level_best(const void *const tables[TSR__LEVELS]);
/* For tests and benchmarks: returns the table of the n-th (from 0) instruction set that this
 * processor has, or NULL. */
const void *tsr__level_at(const void *const tables[TSR__LEVELS], int n);

#endif
