/* What is printed of a comparison. */
#ifndef TSR_BENCH_COMPARE_REPORT_H
#define TSR_BENCH_COMPARE_REPORT_H

#include "bench/compare_pairs.h"

typedef struct bench_compare_options {
    double threshold; /* per cent */
    bool show_all, of_ceiling;
} bench_compare_options;

/* The runs, what changed, what failed in the new ones and the sum of it. CLI_DONE, or BENCH_SLOWER.
 */
int bench_compare_report(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                         int count, const bench_compare_options *how);

#endif
