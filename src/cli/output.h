/* Files that are there whole or not at all: what was in them stays until the new text is complete,
 * also where the disk is full or the program is ended. What is no regular file, such as /dev/stdout
 * or a pipe, is written as it comes. */
#ifndef TSR_CLI_OUTPUT_H
#define TSR_CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct cli_output {
    FILE *file;
    char *temporary; /* beside `target`; NULL: the file itself is open */
    char *target;
} cli_output;

/* Whether `path` could be written now, which leaves it as it is: to be asked before what is to be
 * written takes a minute to find out. False with errno set, as the others. */
bool cli_output_possible(const char *path);

/* "-": what is asked for goes to standard output, which the caller writes to; the rest here takes
 * names of files alone. */
bool cli_output_is_standard(const char *path);

/* Whether what is written to `path`, or to standard output, would go into the file `other`, under
 * whatever name: a file that is read is not to be written. */
bool cli_output_is(const char *path, const char *other);

bool cli_output_begin(const char *path, cli_output *output);

/* Closes the file and puts it in its place. It need not be called after a failing begin. */
bool cli_output_end(cli_output *output);

#endif
