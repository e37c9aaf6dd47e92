#include "bench/compare/missing.h"

#include <string.h>

#include "cli/lib/memory.h"

static bool is_same(const bench_document *run, const bench_figures *one,
                    const bench_document *other_run, int other_device, const char *other_benchmark)
{
    return strcmp(one->benchmark, other_benchmark) == 0 &&
           bench_same_device(run, one->device, other_run) == other_device;
}

static bool was_asked(const bench_runs *new, const bench_document *run, const bench_figures *one)
{
    for (int i = 0; i < new->count; i++) {
        const char *alone = new->all[i].alone;
        if (alone == NULL || (strcmp(alone, one->benchmark) == 0 &&
                              bench_same_device(run, one->device, &new->all[i]) != -2))
            return true;
    }
    return false;
}

static bool is_compared(const bench_pair *pairs, int count, const bench_document *run,
                        const bench_figures *one)
{
    for (int i = 0; i < count; i++)
        if (!pairs[i].old->is_ceiling &&
            is_same(run, one, pairs[i].old_run, pairs[i].old->device, pairs[i].old->benchmark))
            return true;
    return false;
}

static bool is_listed(const bench_missing *all, int count, const bench_document *run,
                      const bench_figures *one)
{
    for (int i = 0; i < count; i++)
        if (is_same(run, one, all[i].run, all[i].device, all[i].benchmark))
            return true;
    return false;
}

int bench_missing_find(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                       int count, bench_missing **out)
{
    bench_missing *all = cli_alloc((size_t)bench_distinct(old), sizeof *all);
    int missing = 0;
    for (int i = 0; i < old->count; i++)
        for (int j = 0; j < old->all[i].result_count; j++) {
            const bench_document *run = &old->all[i];
            const bench_figures *one = &run->results[j];
            if (!one->is_ceiling && was_asked(new, run, one) &&
                !is_compared(pairs, count, run, one) && !is_listed(all, missing, run, one))
                all[missing++] = (bench_missing){run, one->device, one->benchmark};
        }
    *out = all;
    return missing;
}
