/* Samples are the times of many measurements of the same work. This header declares them and their
 * order statistics. */
#ifndef TSR_BENCH_HARNESS_SAMPLES_H
#define TSR_BENCH_HARNESS_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bench_samples {
    int count;
    uint64_t repetitions; /* number of repetitions in a sample; the sample is their mean time */
    /* [count]: the mean time of a repetition in each sample, in the order of measuring */
    double *ns;
} bench_samples;

/* Returns the number of repetitions in a sample of about `sample_ns`, if one takes `ns`: 1 to
 * 1000. */
uint64_t bench_repetitions(double sample_ns, double ns);

void bench_samples_add(bench_samples *samples, double ns);
void bench_samples_free(bench_samples *samples);

typedef struct bench_summary {
    double median, p10, p90, min, max;
} bench_summary;

/* Returns the order statistics of samples. All members are 0 if there are no samples. */
bench_summary bench_summarize(const bench_samples *samples);

/* Sorts values in ascending order. */
void bench_sort(double *values, int count);

/* Returns the p-quantile (p from 0 to 1) of `count` ascending values, interpolated between
 * neighbours. */
double bench_quantile(const double *ascending, int count, double p);

/* Returns true if the 10th and 90th percentiles are so far apart (more than 20 % of the median)
 * that the median means little. */
bool bench_is_noisy(const bench_summary *summary);

#endif
