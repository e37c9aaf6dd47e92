/* A command of the tool: its name, its help and its entry point. */
#ifndef TSR_CLI_LIB_COMMAND_H
#define TSR_CLI_LIB_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/lib/say.h"

typedef struct cli_command {
    const char *name;    /* for example "bench" or "bench report" */
    const char *usage;   /* the arguments that follow the name, such as "[--json]" */
    const char *summary; /* the command's line in the output of `tessera help` */
    /* Runs the command and returns an exit code. argv[0] is the command's name. Must write to
     * standard output only on success. */
    int (*run)(int argc, char **argv);
    /* Prints the part of `tessera help NAME` that follows the heading: what the command does, and
     * its options. */
    void (*help)(FILE *out);
    /* True if the arguments may contain the command line of another program, whose --help is not
     * meant for this command. The command then looks for --help itself. */
    bool runs_program;
    /* The subcommands, such as "bench report", with NULL at the end. NULL if there are none. */
    const struct cli_command *const *subcommands;
} cli_command;

/* Prints the help of a command. */
void cli_command_explain(const cli_command *command);

#endif
