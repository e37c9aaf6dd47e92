/* The command `tessera launch -n N [options] [--] PROGRAM …`. This file parses the arguments, and
 * run.c runs the job. */
#include "cli/launch/launch.h"

#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"

static launch_options chosen = {.grace = LAUNCH_GRACE_UNSET};

static const cli_option options[] = {
    {"ranks", "N", "number of processes", .integer = &chosen.ranks, .low = 1,
     .high = LAUNCH_MAX_RANKS, .letter = 'n'},
    {"nproc-per-node", "N", "the same as --ranks, by torchrun's name", .integer = &chosen.ranks,
     .low = 1, .high = LAUNCH_MAX_RANKS},
    {"device-map", "MAP",
     "devices for the ranks: auto, or indices such as 0,1, repeated if needed (default: auto)",
     .text = &chosen.device_map},
    {"grace", "SECONDS",
     "time between SIGTERM and SIGKILL (default: 5; after a signal, what the program asks for)",
     .real = &chosen.grace, .low = 0, .high = LAUNCH_MAX_GRACE},
    {"keep-going", NULL, "do not stop the others if a process fails", .flag = &chosen.keep_going},
    {"respawn", "N", "start up to N processes in the place of ones that fail; implies --keep-going",
     .integer = &chosen.respawn, .low = 0, .high = 10000},
    {"no-prefix", NULL, "pass standard output and error through unchanged",
     .flag = &chosen.no_prefix},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Starts N copies of a program on this machine and sets for each RANK, WORLD_SIZE, "
        "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TESSERA_MASTER_PORT, "
        "TESSERA_TOKEN, TESSERA_JOB_ID, TESSERA_BOOT and TESSERA_DEVICE. Prints their output line "
        "by line, with the rank in front. Rank 0 gets standard input, also what is typed at a "
        "terminal. Without --device-map, a TESSERA_DEVICE that is already set is kept.\n"
        "\n"
        "If a process fails, the others are stopped, and the exit status is that of the process, "
        "or 128 plus the number of the signal that ended it. 126 means that the program cannot be "
        "run, 127 that it does not exist. Signals are passed on. After INT, TERM, HUP or QUIT the "
        "processes have the grace period to end; a second signal kills them. When the launch is "
        "over, no process of the job is left.\n"
        "\n"
        "With --keep-going the others continue, as programs that use tsr_comm_shrink can, and the "
        "exit status is 0 if at least one process succeeds. With --respawn a process that failed "
        "is replaced by one with TESSERA_BOOT=join, which joins the job through tsr_comm_grow. "
        "When no member of the job is left, processes that wait to join are ended, or all are "
        "started again with TESSERA_RESTART, if the program has said that it can be "
        "(docs/launching.md).\n");
    cli_options_help(out, options);
}

static bool takes_value(const char *name)
{
    for (const cli_option *option = options; option->name != NULL; option++)
        if (strcmp(option->name, name) == 0)
            return option->argument != NULL;
    return false;
}

/* Returns the number of the launcher's own arguments. The program follows them, either after "--"
 * or as the first word that is neither an option nor the value of an option. */
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

static int run(int argc, char **argv)
{
    int own = count_own(argc, argv);
    for (int i = 1; i < own; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return cli_command_explain(&cli_launch), CLI_DONE;
    int words, code = cli_options_read("launch", options, own, argv, 0, NULL, &words);
    if (code != CLI_DONE)
        return code;
    if (own < argc && strcmp(argv[own], "--") == 0)
        own++;
    if (chosen.ranks == 0)
        return cli_usage_error("launch: missing -n N, the number of processes");
    if (own == argc)
        return cli_usage_error("launch: missing PROGRAM after the options");
    chosen.program = argv + own;
    chosen.keep_going = chosen.keep_going || chosen.respawn > 0;

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
    .summary = "start several processes of a program as one job",
    .run = run,
    .help = help,
    .runs_program = true,
};
