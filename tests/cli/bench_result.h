/* Running a benchmark, whose speeds are nobody's business here. */
#ifndef TESTS_CLI_BENCH_RESULT_H
#define TESTS_CLI_BENCH_RESULT_H

#include <jansson.h>

/* Runs the tool with these arguments, which ask for JSON; all of its results are sound. *count is
 * how many of them are no ceilings. */
json_t *bench_result_run(const char *arguments, int *count);

/* The same; the run is on one device. */
json_t *bench_result_run_on_device(const char *arguments, int *count);

/* Results of a benchmark, ceilings included. */
int bench_result_count(const json_t *document, const char *benchmark);

#endif
