/* Text for people. It is adapted to the width of the terminal, and contains only characters that
 * the locale can show. JSON, HTML and other files for programs do not use these functions. */
#ifndef TSR_CLI_LIB_TERMINAL_H
#define TSR_CLI_LIB_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/lib/say.h"

/* Returns the number of columns of the terminal to which `out` writes, or the value of COLUMNS in
 * the environment, but at least 20. Returns 0 if neither is known, for example for a file or a
 * pipe. */
int cli_columns(FILE *out);

/* Returns the number of columns that a UTF-8 text takes. */
int cli_text_width(const char *text);

/* Returns a copy of a UTF-8 text in the encoding of the locale; free it with free(). If this
 * encoding is not UTF-8, punctuation and units are replaced by similar ASCII characters ("–"
 * becomes "-", and "µs" becomes "us"), and all other characters by question marks. */
char *cli_localized(const char *text);

/* Returns a formatted text; free it with free(). */
char *cli_format_list(const char *format, va_list arguments) CLI_PRINTF(1, 0);

/* These functions write UTF-8 text in the encoding of the locale. */
void cli_put(FILE *out, const char *text);
void cli_print(FILE *out, const char *format, ...) CLI_PRINTF(2, 3);

/* Writes text as cli_put does, and breaks lines between words. The width is that of the terminal,
 * but at most 100 columns, and 100 columns if it is unknown. A continued line is indented like the
 * line that it continues. For a line such as "  name   explanation", it starts below the
 * explanation. */
void cli_wrap(FILE *out, const char *text);

/* Writes one line and a newline. Breaks the line like cli_wrap, but only if the width of the
 * terminal is known. Lines in a file or a pipe are not broken. */
void cli_line(FILE *out, const char *format, ...) CLI_PRINTF(2, 3);

/* Writes the buffered standard output now. Returns false if some of standard output could not be
 * written, now or earlier. */
bool cli_flush(void);
/* Writes bytes to standard output. If that fails, cli_end_output prints the reason, which stdio
 * keeps only if bytes remain in its buffer. */
void cli_write(const char *bytes, size_t size);
/* Writes the rest of standard output. Returns `code`, the exit code of the command. If that is
 * CLI_DONE but some of the output could not be written, prints why, and returns CLI_FAILED. */
int cli_end_output(int code);

#endif
