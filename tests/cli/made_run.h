/* Runs that nobody made, as `tessera bench --json` would write them. */
#ifndef TESTS_CLI_MADE_RUN_H
#define TESTS_CLI_MADE_RUN_H

#include <jansson.h>

/* One device, a matmul of 100 GFLOP/s (95 to 105), a copy, a round trip of 50 µs (45 to 55) with a
 * device's clock, a ceiling and a host's result; a warning and something left out. */
json_t *made_run(void);

/* The same, and another device of that name, which has made the copy as its result 6. */
json_t *made_run_on_twins(void);

/* Result `which` of a run; 0 is the matmul, 2 the round trip. */
json_t *made_result(json_t *run, size_t which);
/* Its median and the ends of its middle 80 %. */
void made_set(json_t *run, size_t which, double median, double low, double high);

/* Writes the run to a temporary file and frees it. */
#define MADE_PATH 64
void made_write(json_t *run, char path[MADE_PATH]);

#endif
