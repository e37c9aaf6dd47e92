/* A command of the tool: its name, its help and its entry point. */
#ifndef TSR_CLI_LIB_COMMAND_H
#define TSR_CLI_LIB_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/lib/say.h"

typedef struct cli_command {
    const char *name;    /* "bench", or "bench report" */
    const char *usage;   /* what follows the name: "[--json]" */
    const char *summary; /* its line in the output of `tessera help` */
    /* Runs the command and returns an exit code. argv[0] is the command's name. Writes to standard
     * output only on success. */
    int (*run)(int argc, char **argv);
    /* Prints the body of `tessera help NAME`: what the command does, and its options. */
    void (*help)(FILE *out);
    /* Its arguments may belong to another program, so that it looks for --help itself. */
    bool runs_program;
    /* Its subcommands, such as "bench report", ending with NULL; or NULL. */
    const struct cli_command *const *parts;
} cli_command;

/* Prints the help of a command. */
void cli_command_explain(const cli_command *command);

#endif
