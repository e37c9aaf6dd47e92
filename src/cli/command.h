/* A subcommand of the tool: one file each, listed in main.c. */
#ifndef TSR_CLI_COMMAND_H
#define TSR_CLI_COMMAND_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif

/* Exit codes, as docs/tessera.1 promises them. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

typedef struct cli_command {
    const char *name;    /* "bench", "bench report" */
    const char *usage;   /* what follows the name: "[--json]" */
    const char *summary; /* one line of `tessera help` */
    /* Reads its own arguments, argv[0] being the command's name; returns an exit code. Writes
     * nothing to standard output unless it succeeds. */
    int (*run)(int argc, char **argv);
    /* The rest of `tessera help NAME`: what it does, and its options. */
    void (*help)(FILE *out);
    /* Some of its arguments are another program's, so it looks for --help itself. */
    bool runs_program;
    /* Commands of two words that begin with this one, ending with NULL; or NULL. */
    const struct cli_command *const *parts;
} cli_command;

extern const cli_command cli_devices;
extern const cli_command cli_bench;
extern const cli_command cli_sample;
extern const cli_command cli_launch;
extern const cli_command cli_plan;
extern const cli_command cli_help;

/* Every subcommand, ending with one whose name is NULL. */
extern const cli_command *const cli_commands[];
const cli_command *cli_command_find(const char *name);
/* "report" of "bench", or NULL. */
const cli_command *cli_command_part(const cli_command *command, const char *word);

/* Says something on standard error, in one line whatever is in it. */
void cli_say(const char *format, ...) CLI_PRINTF(1, 2);
void cli_say_list(const char *format, va_list arguments) CLI_PRINTF(1, 0);

/* Says on standard error, in one sentence, what is wrong with the arguments; returns CLI_USAGE. */
int cli_usage_error(const char *format, ...) CLI_PRINTF(1, 2);

/* Says on standard error what could not be done; returns CLI_FAILED. */
int cli_failed(const char *format, ...) CLI_PRINTF(1, 2);

#endif
