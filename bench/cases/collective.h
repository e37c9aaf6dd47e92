/* Definitions for the benchmarks of collective operations, which collective.c, collective_measure.c
 * and the peer program (mpi_peer.c) use. The peer program is built without the library, so this
 * header must not use the library. */
#ifndef TSR_BENCH_CASES_COLLECTIVE_H
#define TSR_BENCH_CASES_COLLECTIVE_H

#include <stdint.h>

typedef enum collective_kind {
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_KINDS
} collective_kind;

static const char *const collective_names[COLLECTIVE_KINDS] = {"all-reduce", "all-gather",
                                                               "reduce-scatter"};

#define COLLECTIVE_MAX_SAMPLES 300

/* Sizes of the complete data in bytes, in ascending order. The complete data are what each rank
 * contributes to and receives from an all-reduce, receives from an all-gather, or contributes to a
 * reduce-scatter. */
#define COLLECTIVE_MAX_SIZES 32
typedef struct collective_sizes {
    int count;
    uint64_t bytes[COLLECTIVE_MAX_SIZES];
} collective_sizes;

/* Returns the number of elements for a size in bytes. In all-gather and reduce-scatter each rank
 * has an equal part of them. The result is 0 if there are fewer elements than ranks. */
static inline uint64_t collective_elements(collective_kind kind, int ranks, uint64_t bytes)
{
    const uint64_t count = bytes / sizeof(float);
    return kind == COLLECTIVE_ALL_REDUCE ? count : count - count % (uint64_t)ranks;
}

/* Returns the value of element `index` that rank `rank` contributes. Sums of these values are exact
 * in f32. */
static inline float collective_value(int rank, uint64_t index)
{
    return (float)((index * 7 + (uint64_t)rank * 13) % 251);
}

static inline float collective_sum(int ranks, uint64_t index)
{
    float sum = 0;
    for (int i = 0; i < ranks; i++)
        sum += collective_value(i, index);
    return sum;
}

/* How many samples are taken, and how many calls each sample times. A sample is the mean time of
 * `batch` consecutive calls, which together take at least half a millisecond. Ranks leave the
 * barrier before a sample at different times: over a slow link, as far apart as a message takes. To
 * hide that difference, a sample has at least ten calls, unless they take longer than 10 ms. There
 * are as many samples as fit into the time, but at least 5 and at most COLLECTIVE_MAX_SAMPLES. */
typedef struct collective_effort {
    uint64_t batch;
    int samples;
} collective_effort;

static inline collective_effort collective_plan(double call_ns, double seconds)
{
    const double call = call_ns > 10 ? call_ns : 10, ten_calls = 10 * call < 1e7 ? 10 * call : 1e7;
    const double sample_ns = ten_calls > 5e5 ? ten_calls : 5e5;
    collective_effort effort = {.batch = call < sample_ns ? (uint64_t)(sample_ns / call) : 1,
                                .samples = 5};
    const double each = call_ns * (double)effort.batch;
    const double fit = seconds * 1e9 / (each > 1 ? each : 1);
    effort.samples = fit > COLLECTIVE_MAX_SAMPLES ? COLLECTIVE_MAX_SAMPLES : fit < 5 ? 5 : (int)fit;
    return effort;
}

#endif
