/* Finds what the old runs measured and the new ones should have measured, but did not. */
#ifndef TSR_BENCH_COMPARE_MISSING_H
#define TSR_BENCH_COMPARE_MISSING_H

#include "bench/compare/pairs.h"

/* A benchmark without any common result, on one device or the host. */
typedef struct bench_missing {
    const bench_document *run; /* an old run that has it */
    int device;                /* its index in that run; -1: the host */
    const char *benchmark;
} bench_missing;

/* Finds missing benchmarks, in the order of the old runs. Returns their number; free *out with
 * free(). A single case does not count as missing, because runs differ in the cases that take too
 * long. Neither do ceilings, and benchmarks or devices that no new run was asked to measure: a run
 * of one benchmark measures that on one device. */
int bench_missing_find(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                       int count, bench_missing **out);

#endif
