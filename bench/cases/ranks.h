/* Runs a function on several ranks: on those of the job that a launcher has started, or in
 * processes that the tool starts on this host. */
#ifndef TSR_BENCH_CASES_RANKS_H
#define TSR_BENCH_CASES_RANKS_H

#include <stddef.h>

#include "bench/harness/bench.h"

/* The largest number of processes that the tool starts. A job may have more ranks. */
#define BENCH_MAX_STARTED 16

typedef struct bench_ranks_work {
    const char *name; /* the benchmark's name, for error texts */
    /* Runs on every rank. `result` is zeroed memory for the rank's result. A failing `run` must
     * return an error of the library, whose text tsr_last_error() has. */
    tsr_status (*run)(tsr_comm *comm, const void *user, void *result);
    const void *user;
    size_t result_bytes;
} bench_ranks_work;

/* Runs the work on `ranks` ranks, which must be the number of the job's ranks if there is a job,
 * and waits until all have finished. Rank 0 gets the results of all ranks, one after the other, in
 * `results`; other ranks do not use it. On failure returns false and records the reason. */
bool bench_ranks_run(bench_context *context, int ranks, const bench_ranks_work *work,
                     void *results);

#endif
