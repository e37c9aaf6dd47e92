/* Pairs the results of two runs, and decides which of them changed. */
#ifndef TSR_BENCH_COMPARE_PAIRS_H
#define TSR_BENCH_COMPARE_PAIRS_H

#include "bench/report/document.h"

typedef enum bench_verdict {
    BENCH_NO_CHANGE,
    BENCH_NOT_DECIDED, /* more than the threshold, but within the spread */
    BENCH_GOT_SLOWER,
    BENCH_GOT_FASTER
} bench_verdict;

/* A median, and the ends of the middle 80 %, or of the medians of many runs. */
typedef struct bench_range {
    double median, low, high;
} bench_range;

/* A result that both sides have. */
typedef struct bench_pair {
    const bench_document *old_run, *new_run; /* one run of each side that has it */
    const bench_figures *old, *new;
    const char *of;      /* the ceiling that `was` and `is` are parts of; NULL: absolute values */
    bool above_ceiling;  /* absolute because a run has more than BENCH_MAX_OF_CEILING */
    bool is_time;        /* less is better */
    bench_range was, is; /* what is compared */
} bench_pair;

/* A larger part means that the ceiling is too low, or that caches helped. */
#define BENCH_MAX_OF_CEILING 1.1

/* The runs of one side. */
#define BENCH_MAX_RUNS 16
/* With this many runs on each side, all medians of one side exceed all of the other by chance in
 * one of 126 cases. */
#define BENCH_MANY_RUNS 5
typedef struct bench_runs {
    int count;
    bench_document all[BENCH_MAX_RUNS];
} bench_runs;

/* The number of different results. */
int bench_distinct(const bench_runs *side);

/* Pairs the results of both sides, ceilings included, in the order of the old runs. Returns the
 * number of pairs; free *out with free(). With several runs on a side, the median is that of their
 * medians, and the range extends from the lowest of their ends to the highest; with BENCH_MANY_RUNS
 * on both sides, from their lowest median to their highest. Runs without the result are ignored.
 * With `of_ceiling`, results are compared as parts of their ceiling if both sides have runs with
 * the same ceiling and are not above it; other runs are then ignored. Results without such runs,
 * and ceilings themselves, are compared by their absolute values. */
int bench_pairs(const bench_runs *old, const bench_runs *new, bool of_ceiling, bench_pair **out);

/* The factor by which the time has grown. */
double bench_pair_slowdown(const bench_pair *pair);

/* A result has changed if it moved by more than the threshold, in per cent, and if the ranges do
 * not overlap. */
bench_verdict bench_pair_judge(const bench_pair *pair, double threshold);

/* The device of `to` that corresponds to `device` of `from`: the one of the same name; or, if each
 * run has one device, the one whose name differs only in parentheses, where drivers put their
 * version. Returns -1 for the host, -2 if there is none. */
int bench_same_device(const bench_document *from, int device, const bench_document *to);

#endif
