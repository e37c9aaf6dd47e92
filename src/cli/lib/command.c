#include "cli/lib/command.h"

#include "cli/lib/terminal.h"

void cli_command_explain(const cli_command *command)
{
    char usage[256];
    snprintf(usage, sizeof usage, "usage: tessera %s %s\n\n", command->name, command->usage);
    cli_wrap(stdout, usage);
    command->help(stdout);
}
