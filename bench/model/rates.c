/* tessera bench rates: its options. */
#include "bench/model/rates.h"

#include <stdio.h>

#include "cli/lib/options.h"
#include "cli/lib/terminal.h"

static bench_rates_options chosen = {
    .type = TSR_F16,
    .sequences = 1,
    .prompt = 256,
    .seconds = 3,
    .timeout = 600,
    .to = {.format = BENCH_AS_TEXT},
};

static const cli_option options[] = {
    {"shape", "NAME",
     "without MODEL: the shape of the model: llama-1b, llama-7b, llama-110m, llama-15m, "
     "qwen3-30b-a3b, gpt-oss-20b, gpt-oss-120b, glm-4.5-air, mixtral-8x7b, "
     "qwen3.5-27b, qwen3.5-35b-a3b or glm-4.7-flash (default: "
     "llama-1b, with --experts qwen3-30b-a3b)",
     .read = bench_model_read_shape, .user = &chosen.shape},
    {"type", "TYPE",
     "the type of its matrices: f32, f16, bf16 or a block format, such as q4_k (default: f16)",
     .read = cli_read_matrix_dtype, .user = &chosen.type},
    {"sequences", "N", "measure passes of 1, 2, 4 and so on up to N rows (default: 1)",
     .integer = &chosen.sequences, .low = 1, .high = TSR_GENERATOR_MAX_SEQUENCES},
    {"prompt-tokens", "N", "measure a pass of a prompt of N tokens; 0: none (default: 256)",
     .integer = &chosen.prompt, .low = 0, .high = 1 << 16, .letter = 'p'},
    {"experts", NULL,
     "also measure the matrices of experts by themselves: without it, they count as fast as others",
     .flag = &chosen.experts},
    {"time", "SECONDS", "time for each model and number of rows (default: 3)",
     .real = &chosen.seconds, .low = 0.001, .high = 600},
    {"memory", "LIST",
     "device memory of each rank for the models, such as 8G,12G, or one value for all (default: "
     "what each device has left)",
     .read = cli_read_memory, .user = &chosen.stages.memory},
    {"device", "DEVICE",
     "index, UUID or part of the name (default: TESSERA_DEVICE, or the fastest)",
     .text = &chosen.device},
    {"timeout", "SECONDS", "the longest time that ranks wait for each other (default: 600)",
     .real = &chosen.timeout, .low = 1, .high = 1e6},
    BENCH_DESTINATION_OPTIONS(chosen.to),
    {0},
};

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Measures what 'tessera plan --cluster --rank-rates FILE' needs to know about each rank of "
        "a "
        "job: how long it takes for a pass of a model's layers while all ranks of the job compute, "
        "each by itself. Start it with the ranks and hosts of the job that is planned.\n"
        "\n"
        "Each rank generates with models of random weights, which have layers of MODEL's or "
        "--shape's width: one and five layers, the same with half of the heads and the MLP (or "
        "only of the MLP), one layer with half of the vocabulary, and one and five layers with "
        "hardly anything. They take turns after a few tokens, and times of equal ranks are "
        "averaged. From these times follow the time of a pass that depends neither on layers nor "
        "on sizes ('pass'), that of a "
        "layer and of the head without their sizes ('layer', 'head'), and those of 10⁶ elements of "
        "their matrices (µs/10⁶). 'collective' is how much longer a collective of tensors takes "
        "than one of host memory, in a model that all ranks of the job divide; in JSON also in "
        "models that the ranks of each host divide.\n"
        "\n"
        "With --experts, two models more have half of the hidden features of each expert. From "
        "them follows the time of 10⁶ elements of experts that a token uses ('experts µs/10⁶'): "
        "grouped products read only chosen experts, so they reach other rates than the products "
        "of attention.\n");
    cli_options_help(out, options);
}

static int run_rates(int argc, char **argv)
{
    const char *path = NULL;
    int words;
    int code = cli_options_read("bench rates", options, argc, argv, 1, &path, &words);
    if (code != CLI_DONE)
        return code;
    if (words == 1)
        chosen.path = path;
    if (chosen.path != NULL && chosen.shape != NULL)
        return cli_usage_error("bench rates: --shape and '%s' are two models", chosen.path);
    code = bench_destination_check("bench rates", &chosen.to);
    if (code != CLI_DONE)
        return code;
    if (chosen.shape == NULL)
        chosen.shape = bench_model_shape_find(chosen.experts ? "qwen3-30b-a3b" : "llama-1b");
    return bench_rates_run(&chosen);
}

const cli_command bench_rates_command = {
    .name = "bench rates",
    .usage = "[MODEL] [options]",
    .summary = "measure the rates of ranks for plan --cluster",
    .run = run_rates,
    .help = help,
};
