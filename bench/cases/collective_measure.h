/* Measures collective operations between the ranks of a communicator. */
#ifndef TSR_BENCH_CASES_COLLECTIVE_MEASURE_H
#define TSR_BENCH_CASES_COLLECTIVE_MEASURE_H

#include "bench/cases/collective.h"
#include "bench/harness/bench.h"

typedef struct collective_result {
    bool is_there; /* false if there are fewer elements than ranks, so that nothing was measured */
    uint64_t batch;
    int samples;
    int hosts; /* the number of hosts on which the ranks are */
    uint64_t checked, wrong;
    double got, want;                  /* the value of a wrong element, and its expected value */
    double ns[COLLECTIVE_MAX_SAMPLES]; /* the samples: each is the time of the slowest rank */
} collective_result;

/* Measures each size for `seconds` with `ranks` ranks (ranks.h). In a job, only rank 0 gets the
 * results. On failure returns false and records the reason. */
bool collective_measure(bench_context *context, collective_kind kind, int ranks,
                        const collective_sizes *sizes, double seconds,
                        collective_result results[COLLECTIVE_MAX_SIZES]);

#endif
