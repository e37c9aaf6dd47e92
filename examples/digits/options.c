#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "data.h"

#define PROGRAM "digits"

enum {
    OPT_BATCH = 256,
    OPT_CURVE,
    OPT_DEVICE,
    OPT_DTYPE,
    OPT_EPOCHS,
    OPT_GRID,
    OPT_HIDDEN,
    OPT_LEARNING_RATE,
    OPT_LOAD,
    OPT_LOG,
    OPT_RANKS,
    OPT_SAVE,
    OPT_SAVE_INIT,
    OPT_SEED,
    OPT_STRATEGY,
    OPT_TIMEOUT,
    OPT_WEIGHT_DECAY,
    OPT_WORKERS
};

static const struct option known[] = {{"batch", required_argument, NULL, OPT_BATCH},
                                      {"curve", required_argument, NULL, OPT_CURVE},
                                      {"device", required_argument, NULL, OPT_DEVICE},
                                      {"dtype", required_argument, NULL, OPT_DTYPE},
                                      {"epochs", required_argument, NULL, OPT_EPOCHS},
                                      {"grid", required_argument, NULL, OPT_GRID},
                                      {"help", no_argument, NULL, 'h'},
                                      {"hidden", required_argument, NULL, OPT_HIDDEN},
                                      {"learning-rate", required_argument, NULL, OPT_LEARNING_RATE},
                                      {"load", required_argument, NULL, OPT_LOAD},
                                      {"log", required_argument, NULL, OPT_LOG},
                                      {"ranks", required_argument, NULL, OPT_RANKS},
                                      {"save", required_argument, NULL, OPT_SAVE},
                                      {"save-init", required_argument, NULL, OPT_SAVE_INIT},
                                      {"seed", required_argument, NULL, OPT_SEED},
                                      {"strategy", required_argument, NULL, OPT_STRATEGY},
                                      {"timeout", required_argument, NULL, OPT_TIMEOUT},
                                      {"weight-decay", required_argument, NULL, OPT_WEIGHT_DECAY},
                                      {"workers", required_argument, NULL, OPT_WORKERS},
                                      {0}};

static bool take(int option, const char *value, digits_options *out)
{
    switch (option) {
    case OPT_BATCH:
        return parse_int(PROGRAM, "batch", value, 1, 1 << 16, &out->batch);
    case OPT_CURVE:
        out->curve = value;
        return true;
    case OPT_DEVICE:
        out->device = value;
        return true;
    case OPT_DTYPE:
        return parse_dtype(PROGRAM, value, &out->dtype);
    case OPT_EPOCHS:
        return parse_int(PROGRAM, "epochs", value, 0, 100000, &out->epochs);
    case OPT_GRID:
        return parse_grid(PROGRAM, value, &out->data, &out->tensor);
    case OPT_HIDDEN:
        return parse_int(PROGRAM, "hidden", value, 1, 1 << 20, &out->hidden);
    case OPT_LEARNING_RATE:
        return parse_number(PROGRAM, "learning-rate", value, 0, &out->learning_rate);
    case OPT_LOAD:
        out->load = value;
        return true;
    case OPT_LOG:
        out->log = value;
        return true;
    case OPT_RANKS:
        return parse_int(PROGRAM, "ranks", value, 1, TSR_MAX_COMM_SIZE, &out->ranks);
    case OPT_SAVE:
        out->save = value;
        return true;
    case OPT_SAVE_INIT:
        out->save_init = value;
        return true;
    case OPT_SEED:
        return parse_seed(PROGRAM, value, &out->seed);
    case OPT_STRATEGY:
        return parse_strategy(PROGRAM, value, &out->strategy);
    case OPT_TIMEOUT:
        /* A timeout of 0 is refused, because to the library it means its default. */
        return parse_number(PROGRAM, "timeout", value, 0.001, &out->timeout_seconds);
    case OPT_WEIGHT_DECAY:
        return parse_number(PROGRAM, "weight-decay", value, 0, &out->weight_decay);
    case OPT_WORKERS:
        return parse_int(PROGRAM, "workers", value, 0, 64, &out->workers);
    case 'h':
        out->help = true;
        return true;
    }
    return wrong_option(PROGRAM, "invalid command line", "");
}

bool digits_options_parse(int argc, char **argv, digits_options *out)
{
    *out = (digits_options){.csv = DIGITS_CSV,
                            .strategy = "none",
                            .hidden = 256,
                            .epochs = 40,
                            .batch = 64,
                            .workers = 1,
                            .seed = 42,
                            .dtype = TSR_F32,
                            .learning_rate = 2e-2,
                            .weight_decay = 0.3,
                            .timeout_seconds = 60};
    int option;
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1)
        if (!take(option, optarg, out))
            return false;
    if (argc - optind > 1)
        return wrong_option(PROGRAM, "more than one FILE: ", argv[optind + 1]);
    if (optind < argc)
        out->csv = argv[optind];
    if (out->ranks && out->data && out->ranks != out->data * out->tensor) {
        fprintf(stderr, "digits: a grid of %dx%d has %d ranks, not %d\n", out->data, out->tensor,
                out->data * out->tensor, out->ranks);
        return false;
    }
    return true;
}

void digits_options_help(void)
{
    printf(
        "usage: digits [options] [FILE]\n\n"
        "Trains a network of 64 → hidden → 10 on images of handwritten digits, over the ranks of "
        "a grid: those of a\n"
        "row share each image's work (tensor parallelism), those of a column share the images "
        "(data parallelism).\n"
        "Four fifths of the images are for training; the others measure the accuracy.\n\n"
        "FILE                  lines of 64 pixels (0 to 16) and a label (0 to 9); default:\n"
        "                      %s\n"
        "--ranks N             start N processes here; default: those that a launcher started, or "
        "one\n"
        "--grid DATAxTENSOR    default: 1xN\n"
        "--strategy NAME       how the ranks of a column share parameters: none (each has all), "
        "full, layerwise,\n"
        "                      hybrid, weighted\n"
        "--device NAME         index, UUID or part of the name, as `tessera devices` lists them\n"
        "--dtype TYPE          f32 (default), f16 or bf16, of parameters and activations\n"
        "--hidden N            default: 256\n"
        "--epochs N            default: 40\n"
        "--batch N             images in a step, of all ranks together; default: 64\n"
        "--learning-rate X     default: 0.02\n"
        "--weight-decay X      default: 0.3\n"
        "--seed N              for the initial weights and the order of images; default: 42\n"
        "--workers N           threads that load images; default: 1\n"
        "--timeout SECONDS     how long to wait for other ranks; default: 60\n"
        "--load FILE           continue from this checkpoint, of any grid and strategy\n"
        "--save FILE           write a checkpoint (safetensors) after each epoch\n"
        "--save-init FILE      write a checkpoint before the first epoch\n"
        "--log FILE            write a line of JSON for each epoch\n"
        "--curve FILE          write a plot (SVG) of the losses\n"
        "--help                print this text\n\n"
        "Exit status: 0 trained, 1 something failed, 2 wrong usage.\n",
        DIGITS_CSV);
}
