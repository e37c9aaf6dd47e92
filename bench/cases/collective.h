/* Benchmarks of collective operations: definitions shared by the rows, the ranks and the peer
 * program. The peer program is built without the library, so nothing here uses it. */
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

#define COLLECTIVE_MAX_RANKS 16
#define COLLECTIVE_MAX_SAMPLES 300

/* Sizes in bytes of the complete data, ascending: what each rank contributes to and receives from
 * an all-reduce, receives from an all-gather, and contributes to a reduce-scatter. */
#define COLLECTIVE_MAX_SIZES 32
typedef struct collective_sizes {
    int count;
    uint64_t bytes[COLLECTIVE_MAX_SIZES];
} collective_sizes;

/* The number of elements for a size in bytes. If each rank has a share, the shares are equal. 0:
 * some rank would have no element. */
static inline uint64_t collective_elements(collective_kind kind, int ranks, uint64_t bytes)
{
    const uint64_t count = bytes / sizeof(float);
    return kind == COLLECTIVE_ALL_REDUCE ? count : count - count % (uint64_t)ranks;
}

/* The element that rank `rank` contributes. Sums of these are exact. */
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

/* The number of samples and their length. A sample is the mean of `batch` consecutive calls, about
 * `sample_ns` together. There are as many samples as fit into the time, from 5 to
 * COLLECTIVE_MAX_SAMPLES. */
typedef struct collective_effort {
    uint64_t batch;
    int samples;
} collective_effort;

static inline collective_effort collective_plan(double call_ns, double seconds)
{
    const double sample_ns = 500000;
    collective_effort effort = {.batch = 1, .samples = 5};
    if (call_ns < sample_ns)
        effort.batch = (uint64_t)(sample_ns / (call_ns > 10 ? call_ns : 10));
    const double each = call_ns * (double)effort.batch;
    const double fit = seconds * 1e9 / (each > 1 ? each : 1);
    effort.samples = fit > COLLECTIVE_MAX_SAMPLES ? COLLECTIVE_MAX_SAMPLES : fit < 5 ? 5 : (int)fit;
    return effort;
}

#endif
