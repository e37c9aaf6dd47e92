/* tessera bench model: its options. */
#include <stdio.h>
#include <string.h>

#include "bench/model/model.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"

static bench_model_options chosen = {
    .prompt_tokens = 512,
    .generate = 128,
    .repetitions = 5,
    .sequences = 1,
    .timeout = 600,
    .to = {.format = BENCH_AS_MARKDOWN},
};

static const cli_option options[] = {
    {"shape", "NAME",
     "without MODEL: the shape of the generated model: llama-1b, llama-7b, llama-110m, "
     "llama-15m, qwen3-30b-a3b, gpt-oss-20b, gpt-oss-120b, glm-4.5-air, mixtral-8x7b, "
     "qwen3.5-27b, qwen3.5-35b-a3b or glm-4.7-flash (default: "
     "llama-1b)",
     .read = bench_model_read_shape, .user = &chosen.shape},
    {"type", "TYPE",
     "without MODEL: the type of its matrices: f32, f16, bf16 or a block format, such as q4_k "
     "(default: f16)",
     .read = cli_read_matrix_dtype, .user = &chosen.type},
    {"prompt-tokens", "N", "length of the prompt; 0: do not measure it (default: 512)",
     .integer = &chosen.prompt_tokens, .low = 0, .high = 1 << 20, .letter = 'p'},
    {"generate", "N", "tokens to generate; 0: do not measure it (default: 128)",
     .integer = &chosen.generate, .low = 0, .high = 1 << 20, .letter = 'n'},
    {"repetitions", "N", "repetitions of each (default: 5)", .integer = &chosen.repetitions,
     .low = 1, .high = 1000, .letter = 'r'},
    {"prefill", "N",
     "the most tokens of a prompt in one pass (default: 256; 512 on one large GPU; fewer with "
     "stages)",
     .integer = &chosen.prefill, .low = 1, .high = 1 << 20},
    {"dtype", "TYPE", "keep matrices as this type (default: as the file has them)",
     .read = cli_read_matrix_dtype, .user = &chosen.dtype},
    {"cache-dtype", "TYPE",
     "keep keys and values as f32, f16, bf16, q8_0 or q4_0 (default: f16 if the devices have "
     "matrix "
     "units, otherwise f32)",
     .read = cli_read_cache_dtype, .user = &chosen.cache_dtype},
    {"rates", "LIST",
     "divide the model by the speed of ranks, such as 3,1, or by a measurement: 'measured' "
     "(default: evenly)",
     .read = cli_read_rates, .user = &chosen.stages.rates},
    {"draft", "HOW",
     "also generate with drafts, as 'tessera generate' does: 'ngram', 'mtp' or MODEL, each perhaps "
     "with :N; MODEL is on rank 0",
     .read = cli_read_draft, .user = &chosen.draft},
    {"allow-int8", NULL,
     "round activations to 8 bits where a GPU multiplies them faster, for q4_0, q5_0 and q8_0",
     .flag = &chosen.allow_int8},
    {"kernels", NULL,
     "also count the commands of one prompt and of one token, by kernel: barriers, bytes, "
     "operations, matrix units, and times if the device has timestamps",
     .flag = &chosen.kernels},
    {"precision", "P",
     "on GPUs, multiply the features of prompts as f32 ('highest'), as sums of 16-bit numbers "
     "('high', the default with weights of 16 bits or less), or as 16-bit numbers ('medium')",
     .read = cli_read_precision, .user = &chosen.precision},
    {"stages", "S", "divide the layers over S stages, which are groups of ranks (default: 1)",
     .integer = &chosen.stages.count, .low = 1, .high = TSR_MAX_COMM_SIZE},
    {"context-parallel", "C",
     "divide prompts and the cache over C ranks, or over C groups of ranks (default: 1)",
     .integer = &chosen.stages.context_ranks, .low = 1, .high = TSR_MAX_COMM_SIZE},
    {"stage-layers", "LIST",
     "layers of each stage, such as 10,12 (default: all stages need equally long for a token)",
     .read = cli_read_layers, .user = &chosen.stages.layers},
    {"experts", "HOW",
     "ranks have a part of each expert (inside) or some experts (whole) (default: inside, unless "
     "its quantisation blocks make the parts too unequal); host, or host:LAYERS for the first "
     "layers, keeps experts in the host's memory, also as whole,host",
     .read = cli_read_experts, .user = &chosen.stages.experts},
    {"memory", "LIST",
     "device memory of each rank for weights and cache, such as 8G,12G, or one value for all; "
     "layers move from stages that have too little to others (default: what each device has left)",
     .read = cli_read_memory, .user = &chosen.stages.memory},
    {"sequences", "N", "generate N sequences at the same time (default: 1)",
     .integer = &chosen.sequences, .low = 1, .high = TSR_GENERATOR_MAX_SEQUENCES},
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
        "Measures a language model: tokens per second while a prompt is processed (pp512: 512 "
        "tokens) and while tokens are generated (tg128: 128 tokens after the first one), as "
        "llama-bench does, and as a table in Markdown by default. Without MODEL, the model is "
        "generated: random weights of a known shape, "
        "without a file. Under 'tessera launch -n N' or a cluster's launcher, it measures the job; "
        "rank 0 prints.\n"
        "\n"
        "Verified before timed: logits must be finite and must differ, and greedy tokens must be "
        "the same in a second run and in each repetition. All sequences continue the same prompt, "
        "and each must repeat its own tokens.\n"
        "\n"
        "Times are those of complete steps: the forward pass, the exchange between ranks, and the "
        "choice of tokens. 'communication' is the part of this time in which a rank waits for "
        "data of others, of those of its stage, the mean of all ranks. 'weights' is the bytes of "
        "weights that all ranks "
        "read per second while they generate, and 'of memory' their part of the memory ceiling, "
        "which all ranks measure at the same time, before and after.\n"
        "\n"
        "--kernels counts on rank 0, after the measurements. Bytes are those that operations "
        "declare "
        "to read and write; operations are those of products and attention, two for a "
        "multiply-add. A time is that from a command's start to its end.\n");
    cli_options_help(out, options);
}

static bool ends_in_csv(const char *path)
{
    const size_t length = path != NULL ? strlen(path) : 0;
    return length >= 4 && strcmp(path + length - 4, ".csv") == 0;
}

static int run_model(int argc, char **argv)
{
    const char *path = NULL;
    int words;
    int code = cli_options_read("bench model", options, argc, argv, 1, &path, &words);
    if (code != CLI_DONE)
        return code;
    if (words == 1)
        chosen.path = path;
    if (chosen.path != NULL && chosen.shape != NULL)
        return cli_usage_error("bench model: --shape is for a generated model; remove it, or '%s'",
                               chosen.path);
    if (chosen.path != NULL && chosen.type != 0)
        return cli_usage_error("bench model: --type is for a generated model; remove it, or '%s'. "
                               "--dtype %s converts the matrices of a file",
                               chosen.path, tsr_dtype_name(chosen.type));
    if (chosen.prompt_tokens == 0 && chosen.generate == 0)
        return cli_usage_error(
            "bench model: --prompt-tokens and --generate are both 0; nothing is left to measure");
    if (chosen.kernels && (chosen.to.format == BENCH_AS_CSV || ends_in_csv(chosen.to.path)))
        return cli_usage_error(
            "bench model: CSV has one table, so it cannot have that of --kernels; use JSON");
    code = bench_destination_check("bench model", &chosen.to);
    if (code != CLI_DONE)
        return code;
    if (chosen.shape == NULL)
        chosen.shape = bench_model_shape_find("llama-1b");
    if (chosen.type == 0)
        chosen.type = TSR_F16;
    return bench_model_run(&chosen);
}

const cli_command bench_model_command = {
    .name = "bench model",
    .usage = "[MODEL] [options]",
    .summary = "measure a language model",
    .run = run_model,
    .help = help,
};
