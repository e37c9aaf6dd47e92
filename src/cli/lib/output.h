/* Output files that are replaced atomically: the old content stays until the new one is complete,
 * even if the disk is full or the tool is killed. A path that is not a regular file, such as a pipe
 * or /dev/stdout, is written directly. */
#ifndef TSR_CLI_LIB_OUTPUT_H
#define TSR_CLI_LIB_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct cli_output {
    FILE *file;      /* write here */
    char *temporary; /* the file's path until cli_output_end; NULL if it is written directly */
    char *target;
} cli_output;

/* Checks whether `path` can be written, without changing it. Call it before a long measurement.
 * Returns false and sets errno, as the functions below do. */
bool cli_output_possible(const char *path);

/* True for "-", which stands for standard output. The other functions take only file names. */
bool cli_output_is_standard(const char *path);

/* True if `path`, or standard output for "-", is the same file as `other`, under whatever name. Use
 * it to refuse to overwrite an input. */
bool cli_output_is(const char *path, const char *other);

bool cli_output_begin(const char *path, cli_output *output);

/* Closes the file and moves it to its place. Needs not be called if cli_output_begin failed. */
bool cli_output_end(cli_output *output);

#endif
