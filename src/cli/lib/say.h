/* Messages on standard error, and the exit codes of the tool. A message is always one line: control
 * characters in names and texts from outside are escaped. */
#ifndef TSR_CLI_LIB_SAY_H
#define TSR_CLI_LIB_SAY_H

#include <stdarg.h>

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif

/* Exit codes, documented in docs/tessera.1. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Prints "tessera: MESSAGE" and a newline. */
void cli_say(const char *format, ...) CLI_PRINTF(1, 2);
void cli_say_list(const char *format, va_list arguments) CLI_PRINTF(1, 0);

/* Prints what is wrong with the arguments, in one sentence. Returns CLI_USAGE. */
int cli_usage_error(const char *format, ...) CLI_PRINTF(1, 2);

/* Prints what could not be done. Returns CLI_FAILED. */
int cli_failed(const char *format, ...) CLI_PRINTF(1, 2);

#endif
