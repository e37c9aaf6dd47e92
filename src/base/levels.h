/* The instruction sets for which base/loops.h's files are compiled, and which of them this
 * processor has. */
#ifndef TSR_BASE_LEVELS_H
#define TSR_BASE_LEVELS_H

/* The better ones have higher numbers. */
typedef enum tsr__level {
    TSR__LEVEL_BASE,
    TSR__LEVEL_AVX2,
    TSR__LEVEL_AVX512,
    TSR__LEVELS
} tsr__level;

/* What there is of each: TSR__LEVEL_TABLES(tsr__kernels_) are the addresses of tsr__kernels_base, …
 */
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

/* The best of such tables that this processor has. */
const void *tsr__level_best(const void *const tables[TSR__LEVELS]);
/* For tests and benchmarks: the n-th that it has, or NULL. */
const void *tsr__level_at(const void *const tables[TSR__LEVELS], int n);

#endif
