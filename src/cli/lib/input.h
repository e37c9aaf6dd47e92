/* Standard input and files, as a whole. */
#ifndef TSR_CLI_LIB_INPUT_H
#define TSR_CLI_LIB_INPUT_H

#include <stddef.h>

/* Reads all of standard input, at most `most` bytes, and adds a zero byte. The caller must free
 * *out. Returns CLI_DONE. If standard input cannot be read or is longer, prints an error that
 * begins with the command's name, and returns CLI_FAILED. */
int cli_input_read(const char *command, size_t most, char **out, size_t *size);
/* The same for the file at `path`, or for standard input if that is "-". */
int cli_file_read(const char *command, const char *path, size_t most, char **out, size_t *size);

#endif
