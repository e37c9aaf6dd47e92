/* The list of commands, and the command `tessera help [COMMAND]`. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/lib/suggest.h"
#include "cli/lib/terminal.h"

const cli_command *const cli_commands[] = {
    &cli_devices,    &cli_bench,    &cli_sample,  &cli_plan,  &cli_generate,
    &cli_chat,       &cli_serve,    &cli_data,    &cli_train, &cli_finetune,
    &cli_info,       &cli_tokenize, &cli_convert, &cli_merge, &cli_quantize,
    &cli_checkpoint, &cli_launch,   &cli_help,    NULL,
};

const cli_command *cli_command_find(const char *name)
{
    for (int i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}

const cli_command *cli_command_subcommand(const cli_command *command, const char *word)
{
    size_t length = strlen(command->name);
    for (int i = 0; command->subcommands != NULL && command->subcommands[i] != NULL; i++)
        if (strcmp(command->subcommands[i]->name + length + 1, word) == 0)
            return command->subcommands[i];
    return NULL;
}

int cli_command_unknown(const char *who, const char *name)
{
    char text[CLI_SUGGESTION_TEXT];
    cli_suggestion nearest = CLI_SUGGESTION(name);
    for (int i = 0; cli_commands[i] != NULL; i++)
        cli_suggestion_offer(&nearest, cli_commands[i]->name);
    return cli_usage_error("%sunknown command '%s'; %s", who, name,
                           cli_suggestion_text(&nearest, "", "help", text));
}

static void help(FILE *out)
{
    cli_wrap(out, "Lists the commands, or explains one: tessera help bench, tessera help bench "
                  "report.\n");
}

/* Returns a command that has a subcommand with this name, or NULL. It makes `tessera help report`
 * work as `tessera help bench report` does. */
static const cli_command *find_subcommand(const char *word)
{
    for (int i = 0; cli_commands[i] != NULL; i++) {
        const cli_command *subcommand = cli_command_subcommand(cli_commands[i], word);
        if (subcommand != NULL)
            return subcommand;
    }
    return NULL;
}

static int unknown(const char *word)
{
    const cli_command *subcommand = find_subcommand(word);
    if (subcommand != NULL)
        return cli_usage_error("help: unknown command '%s'; try 'tessera help %s'", word,
                               subcommand->name);
    return cli_command_unknown("help: ", word);
}

static int explain(int argc, char **argv)
{
    const cli_command *command = cli_command_find(argv[1]);
    if (command == NULL)
        return unknown(argv[1]);
    const cli_command *subcommand = argc > 2 ? cli_command_subcommand(command, argv[2]) : NULL;
    int words = subcommand != NULL ? 3 : 2;
    if (argc > words)
        return cli_usage_error("help: unexpected argument '%s'", argv[words]);
    command = subcommand != NULL ? subcommand : command;
    cli_command_explain(command);
    return CLI_DONE;
}

static int run(int argc, char **argv)
{
    char line[256];
    if (argc > 1)
        return explain(argc, argv);
    puts("usage: tessera COMMAND [options]\n"
         "       tessera --version\n"
         "\n"
         "commands:");
    for (int i = 0; cli_commands[i] != NULL; i++) {
        snprintf(line, sizeof line, "  %-10s  %s\n", cli_commands[i]->name,
                 cli_commands[i]->summary);
        cli_wrap(stdout, line);
    }
    cli_wrap(stdout,
             "\nRun 'tessera help COMMAND' for the options of a command.\n"
             "\nExit status: 0 success; 1 something failed, for example a file that cannot be "
             "read or is invalid; 2 the command line is wrong. 'tessera help bench compare' "
             "and 'tessera help launch' name the others.\n");
    return CLI_DONE;
}

const cli_command cli_help = {
    .name = "help",
    .usage = "[COMMAND]",
    .summary = "list the commands, or explain one",
    .run = run,
    .help = help,
};
