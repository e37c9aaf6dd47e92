/* Output files that are replaced atomically: the old content stays until the new content is
 * complete, even if the disk is full or the tool is killed. If a path is not a regular file, such
 * as a pipe or /dev/stdout, it is written directly. */
#ifndef TSR_CLI_LIB_OUTPUT_H
#define TSR_CLI_LIB_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct cli_output {
    FILE *file; /* the caller writes to this file */
    /* the path of the file until cli_output_end; NULL if the target is written directly */
    char *temporary;
    char *target;
} cli_output;

/* Returns whether `path` can be written, without changing it. Call this before a long measurement.
 * If the result is false, errno is set. The functions below also set errno. */
bool cli_output_possible(const char *path);

/* Returns true for "-", which stands for standard output. The other functions accept only file
 * names. */
bool cli_output_is_standard(const char *path);

/* Returns true if `path` is the same file as `other`, even under a different name. If `path` is
 * "-", compares standard output. Use this to refuse to overwrite an input. */
bool cli_output_is(const char *path, const char *other);

bool cli_output_begin(const char *path, cli_output *output);

/* Closes the file and gives it its final name. This call is not needed if cli_output_begin
 * failed. */
bool cli_output_end(cli_output *output);

/* As cli_output_end, but the target must be new. If a file with its name exists by now, fails with
 * EEXIST and does not change that file. */
bool cli_output_end_new(cli_output *output);

#endif
