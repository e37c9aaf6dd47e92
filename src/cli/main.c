/* The tessera tool: finds the command and runs it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/lib/suggest.h"
#include "cli/lib/terminal.h"
#include "tessera/base.h"

static int explain(const cli_command *command)
{
    cli_command_explain(command);
    return CLI_DONE;
}

static int unknown_option(const char *argument)
{
    char text[CLI_SUGGESTION_TEXT];
    cli_suggestion nearest = CLI_SUGGESTION(argument + strspn(argument, "-"));
    cli_suggestion_offer(&nearest, "help");
    cli_suggestion_offer(&nearest, "version");
    return cli_usage_error("unknown option '%s'; %s", argument,
                           cli_suggestion_text(&nearest, "--", "help", text));
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return cli_usage_error("missing command; see 'tessera help'");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0) {
        if (argc > 2)
            return cli_usage_error("--version: unexpected argument '%s'", argv[2]);
        printf("tessera %s\n", tsr_version());
        return CLI_DONE;
    }
    const cli_command *command = cli_command_find(name);
    if (command == NULL && name[0] == '-')
        return unknown_option(name);
    if (command == NULL)
        return cli_command_unknown("", name);
    const cli_command *subcommand = argc > 2 ? cli_command_subcommand(command, argv[2]) : NULL;
    for (int i = 2; i < argc && !command->runs_program; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return explain(subcommand != NULL ? subcommand : command);
    return subcommand != NULL ? subcommand->run(argc - 2, argv + 2)
                              : command->run(argc - 1, argv + 1);
}

/* Prints a message of the library (for example that a cache cannot be written) or of Vulkan's
 * validation layers. */
static void print_log(void *user, tsr_log_level level, const char *message)
{
    (void)user;
    cli_say("%s: %s", level == TSR_LOG_ERROR ? "error" : "warning", message);
}

/* Opens the standard files that are closed. Otherwise the next file to be opened would get the
 * descriptor of, for example, standard output, and output would overwrite that file. The standard
 * files are opened in the wrong direction, so that using them still fails. */
static void hold_standard_files(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
            _exit(CLI_FAILED);
}

int main(int argc, char **argv)
{
    hold_standard_files();
    tsr_log_set(print_log, NULL, TSR_LOG_WARNING);
    /* The command has failed if the disk is full or the pipe was closed. */
    return cli_end_output(run(argc, argv));
}
