/* Text for people: fits the width of the terminal, and uses only characters that the locale can
 * show. JSON, HTML and other files for programs do not go through these functions. */
#ifndef TSR_CLI_LIB_TERMINAL_H
#define TSR_CLI_LIB_TERMINAL_H

#include <stdio.h>

#include "cli/lib/say.h"

/* Columns of the terminal behind `out`, or COLUMNS of the environment; 0 if neither is known, as
 * for a file or a pipe. At least 20. */
int cli_columns(FILE *out);

/* Columns that UTF-8 text takes. */
int cli_text_width(const char *text);

/* A copy of UTF-8 text in the characters of the locale; free it with free(). If the locale's
 * encoding is not UTF-8, punctuation and units become ASCII that resembles them ("–" becomes "-",
 * "µs" becomes "us"), and other characters question marks. */
char *cli_localized(const char *text);

/* Write UTF-8 text in the characters of the locale. */
void cli_put(FILE *out, const char *text);
void cli_print(FILE *out, const char *format, ...) CLI_PRINTF(2, 3);

/* Writes text as cli_put does, and breaks lines between words at the terminal's width, or at 100
 * columns if that is unknown or larger. Continued lines are indented like the line they continue;
 * in "  name   explanation", to the explanation. */
void cli_wrap(FILE *out, const char *text);

/* Writes one line and its newline, broken in the same way, but only if the width of the terminal is
 * known: lines in a file or a pipe are not broken. */
void cli_line(FILE *out, const char *format, ...) CLI_PRINTF(2, 3);

#endif
