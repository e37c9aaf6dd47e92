/* The command `tessera launch` on a system whose communicators have one process only. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/lib/say.h"

static const char reason[] = "this system has communicators of one process only";

static void help(FILE *out)
{
    fprintf(out, "Starts several copies of a program as one job. It always fails: %s.\n", reason);
}

static int run(int argc, char **argv)
{
    (void)argc, (void)argv;
    return cli_failed("launch: %s", reason);
}

const cli_command cli_launch = {
    .name = "launch",
    .usage = "-n N [options] [--] PROGRAM [ARGUMENTS]",
    .summary = "not on this system: start several processes as one job",
    .run = run,
    .help = help,
    .runs_program = true,
};
