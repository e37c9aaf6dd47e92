/* tessera serve in a build without libmicrohttpd. */
#include "cli/commands.h"

static int run(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cli_failed("serve: this tessera was built without libmicrohttpd (meson option 'serve')");
}

static void help(FILE *out)
{
    fputs("This tessera was built without libmicrohttpd (meson option 'serve'), and cannot serve "
          "models.\n",
          out);
}

const cli_command cli_serve = {
    .name = "serve",
    .usage = "MODEL [options]",
    .summary = "serve a language model by OpenAI's HTTP API",
    .run = run,
    .help = help,
};
