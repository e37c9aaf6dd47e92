/* tessera launch -n N [options] [--] PROGRAM …: reads the arguments; the job is in run.c. */
#include "cli/launch/launch.h"

#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/lib/memory.h"
#include "cli/lib/options.h"

static launch_options chosen = {.grace = 5};

static const cli_option options[] = {
    {"ranks", "N", "how many processes; -n N for short", .integer = &chosen.ranks, .low = 1,
     .high = LAUNCH_MAX_RANKS},
    {"device-map", "MAP",
     "devices for the ranks: auto, or indices such as 0,1 that repeat (default auto)",
     .text = &chosen.device_map},
    {"grace", "SECONDS", "between asking processes to end and killing them (default 5)",
     .real = &chosen.grace, .low = 0, .high = 86400},
    {"no-prefix", NULL, "leave standard output and error to the processes, as they are",
     .flag = &chosen.no_prefix},
    {0},
};

static void help(FILE *out)
{
    fputs(
        "Starts N copies of a program on this machine, each with its RANK, WORLD_SIZE,\n"
        "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TESSERA_MASTER_PORT,\n"
        "TESSERA_TOKEN, TESSERA_JOB_ID, TESSERA_BOOT and TESSERA_DEVICE. Their output comes line "
        "by line, the\n"
        "rank in front. Rank 0 gets standard input, unless that is a terminal. Without\n"
        "--device-map, a TESSERA_DEVICE that is set stays.\n"
        "\n"
        "When one fails, the others are stopped, and its exit status is that of the launch:\n"
        "128 and the signal, where one ended it. 126 and 127 say that the program cannot be run,\n"
        "or is not there. Signals are passed on; after INT, TERM, HUP or QUIT the processes have\n"
        "the grace period to end, and a second one ends them at once. No process of the job is\n"
        "left when the launch is over.\n",
        out);
    cli_options_help(out, options);
}

static bool takes_value(const char *name)
{
    for (const cli_option *option = options; option->name != NULL; option++)
        if (strcmp(option->name, name) == 0)
            return option->argument != NULL;
    return false;
}

/* How many of the arguments are ours: those before "--", or before the first word that belongs to
 * no option. */
static int count_own(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' || strcmp(argv[i], "--") == 0)
            return i;
        if (strcmp(argv[i], "-n") == 0 ||
            (strncmp(argv[i], "--", 2) == 0 && takes_value(argv[i] + 2)))
            i++;
    }
    return argc;
}

static int read_own(int count, char **argv)
{
    static char long_name[] = "--ranks";
    char **own = cli_alloc((size_t)count + 1, sizeof *own);
    for (int i = 0; i < count; i++)
        own[i] = strcmp(argv[i], "-n") == 0 ? long_name : argv[i];
    int words;
    int code = cli_options_read("launch", options, count, own, 0, NULL, &words);
    free(own);
    return code;
}

static int run(int argc, char **argv)
{
    int own = count_own(argc, argv);
    for (int i = 1; i < own; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return cli_help.run(2, (char *[]){"help", "launch", NULL});
    int code = read_own(own, argv);
    if (code != CLI_DONE)
        return code;
    if (own < argc && strcmp(argv[own], "--") == 0)
        own++;
    if (chosen.ranks == 0)
        return cli_usage_error("launch: how many processes? -n N says it");
    if (own == argc)
        return cli_usage_error("launch: which program? It stands after the options");
    chosen.program = argv + own;

    launch_devices devices = {0};
    const char *device = getenv("TESSERA_DEVICE");
    if (chosen.device_map == NULL && (device == NULL || device[0] == '\0'))
        chosen.device_map = "auto";
    if (chosen.device_map != NULL)
        code = launch_devices_find(chosen.device_map, &devices);
    return code == CLI_DONE ? launch_run(&chosen, &devices) : code;
}

const cli_command cli_launch = {
    .name = "launch",
    .usage = "-n N [options] [--] PROGRAM [arguments]",
    .summary = "several processes of a program that find one another",
    .run = run,
    .help = help,
    .runs_program = true,
};
