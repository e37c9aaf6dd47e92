/* What the old runs measured and the new ones should have, but did not. */
#ifndef TSR_BENCH_COMPARE_MISSING_H
#define TSR_BENCH_COMPARE_MISSING_H

#include "bench/compare/pairs.h"

/* A benchmark of which no figure is in both, on one device or the host. */
typedef struct bench_missing {
    const bench_document *run; /* an old one that has it */
    int device;                /* its place there; -1: the host's */
    const char *benchmark;
} bench_missing;

/* In the old runs' order; how many. `*out` is the caller's to free. Single cases do not count:
 * which of them take too long differs from run to run. Nor do ceilings, nor what no new run was to
 * measure: one of a single benchmark does that alone, on a single device. */
int bench_missing_find(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                       int count, bench_missing **out);

#endif
