/* Processes that are the ranks of a communicator, and time its operations. */
#ifndef TSR_BENCH_CASES_COLLECTIVE_RANKS_H
#define TSR_BENCH_CASES_COLLECTIVE_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/cases/collective.h"

typedef struct collective_result {
    bool is_there; /* every rank has an element */
    uint64_t batch;
    int samples;
    uint64_t checked, wrong;
    double got, want;                   /* of a wrong one */
    double ns[COLLECTIVE_MOST_SAMPLES]; /* of the slowest rank each */
} collective_result;

/* Of each size, for `seconds` each, by `ranks` processes. False with the reason. */
bool collective_ranks_run(collective_kind kind, int ranks, const collective_sizes *sizes,
                          double seconds, collective_result results[COLLECTIVE_MOST_SIZES],
                          char *problem, size_t size);

#endif
