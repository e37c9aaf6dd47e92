#include "bench/harness/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"

#define NOISY 0.2
#define MAX_REPETITIONS 1000

void bench_samples_add(bench_samples *samples, double ns)
{
    samples->ns = cli_resize(samples->ns, (size_t)samples->count + 1, sizeof *samples->ns);
    samples->ns[samples->count++] = ns;
}

void bench_samples_free(bench_samples *samples)
{
    free(samples->ns);
    *samples = (bench_samples){0};
}

uint64_t bench_repetitions(double sample_ns, double ns)
{
    const double wanted = ns > 0 ? sample_ns / ns : 1;
    return wanted >= MAX_REPETITIONS ? MAX_REPETITIONS : wanted < 1 ? 1 : (uint64_t)wanted;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void bench_sort(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
}

double bench_quantile(const double *ascending, int count, double p)
{
    double place = p * (count - 1);
    int below = (int)place;
    if (below + 1 >= count)
        return ascending[count - 1];
    /* Rounding must not lead out of the samples, also if both are equal. */
    const double low = ascending[below], high = ascending[below + 1];
    return fmin(low + (place - below) * (high - low), high);
}

bench_summary bench_summarize(const bench_samples *samples)
{
    bench_summary summary = {0};
    int count = samples->count;
    if (count == 0)
        return summary;
    double *sorted = cli_alloc((size_t)count, sizeof *sorted);
    memcpy(sorted, samples->ns, (size_t)count * sizeof *sorted);
    bench_sort(sorted, count);
    summary.median = bench_quantile(sorted, count, 0.5);
    summary.p10 = bench_quantile(sorted, count, 0.1);
    summary.p90 = bench_quantile(sorted, count, 0.9);
    summary.min = sorted[0];
    summary.max = sorted[count - 1];
    free(sorted);
    return summary;
}

bool bench_is_noisy(const bench_summary *summary)
{
    return summary->p90 - summary->p10 > NOISY * summary->median;
}
