/* Lists the instruction sets for which the files that include base/loops.h are compiled, and finds
 * those that this processor supports. */
#ifndef TSR_BASE_INSTRUCTION_SETS_H
#define TSR_BASE_INSTRUCTION_SETS_H

#include <stdbool.h>

/* Instruction sets, the slowest first: a higher number means a better one. */
typedef enum tsr__instruction_set {
    TSR__INSTRUCTIONS_BASE,
    TSR__INSTRUCTIONS_AVX2,
    TSR__INSTRUCTIONS_AVX512,
    TSR__INSTRUCTION_SETS
} tsr__instruction_set;

/* Each instruction set has a table of functions. TSR__INSTRUCTION_SET_TABLES(tsr__kernels_) lists
 * the addresses of the tables of all instruction sets that are compiled: tsr__kernels_base,
 * tsr__kernels_avx2, … */
#if defined(__x86_64__)
#define TSR__INSTRUCTION_SET_TABLES(prefix)                                                        \
    {                                                                                              \
        &prefix##base, &prefix##avx2, &prefix##avx512                                              \
    }
#else
#define TSR__INSTRUCTION_SET_TABLES(prefix)                                                        \
    {                                                                                              \
        &prefix##base                                                                              \
    }
#endif

/* Returns whether this processor supports the instruction set. */
bool tsr__instruction_set_is_supported(tsr__instruction_set set);

/* Returns the function table of the best instruction set that this processor supports. */
const void *tsr__instruction_set_best(const void *const tables[TSR__INSTRUCTION_SETS]);
/* For tests and benchmarks. Returns the function table of the n-th instruction set, counted from 0,
 * that this processor supports. Returns NULL if the processor supports no more than n. */
const void *tsr__instruction_set_at(const void *const tables[TSR__INSTRUCTION_SETS], int n);

#endif
