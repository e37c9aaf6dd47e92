/* Invented runs in the form that `tessera bench --json` writes. */
#ifndef TESTS_CLI_MADE_RUN_H
#define TESTS_CLI_MADE_RUN_H

#include <jansson.h>

/* Returns a run on one device with a warning, a case that was left out, and these results: a matmul
 * of 100 GFLOP/s (95 to 105), a copy, a round trip of 50 µs (45 to 55) that the device's clock
 * measured as well, a ceiling, and a result of the host. */
json_t *made_run(void);

/* Returns made_run() with a second device of the same name, on which result 6, a copy, was
 * measured. */
json_t *made_run_on_twins(void);

/* Returns result `which` of a run; 0 is the matmul, 2 the round trip. */
json_t *made_result(json_t *run, size_t which);
/* Sets the median of a result, and its 10th and 90th percentile. */
void made_set(json_t *run, size_t which, double median, double low, double high);

/* Writes the run to a temporary file and frees it. */
#define MADE_PATH 64
void made_write(json_t *run, char path[MADE_PATH]);

#endif
