/* Starts processes that are the ranks of a communicator, and measures its operations. */
#ifndef TSR_BENCH_CASES_COLLECTIVE_RANKS_H
#define TSR_BENCH_CASES_COLLECTIVE_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/cases/collective.h"

typedef struct collective_result {
    bool is_there; /* false if there are fewer elements than ranks, so that nothing was measured */
    uint64_t batch;
    int samples;
    uint64_t checked, wrong;
    double got, want;                  /* the value of a wrong element, and its expected value */
    double ns[COLLECTIVE_MAX_SAMPLES]; /* the times of the slowest rank */
} collective_result;

/* Measures each size for `seconds` with `ranks` processes. On failure returns false and writes the
 * reason to `problem`. */
bool collective_ranks_run(collective_kind kind, int ranks, const collective_sizes *sizes,
                          double seconds, collective_result results[COLLECTIVE_MAX_SIZES],
                          char *problem, size_t size);

#endif
