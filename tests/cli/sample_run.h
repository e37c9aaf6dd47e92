/* Runs `tessera sample` and returns its output as numbers, and writes files for it to read. */
#ifndef TESTS_CLI_SAMPLE_RUN_H
#define TESTS_CLI_SAMPLE_RUN_H

#include <stdbool.h>
#include <stdint.h>

/* Runs the tool with --format i64, which must succeed without messages. The numbers are valid until
 * the next call. */
const int64_t *sample_run(const char *arguments, uint64_t *count);

/* Runs the tool with wrong arguments: it must exit with 2, or perhaps with 1 if they name a file,
 * and print one sentence on standard error and nothing on standard output. */
void sample_refuses(const char *arguments);

/* Makes a folder for the test and changes to it, so that file names are short. */
void sample_enter_folder(void);
void sample_leave_folder(void);
void sample_write_integers(const char *name, const int64_t *values, uint64_t count);
void sample_write_reals(const char *name, const double *values, uint64_t count);

#endif
