/* tessera bench serve on systems where its client does not work. */
#include "bench/serve/serve.h"

static int run(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cli_failed("bench serve: not on this system");
}

static void help(FILE *out)
{
    fputs("Not on this system.\n", out);
}

const cli_command bench_serve_command = {
    .name = "bench serve",
    .usage = "URL... [options]",
    .summary = "measure servers of OpenAI's HTTP API",
    .run = run,
    .help = help,
};
