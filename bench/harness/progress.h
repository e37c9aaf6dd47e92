/* Progress of a run on standard error: one line that is overwritten at a terminal, and otherwise,
 * for a file or a pipe, a line every few seconds. */
#ifndef TSR_BENCH_HARNESS_PROGRESS_H
#define TSR_BENCH_HARNESS_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#define BENCH_PROGRESS_RECENT 8

typedef struct bench_progress {
    FILE *out;        /* NULL: nothing is shown */
    bool is_terminal; /* the line is overwritten */
    double start_ns;
    double line_ns;  /* when the last line was shown */
    bool is_awaited; /* the next line is shown without waiting */
    double end_ns;   /* when the run is expected to end, as bench_progress_expect was told; 0:
                      * unknown */
    int steps, step; /* the number of steps of the run and the present one, from 1 on; steps 0: the
                      * run has no steps */
    double step_ns;  /* when the present step began */
    double recent_ns[BENCH_PROGRESS_RECENT]; /* the times of the last steps, as a ring */
    char where[96];                          /* the step's device */
} bench_progress;

/* Begins a run. `is_terminal`: `out` is a terminal. */
void bench_progress_begin(bench_progress *progress, FILE *out, bool is_terminal);
/* Begins the next of `steps` steps. `where` names the device. */
void bench_progress_step(bench_progress *progress, const char *where);
/* Says how long the rest of a run without steps is expected to take. */
void bench_progress_expect(bench_progress *progress, double seconds);
/* Returns the seconds that the rest of the run is expected to take: for the steps that are left,
 * the mean time of the last BENCH_PROGRESS_RECENT ones; without steps, what bench_progress_expect
 * was told. Negative: unknown. */
double bench_progress_left(const bench_progress *progress, double now_ns);
/* Shows what is being done, for example "measuring copy". May be called as often as convenient:
 * lines that would follow each other too quickly are left out. */
void bench_progress_show(bench_progress *progress, const char *what);
/* Removes the line from the terminal. */
void bench_progress_end(const bench_progress *progress);

#endif
