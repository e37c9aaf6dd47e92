/* Messages on standard error, and the exit codes of the tool. A message is always one line, because
 * control characters in names and in texts from outside are escaped. */
#ifndef TSR_CLI_LIB_SAY_H
#define TSR_CLI_LIB_SAY_H

#include <stdarg.h>

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif

/* The exit codes of the tool, which docs/tessera.1 and `tessera help` document. CLI_USAGE: the
 * command line is wrong, which the command finds before it opens a file or a device. CLI_FAILED:
 * anything that fails later, files that cannot be read or are invalid included. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Prints "tessera: MESSAGE" and a newline. */
void cli_say(const char *format, ...) CLI_PRINTF(1, 2);
void cli_say_list(const char *format, va_list arguments) CLI_PRINTF(1, 0);

/* Prints a sentence that says what is wrong with the arguments. Returns CLI_USAGE. */
int cli_usage_error(const char *format, ...) CLI_PRINTF(1, 2);

/* Prints a message that says what has failed. Returns CLI_FAILED. */
int cli_failed(const char *format, ...) CLI_PRINTF(1, 2);

/* Returns the text of the library without the name of a module that reads files at its
 * beginning. */
const char *cli_without_module(const char *text);
/* As cli_failed("COMMAND: TEXT"), for such a text without that name. Does not repeat the command's
 * name if the text begins with it. */
int cli_failed_in(const char *command, const char *text);

#endif
