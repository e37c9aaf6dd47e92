/* Prints a comparison. */
#ifndef TSR_BENCH_COMPARE_PRINT_H
#define TSR_BENCH_COMPARE_PRINT_H

#include "bench/compare/missing.h"

typedef struct bench_compare_options {
    double threshold; /* per cent */
    bool show_all, of_ceiling, json, allow_missing;
} bench_compare_options;

/* How many results changed. Ceilings are counted in ceilings_changed only. */
typedef struct bench_compare_counts {
    int compared, slower, faster, same, not_decided, parts, ceilings_changed, only_old, only_new;
    int failures; /* in the new runs */
    int missing;
} bench_compare_counts;

/* Print the runs, the results that changed, failed or are missing, and the totals. */
void bench_compare_text(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                        int count, const bench_missing *missing, const bench_compare_counts *seen,
                        const bench_compare_options *how);
void bench_compare_json(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                        int count, const bench_missing *missing, const bench_compare_counts *seen,
                        const bench_compare_options *how);

#endif
