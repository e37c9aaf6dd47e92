/* tessera bench in a build without benchmarks. */
#include <stdio.h>

#include "cli/commands.h"

static void help(FILE *out)
{
    fputs("This build has no benchmarks.\nBuild with -Dbench=enabled to have them.\n", out);
}

static int run(int argc, char **argv)
{
    (void)argc, (void)argv;
    return cli_failed("bench: this tessera was built without benchmarks");
}

const cli_command cli_bench = {
    .name = "bench",
    .usage = "[BENCHMARK] [options]",
    .summary = "not in this build",
    .run = run,
    .help = help,
};
