/* Progress of a run for a person at a terminal: one line on standard error. */
#ifndef TSR_BENCH_HARNESS_PROGRESS_H
#define TSR_BENCH_HARNESS_PROGRESS_H

#include <stdbool.h>

typedef struct bench_progress {
    bool shown; /* progress is shown: standard error is a terminal */
    double start_ns;
    int steps, step; /* the number of steps of a complete run and the present one; steps 0: a single
                        benchmark, for which no bar is shown */
    char where[96];  /* the step's device */
} bench_progress;

void bench_progress_begin(bench_progress *progress);
/* Begins the next of `steps` steps, one per benchmark and device. `where` names the device. */
void bench_progress_step(bench_progress *progress, const char *where);
/* Shows what is being measured. */
void bench_progress_show(const bench_progress *progress, const char *what);
/* Removes the line from the terminal. */
void bench_progress_end(const bench_progress *progress);

#endif
