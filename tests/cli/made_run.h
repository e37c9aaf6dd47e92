/* Invented runs in the form that `tessera bench --json` writes. */
#ifndef TESTS_CLI_MADE_RUN_H
#define TESTS_CLI_MADE_RUN_H

#include <jansson.h>

/* Returns a run on one device with a warning, a case that was left out, and these results: 0, a
 * matmul of 100 GFLOP/s (95 to 105); 1, a copy; 2, a round trip of 50 µs (47.5 to 52.5), which the
 * device's clock measured as well; 3 and 4, the ceilings fma_peak and memcpy; and 5, rng. Results 4
 * and 5 are those of the host. */
json_t *made_run(void);

/* Returns made_run() with a second device of the same name, on which result 6, a copy, was
 * measured. */
json_t *made_run_on_twins(void);

/* Returns result `which` of a run. */
json_t *made_result(json_t *run, size_t which);
/* Sets the median of a result, and its 10th and 90th percentile. */
void made_set(json_t *run, size_t which, double median, double low, double high);

/* Writes the run to a temporary file and frees it. */
#define MADE_PATH 64
void made_write(json_t *run, char path[MADE_PATH]);

#endif
