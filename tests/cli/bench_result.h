/* Runs benchmarks and checks their results, but not their speeds. */
#ifndef TESTS_CLI_BENCH_RESULT_H
#define TESTS_CLI_BENCH_RESULT_H

#include <jansson.h>

/* Runs the tool with these arguments, which must select JSON, and checks all results. *count is
 * the number of results without the ceilings, the limits of the machine. */
json_t *bench_result_run(const char *arguments, int *count);

/* Like bench_result_run, but requires that all results are of one device. */
json_t *bench_result_run_on_device(const char *arguments, int *count);

/* Returns the number of results of a benchmark, including ceilings. */
int bench_result_count(const json_t *document, const char *benchmark);

#endif
