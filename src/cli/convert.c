/* tessera convert: models between Hugging Face folders and GGUF files. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/conversion.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"
#include "tessera/convert.h"

static tsr_convert_params chosen = {.struct_size = sizeof chosen};
static bool quiet;

static const cli_option options[] = {
    {"type", "TYPE",
     "what matrices become: f32, f16 or bf16, or in GGUF files also a block format such as q8_0, "
     "q4_0, q4_k or q6_k, or a mixture of them as llama.cpp chooses it: q3_k_s, q3_k_m, q3_k_l, "
     "q4_k_s, q4_k_m, q5_k_s or q5_k_m (default: each keeps its type; block formats become f32 in "
     "folders)",
     .read = cli_conversion_read_type, .user = &chosen},
    {"force", NULL, "replace DESTINATION if it exists", .flag = &chosen.replace},
    {"no-tokenizer", NULL, "leave the tokenizer out", .flag = &chosen.weights_only},
    {"quiet", NULL, "show no progress, and no sentences about what DESTINATION has differently",
     .flag = &quiet},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(out,
             "Converts a model between a Hugging Face folder (config.json, safetensors, tokenizer) "
             "and a GGUF file, in either direction, or from one type of weights to another. "
             "DESTINATION is a GGUF file if its name ends in .gguf, and a folder if it has no "
             "extension or a / at the end. "
             "docs/models.md lists the architectures.\n"
             "\n"
             "Norms and biases stay f32 in GGUF files. A matrix keeps its type if its rows are not "
             "whole blocks of TYPE; mixtures have other types for such matrices. From folder to "
             "folder, the tokenizer's files stay as they are. Otherwise, tokenizers of byte-level "
             "BPE become the keys tokenizer.ggml.* "
             "or tokenizer.json, SentencePiece-style ones those keys or tokenizer.model; one that "
             "the destination cannot express is refused. Everything is written under a temporary "
             "name beside DESTINATION and renamed at the end.\n");
    cli_options_help(out, options);
}

static int run(int argc, char **argv)
{
    const char *paths[2] = {NULL, NULL};
    tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
    int words;
    int code = cli_options_read("convert", options, argc, argv, 2, paths, &words);
    if (code != CLI_DONE)
        return code;
    if (words < 2)
        return cli_usage_error("convert: missing %s", words == 0 ? "SOURCE" : "DESTINATION");
    code = cli_conversion_run("convert", paths[0], paths[1], &chosen, quiet, &stats);
    if (code == CLI_DONE)
        cli_line(stdout, "%s: %" PRIu64 " tensor%s, %" PRIu64 " bytes", paths[1], stats.tensors,
                 CLI_PLURAL(stats.tensors), stats.written_bytes);
    return code;
}

const cli_command cli_convert = {
    .name = "convert",
    .usage = "SOURCE DESTINATION [options]",
    .summary = "convert a model between Hugging Face's format and GGUF, or quantise it",
    .run = run,
    .help = help,
};
