/* tessera bench, in a build without benchmarks. */
#include "cli/command.h"

static void help(FILE *out)
{
    fputs("This tessera was built without benchmarks: they need the build option bench.\n", out);
}

static int run(int argc, char **argv)
{
    (void)argc, (void)argv;
    return cli_failed("bench: this tessera was built without benchmarks");
}

const cli_command cli_bench = {
    .name = "bench",
    .usage = "BENCHMARK [options]",
    .summary = "not in this build",
    .run = run,
    .help = help,
};
