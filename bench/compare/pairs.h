/* Pairs the results of the old and the new runs, and decides which of them changed. The two sides
 * of a comparison are the old runs and the new runs. */
#ifndef TSR_BENCH_COMPARE_PAIRS_H
#define TSR_BENCH_COMPARE_PAIRS_H

#include "bench/report/document.h"

typedef enum bench_verdict {
    BENCH_NO_CHANGE,
    BENCH_NOT_DECIDED, /* changed by more than the threshold, but the ranges overlap */
    BENCH_GOT_SLOWER,
    BENCH_GOT_FASTER
} bench_verdict;

/* A median and a range around it. The range holds the middle 80 % of the samples, or, with many
 * runs, all medians of the runs. */
typedef struct bench_range {
    double median, low, high;
} bench_range;

/* A result that the old and the new runs have. */
typedef struct bench_pair {
    const bench_document *old_run, *new_run; /* one run of each side that has the result */
    const bench_figures *old, *new;
    const char *of; /* the ceiling of which `was` and `is` are fractions; NULL: absolute values */
    /* The result is compared by its absolute value because, in a run, its fraction of the ceiling
     * is above BENCH_MAX_OF_CEILING. */
    bool above_ceiling;
    bool is_time;        /* the values are times, so less is better */
    bench_range was, is; /* the values that are compared */
} bench_pair;

/* A result is not compared as a fraction of its ceiling if the fraction is larger than this: the
 * ceiling was measured too low, or the data were in caches. */
#define BENCH_MAX_OF_CEILING 1.1

/* The largest number of old runs, or of new runs. */
#define BENCH_MAX_RUNS 16
/* If both sides have at least this number of runs, only the medians of the runs are compared. If
 * old and new are equally fast, then with 5 runs on each side all medians of one side are above all
 * of the other in one of 126 cases by chance. */
#define BENCH_MANY_RUNS 5
typedef struct bench_runs {
    int count;
    bench_document all[BENCH_MAX_RUNS];
} bench_runs;

/* Returns the number of different results of a side. */
int bench_distinct(const bench_runs *side);

/* Pairs the results of both sides, ceilings included, in the order of the old runs. Returns the
 * number of pairs; free *out with free(). If a side has several runs, the median of a result is the
 * median of the runs' medians. Its range extends from the lowest end of the runs' ranges to the
 * highest; if both sides have at least BENCH_MANY_RUNS, it extends from the lowest of the runs'
 * medians to the highest. Runs without the result are ignored. With `of_ceiling`, results are
 * compared as fractions of their ceiling, if both sides have runs in which the result has the same
 * ceiling and is not above it; the other runs are then ignored. Results without such runs, and
 * ceilings themselves, are compared by their absolute values. */
int bench_pairs(const bench_runs *old, const bench_runs *new, bool of_ceiling, bench_pair **out);

/* Returns the factor by which the result became slower. */
double bench_pair_slowdown(const bench_pair *pair);

/* Judges a pair. A result has changed if it moved by more than the threshold, in per cent, and if
 * the ranges do not overlap. */
bench_verdict bench_pair_judge(const bench_pair *pair, double threshold);

/* Returns the index in `to` of the device that corresponds to `device` of `from`: the one of the
 * same name; or, if each run has one device, the one whose name differs only in parentheses, where
 * drivers put their version. Returns -1 for the host, -2 if there is none. */
int bench_same_device(const bench_document *from, int device, const bench_document *to);

#endif
