/* Prints a comparison. */
#ifndef TSR_BENCH_COMPARE_PRINT_H
#define TSR_BENCH_COMPARE_PRINT_H

#include <stdio.h>

#include "bench/compare/missing.h"

typedef struct bench_compare_options {
    double threshold; /* changes of up to this many per cent do not count */
    bool show_all, of_ceiling, allow_missing;
} bench_compare_options;

/* How many results of each kind there are. Ceilings are counted in ceilings_changed only. */
typedef struct bench_compare_counts {
    int compared, slower, faster, same, not_decided, parts, ceilings_changed, only_old, only_new;
    int failures; /* benchmarks that failed in the new runs */
    int missing;
} bench_compare_counts;

typedef struct bench_comparison {
    const bench_runs *old, *new;
    const bench_pair *pairs;
    int count; /* number of pairs */
    const bench_missing *missing;
    const bench_compare_counts *seen;
    const bench_compare_options *how;
} bench_comparison;

/* Write which runs are compared, the results that changed, failed or are missing, and how many
 * results there are of each kind. Text goes to standard output; the other formats may be written to
 * a file. */
void bench_compare_text(const bench_comparison *all);
void bench_compare_markdown(const bench_comparison *all, FILE *out);
/* Write all results, one per row or object, also those that did not change. */
void bench_compare_csv(const bench_comparison *all, FILE *out);
void bench_compare_json(const bench_comparison *all, FILE *out);

/* Returns the word for a verdict in JSON and CSV, such as "slower". */
const char *bench_verdict_name(bench_verdict verdict);

#endif
