/* Every benchmark. */
#include <string.h>

#include "bench/bench.h"

extern const bench bench_matmul, bench_copy, bench_launch, bench_first;

const bench *const bench_list[] = {&bench_matmul, &bench_copy, &bench_launch, &bench_first, NULL};

const bench *bench_find(const char *name)
{
    for (int i = 0; bench_list[i] != NULL; i++)
        if (strcmp(bench_list[i]->name, name) == 0)
            return bench_list[i];
    return NULL;
}
