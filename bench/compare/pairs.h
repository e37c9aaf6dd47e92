/* Which figures of two runs belong together, in what terms they are compared, and what changed. */
#ifndef TSR_BENCH_COMPARE_PAIRS_H
#define TSR_BENCH_COMPARE_PAIRS_H

#include "bench/report/document.h"

typedef enum bench_verdict {
    BENCH_NO_CHANGE,
    BENCH_NOT_DECIDED, /* beyond the threshold, but not beyond the spread */
    BENCH_GOT_SLOWER,
    BENCH_GOT_FASTER
} bench_verdict;

/* A median, and the ends of the middle 80 %, or of the medians of many runs. */
typedef struct bench_range {
    double median, low, high;
} bench_range;

/* A figure that both sides have. */
typedef struct bench_pair {
    const bench_document *old_run, *new_run; /* of each side one that has it */
    const bench_figures *old, *new;
    const char *of;      /* the ceiling that `was` and `is` are parts of; NULL: compared as it is */
    bool above_ceiling;  /* compared as it is since a run has more than BENCH_MOST_OF_CEILING */
    bool is_time;        /* less is better */
    bench_range was, is; /* what is compared */
} bench_pair;

/* A larger part is of a ceiling that was measured in a bad moment, or that caches do not know. */
#define BENCH_MOST_OF_CEILING 1.1

/* The runs of one side. */
#define BENCH_MOST_RUNS 16
/* On each side: that all medians of one side lie beyond all of the other happens by chance once in
 * 126 times. */
#define BENCH_MANY_RUNS 5
typedef struct bench_runs {
    int count;
    bench_document all[BENCH_MOST_RUNS];
} bench_runs;

/* How many different figures they have. */
int bench_distinct(const bench_runs *side);

/* Those pairs, ceilings included, in the old runs' order; how many. `*out` is the caller's to free.
 * Of several runs of a side the median is that of their medians, and the range reaches from the
 * lowest of their ends to the highest; of many on both sides, from the lowest of their medians to
 * the highest. A run without the figure has no say in it. With
 * `of_ceiling`, figures are compared as parts of their ceilings where both sides have runs that
 * measured the same one and are not above it, which then have no say either; and otherwise as they
 * are. So are ceilings themselves. */
int bench_pairs(const bench_runs *old, const bench_runs *new, bool of_ceiling, bench_pair **out);

/* How many times as long it takes now. */
double bench_pair_slowdown(const bench_pair *pair);

/* Changed is what lies beyond the threshold, in per cent, and whose range lies beyond the other's.
 */
bench_verdict bench_pair_judge(const bench_pair *pair, double threshold);

/* The device of `to` that is `device` of `from`: of that name, or the only one there is in each,
 * which is how a driver is compared with its next version. -1: the host; -2: none. */
int bench_same_device(const bench_document *from, int device, const bench_document *to);

#endif
