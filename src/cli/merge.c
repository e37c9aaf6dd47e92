/* tessera merge: a model whose weights have an adapter added. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/conversion.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"

static tsr_convert_params chosen = {.struct_size = sizeof chosen};
static const char *output;
static double scale = 1;
static bool quiet;

static const cli_option options[] = {
    {"output", "DESTINATION",
     "the model to write: a GGUF file if the name ends in .gguf, otherwise a folder",
     .text = &output, .letter = 'o'},
    {"dtype", "TYPE",
     "what matrices become, as for 'tessera convert --type' (default: each keeps its type)",
     .read = cli_conversion_read_type, .user = &chosen},
    {"scale", "S", "multiply what the adapter adds by S (default: 1)", .real = &scale, .low = -1e6,
     .high = 1e6},
    {"force", NULL, "replace DESTINATION if it exists", .flag = &chosen.replace},
    {"no-tokenizer", NULL, "leave the tokenizer out", .flag = &chosen.weights_only},
    {"quiet", NULL, "show no progress, and no sentences about what DESTINATION has differently",
     .flag = &quiet},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(out,
             "Writes a model with an adapter added to its weights: W + scale B A. MODEL is a "
             "Hugging Face folder or a GGUF file, ADAPTER a PEFT folder or a GGUF adapter of "
             "llama.cpp. Weights in block formats are added to as numbers, and quantised again. "
             "No device is needed. Everything is written under a temporary name beside DESTINATION "
             "and renamed at the end.\n");
    cli_options_help(out, options);
}

static int run(int argc, char **argv)
{
    const char *paths[2] = {NULL, NULL};
    tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
    int words;
    int code = cli_options_read("merge", options, argc, argv, 2, paths, &words);
    if (code != CLI_DONE)
        return code;
    if (words < 2)
        return cli_usage_error("merge: missing %s", words == 0 ? "MODEL" : "ADAPTER");
    if (output == NULL)
        return cli_usage_error("merge: missing --output DESTINATION");
    chosen.adapter = paths[1];
    chosen.adapter_scale = scale != 0 ? scale : TSR_ZERO;
    code = cli_conversion_run("merge", paths[0], output, &chosen, quiet, &stats);
    if (code == CLI_DONE)
        cli_line(
            stdout, "%s: %" PRIu64 " tensor%s, %" PRIu64 " with the adapter, %" PRIu64 " bytes",
            output, stats.tensors, CLI_PLURAL(stats.tensors), stats.merged, stats.written_bytes);
    return code;
}

const cli_command cli_merge = {
    .name = "merge",
    .usage = "MODEL ADAPTER --output DESTINATION [options]",
    .summary = "write a model with an adapter added to its weights",
    .run = run,
    .help = help,
};
