/* Finds what the old runs measured and the new runs should have measured, but did not. */
#ifndef TSR_BENCH_COMPARE_MISSING_H
#define TSR_BENCH_COMPARE_MISSING_H

#include "bench/compare/pairs.h"

/* A benchmark for which the old and the new runs have no result in common, on one device or on the
 * host. */
typedef struct bench_missing {
    const bench_document *run; /* an old run that has results of this benchmark */
    int device;                /* the index of the device in the document `run`; -1: the host */
    const char *benchmark;
} bench_missing;

/* Finds missing benchmarks, in the order of the old runs. Returns their number; free *out with
 * free(). Three things do not count as missing: single cases, because runs differ in which cases
 * they leave out as too long; ceilings; and what no new run was asked to measure: a run of one
 * benchmark measures only this benchmark, on one device. */
int bench_missing_find(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                       int count, bench_missing **out);

#endif
