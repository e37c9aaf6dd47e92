#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

#define PROGRAM "feedforward"

enum { OPT_DEVICE = 256, OPT_DTYPE, OPT_GENERATE, OPT_HIDDEN, OPT_RUNS, OPT_TOKENS, OPT_WIDTH };

static const struct option known[] = {{"device", required_argument, NULL, OPT_DEVICE},
                                      {"dtype", required_argument, NULL, OPT_DTYPE},
                                      {"generate", no_argument, NULL, OPT_GENERATE},
                                      {"help", no_argument, NULL, 'h'},
                                      {"hidden", required_argument, NULL, OPT_HIDDEN},
                                      {"runs", required_argument, NULL, OPT_RUNS},
                                      {"tokens", required_argument, NULL, OPT_TOKENS},
                                      {"width", required_argument, NULL, OPT_WIDTH},
                                      {0}};

static bool take(int option, const char *value, feedforward_options *out)
{
    switch (option) {
    case OPT_DEVICE:
        out->device = value;
        return true;
    case OPT_DTYPE:
        return parse_dtype(PROGRAM, value, &out->dtype);
    case OPT_GENERATE:
        out->generate = true;
        return true;
    case OPT_HIDDEN:
        return parse_int(PROGRAM, "hidden", value, 1, 1 << 20, &out->hidden);
    case OPT_RUNS:
        return parse_int(PROGRAM, "runs", value, 1, 100000, &out->runs);
    case OPT_TOKENS:
        return parse_int(PROGRAM, "tokens", value, 1, 1 << 20, &out->tokens);
    case OPT_WIDTH:
        return parse_int(PROGRAM, "width", value, 1, 1 << 20, &out->width);
    case 'h':
        out->help = true;
        return true;
    }
    return wrong_option(PROGRAM, "invalid command line", "");
}

bool feedforward_options_parse(int argc, char **argv, feedforward_options *out)
{
    *out = (feedforward_options){
        .tokens = 128, .runs = 5, .width = 4096, .hidden = 11008, .dtype = TSR_F32};
    int option;
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1)
        if (!take(option, optarg, out))
            return false;
    if (out->help)
        return true;
    if (argc - optind != 1)
        return wrong_option(PROGRAM, optind < argc ? "more than one FILE: " : "missing FILE",
                            optind < argc ? argv[optind + 1] : "");
    out->file = argv[optind];
    return true;
}

void feedforward_options_help(void)
{
    printf(
        "usage: feedforward [options] FILE\n"
        "       feedforward --generate [options] FILE\n\n"
        "Runs a transformer's gated feed-forward block on random tokens, with its weights divided "
        "over the ranks of the\n"
        "job, and compares with the result of one process. Several ranks: tessera launch -n 2 "
        "-- feedforward FILE\n\n"
        "FILE             safetensors, or model.safetensors.index.json, with weights called "
        "…gate_proj.weight,\n"
        "                 …up_proj.weight and …down_proj.weight; the first layer's are used\n"
        "--tokens N       per pass; default: 128\n"
        "--runs N         passes to time; default: 5\n"
        "--device NAME    index, UUID or part of the name, as `tessera devices` lists them\n"
        "--generate       write FILE, with random weights\n"
        "--width N        of the generated block; default: 4096\n"
        "--hidden N       of the generated block; default: 11008\n"
        "--dtype TYPE     of the generated block: f32 (default), f16 or bf16\n"
        "--help           print this text\n\n"
        "Exit status: 0 same result, 1 different result or failure, 2 wrong usage.\n");
}
