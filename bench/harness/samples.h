/* Times of one thing measured many times, and their order statistics. */
#ifndef TSR_BENCH_HARNESS_SAMPLES_H
#define TSR_BENCH_HARNESS_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bench_samples {
    int count;
    uint64_t repetitions; /* that one sample is the mean of */
    double *ns;           /* per repetition, in the order taken */
} bench_samples;

void bench_samples_add(bench_samples *samples, double ns);
void bench_samples_free(bench_samples *samples);

typedef struct bench_summary {
    double median, p10, p90, min, max;
} bench_summary;

/* All zero when there are no samples. */
bench_summary bench_summarize(const bench_samples *samples);

/* Into ascending order. */
void bench_sort(double *values, int count);

/* p of the way (0 … 1) through `count` ascending values, interpolating between neighbours. */
double bench_quantile(const double *ascending, int count, double p);

/* Whether the middle 80 % of the samples are so far apart that the median means little. */
bool bench_is_noisy(const bench_summary *summary);

#endif
