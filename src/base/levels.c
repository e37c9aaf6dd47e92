#include "base/levels.h"

#include <stddef.h>

bool tsr__level_is_here(tsr__level level)
{
    switch (level) {
    case TSR__LEVEL_BASE:
        return true;
#if defined(__x86_64__)
    case TSR__LEVEL_AVX2:
        return __builtin_cpu_supports("avx2");
    case TSR__LEVEL_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    default:
        return false;
    }
}

const void *tsr__level_best(const void *const tables[TSR__LEVELS])
{
    const void *best = NULL;

    for (int i = 0; i < TSR__LEVELS; i++)
        if (tables[i] && tsr__level_is_here((tsr__level)i))
            best = tables[i];
    return best;
}

const void *tsr__level_at(const void *const tables[TSR__LEVELS], int n)
{
    for (int i = 0; i < TSR__LEVELS; i++)
        if (tables[i] && tsr__level_is_here((tsr__level)i) && n-- == 0)
            return tables[i];
    return NULL;
}
