/* Benchmarks of collective operations: what the rows' side, the ranks and the peer program have in
 * common. Only numbers, since the peer program is built without the library. */
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

#define COLLECTIVE_MOST_RANKS 16
#define COLLECTIVE_MOST_SAMPLES 300

/* Bytes of the whole: what each rank contributes to and gets of an all-reduce, what it gets of an
 * all-gather, what it contributes to a reduce-scatter. In growing order. */
#define COLLECTIVE_MOST_SIZES 32
typedef struct collective_sizes {
    int count;
    uint64_t bytes[COLLECTIVE_MOST_SIZES];
} collective_sizes;

/* Elements of the whole of so many bytes: where each rank has a share, the shares are equal. 0: a
 * rank would have none. */
static inline uint64_t collective_elements(collective_kind kind, int ranks, uint64_t bytes)
{
    const uint64_t count = bytes / sizeof(float);
    return kind == COLLECTIVE_ALL_REDUCE ? count : count - count % (uint64_t)ranks;
}

/* What rank `rank` contributes: sums are exact. */
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

/* A sample is the mean of `batch` calls, one right after the other: about `sample_ns` in all; and
 * there are as many as fit the time. */
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
    effort.samples = fit > COLLECTIVE_MOST_SAMPLES ? COLLECTIVE_MOST_SAMPLES
                     : fit < 5                     ? 5
                                                   : (int)fit;
    return effort;
}

#endif
