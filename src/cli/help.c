/* tessera help [COMMAND] */
#include "cli/command.h"

static void help(FILE *out)
{
    fputs("Lists the commands, or explains one of them.\n", out);
}

static int run(int argc, char **argv)
{
    if (argc > 1) {
        const cli_command *command = cli_command_find(argv[1]);
        if (command == NULL)
            return cli_usage_error("there is no command '%s'; 'tessera help' lists them", argv[1]);
        const cli_command *part = argc > 2 ? cli_command_part(command, argv[2]) : NULL;
        int words = part != NULL ? 3 : 2;
        if (argc > words)
            return cli_usage_error("help explains one command at a time, but '%s' follows '%s'",
                                   argv[words], argv[words - 1]);
        command = part != NULL ? part : command;
        printf("usage: tessera %s%s%s\n\n", command->name, command->usage[0] != '\0' ? " " : "",
               command->usage);
        command->help(stdout);
        return CLI_DONE;
    }
    puts("usage: tessera COMMAND [options]\n"
         "       tessera --version\n"
         "\n"
         "commands:");
    for (int i = 0; cli_commands[i] != NULL; i++)
        printf("  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    puts("\n'tessera help COMMAND' has the details.");
    return CLI_DONE;
}

const cli_command cli_help = {
    .name = "help",
    .usage = "[COMMAND]",
    .summary = "this list, or what a command does",
    .run = run,
    .help = help,
};
