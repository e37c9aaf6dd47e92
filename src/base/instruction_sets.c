#include "base/instruction_sets.h"

#include <stddef.h>

bool tsr__instruction_set_is_supported(tsr__instruction_set set)
{
    switch (set) {
    case TSR__INSTRUCTIONS_BASE:
        return true;
#if defined(__x86_64__)
    case TSR__INSTRUCTIONS_AVX2:
        return __builtin_cpu_supports("avx2");
    case TSR__INSTRUCTIONS_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    default:
        return false;
    }
}

const void *tsr__instruction_set_best(const void *const tables[TSR__INSTRUCTION_SETS])
{
    const void *best = NULL;

    for (int i = 0; i < TSR__INSTRUCTION_SETS; i++)
        if (tables[i] && tsr__instruction_set_is_supported((tsr__instruction_set)i))
            best = tables[i];
    return best;
}

const void *tsr__instruction_set_at(const void *const tables[TSR__INSTRUCTION_SETS], int n)
{
    for (int i = 0; i < TSR__INSTRUCTION_SETS; i++)
        if (tables[i] && tsr__instruction_set_is_supported((tsr__instruction_set)i) && n-- == 0)
            return tables[i];
    return NULL;
}
