/* tessera convert: models between Hugging Face folders and GGUF files. */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/lib/model.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"
#include "tessera/convert.h"

#define MESSAGE 4096         /* the size of an error message */
#define EXIT_INTERRUPTED 130 /* the exit code of shells for a program that SIGINT has ended */

static tsr_convert_params chosen = {.struct_size = sizeof chosen};
static bool quiet;

/* Reads the name of a mixture or of a dtype. */
static bool read_type(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    const char *name;
    chosen.mixture = NULL;
    chosen.dtype = 0;
    for (int i = 0; (name = tsr_convert_mixture_at(i)) != NULL; i++)
        if (strcmp(name, text) == 0) {
            chosen.mixture = name;
            return true;
        }
    if (cli_read_matrix_dtype(&chosen.dtype, text, problem, size))
        return true;
    /* the mixtures belong before the end of the sentence, ", not '…'" */
    char *end = strstr(problem, ", not '");
    size_t used = end != NULL ? (size_t)(end - problem) : strlen(problem);
    for (int i = 0; (name = tsr_convert_mixture_at(i)) != NULL && used < size; i++)
        used += (size_t)snprintf(problem + used, size - used, ", %s", name);
    if (used < size)
        snprintf(problem + used, size - used, ", not '%.40s'", text);
    return false;
}

static const cli_option options[] = {
    {"type", "TYPE",
     "what matrices become: f32, f16 or bf16, or in GGUF files also a block format such as q8_0, "
     "q4_0, q4_k or q6_k, or a mixture of them as llama.cpp chooses it: q3_k_s, q3_k_m, q3_k_l, "
     "q4_k_s, q4_k_m, q5_k_s or q5_k_m (default: each keeps its type; block formats become f32 in "
     "folders)",
     .read = read_type},
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
             "whole blocks of TYPE; mixtures have other types for such matrices. Tokenizers of "
             "byte-level BPE become the keys tokenizer.ggml.* "
             "or tokenizer.json, SentencePiece-style ones those keys or tokenizer.model; one that "
             "the destination cannot express is refused. Everything is written under a temporary "
             "name beside DESTINATION and renamed at the end.\n");
    cli_options_help(out, options);
}

/* While a conversion runs ---------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static bool shows_progress;

static bool show_progress(void *user, uint64_t done, uint64_t total)
{
    static int shown = -1;
    const int percent = total > 0 ? (int)((double)done / (double)total * 100) : 100;
    (void)user;
    if (shows_progress && percent != shown)
        fprintf(stderr, "\r%3d %%%s", percent, done == total ? "\r     \r" : "");
    shown = percent;
    return interrupted == 0;
}

static void note(void *user, const char *sentence)
{
    (void)user;
    if (!quiet)
        cli_say("convert: %s", sentence);
}

/* Catches the signals that would end the tool before it has removed its temporary files. Ignores
 * SIGXFSZ, so that writing a file that becomes too large fails with an error. */
static void catch_signals(void)
{
    const struct sigaction action = {.sa_handler = interrupt}, ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGXFSZ, &ignored, NULL);
}

/* Returns whether the conversion has failed because the destination exists. Errors of the system,
 * such as "File exists", have another status. */
static bool is_about_destination(tsr_status status)
{
    static const char ending[] = " exists";
    const char *error = tsr_last_error();
    const size_t length = strlen(error), end = sizeof ending - 1;
    return status == TSR_ERR_INVALID && length >= end && strcmp(error + length - end, ending) == 0;
}

/* Returns the end of the error's sentence: which option would help. */
static const char *help_for(tsr_status status)
{
    if (is_about_destination(status))
        return "; --force replaces it";
    return strstr(tsr_last_error(), "tokenizer") != NULL ? "; --no-tokenizer leaves it out" : "";
}

static int run(int argc, char **argv)
{
    const char *paths[2] = {NULL, NULL};
    tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
    int words;
    const int code = cli_options_read("convert", options, argc, argv, 2, paths, &words);
    if (code != CLI_DONE)
        return code;
    if (words < 2)
        return cli_usage_error("convert: missing %s", words == 0 ? "SOURCE" : "DESTINATION");
    chosen.progress = show_progress;
    chosen.note = note;
    shows_progress = !quiet && isatty(STDERR_FILENO);
    catch_signals();
    tsr_model_file *file = NULL;
    tsr_status status = tsr_model_file_open(paths[0], &file);
    if (status == TSR_OK)
        status = tsr_model_convert(file, paths[1], &chosen, &stats);
    tsr_model_file_close(&file);
    if (status != TSR_OK) {
        if (shows_progress)
            fputs("\r     \r", stderr);
        if (interrupted != 0)
            return EXIT_INTERRUPTED;
        char text[MESSAGE];
        snprintf(text, sizeof text, "%s%s", tsr_last_error(), help_for(status));
        return cli_failed_in("convert", text);
    }
    cli_line(stdout, "%s: %" PRIu64 " tensor%s, %" PRIu64 " bytes", paths[1], stats.tensors,
             CLI_PLURAL(stats.tensors), stats.written_bytes);
    return CLI_DONE;
}

const cli_command cli_convert = {
    .name = "convert",
    .usage = "SOURCE DESTINATION [options]",
    .summary = "convert a model between Hugging Face's format and GGUF, or quantise it",
    .run = run,
    .help = help,
};
