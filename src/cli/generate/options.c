/* The options of tessera generate. */
#include <stdlib.h>
#include <string.h>

#include "cli/generate/generate.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/say.h"

generate_options generate_chosen = {
    .max_tokens = 128,
    .stages = 1,
    .temperature = 0.8,
    .top_p = 0.95,
    .repetition_penalty = 1,
    .timeout = 600,
};

static generate_prompt *next_prompt(char *problem, size_t size)
{
    if (generate_chosen.prompt_count == GENERATE_MAX_PROMPTS) {
        snprintf(problem, size, "and the other prompts can be given at most %d times",
                 GENERATE_MAX_PROMPTS);
        return NULL;
    }
    return &generate_chosen.prompts[generate_chosen.prompt_count++];
}

static bool read_prompt(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    generate_prompt *prompt = next_prompt(problem, size);
    if (prompt != NULL)
        prompt->text = text;
    return prompt != NULL;
}

static bool read_stop(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    if (*text == '\0' || generate_chosen.stop_count == GENERATE_MAX_STOPS) {
        snprintf(problem, size, "takes a text, at most %d times", GENERATE_MAX_STOPS);
        return false;
    }
    generate_chosen.stops[generate_chosen.stop_count++] = text;
    return true;
}

static bool read_ids(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    generate_prompt *prompt = next_prompt(problem, size);
    if (prompt == NULL)
        return false;
    char *copy = cli_alloc(strlen(text) + 1, 1), *rest = copy;
    strcpy(copy, text);
    prompt->ids = cli_alloc(strlen(text) + 1, sizeof *prompt->ids);
    bool good = true;
    while (rest != NULL && good) {
        int64_t id = 0;
        char *comma = strchr(rest, ',');
        if (comma != NULL)
            *comma++ = '\0';
        good = cli_read_integer(rest, 0, INT32_MAX, &id);
        prompt->ids[prompt->count++] = (int32_t)id;
        rest = comma;
    }
    free(copy);
    if (!good)
        snprintf(problem, size, "takes token ids such as 1,403,407, not '%.80s'", text);
    return good;
}

const cli_option generate_option_table[] = {
    {"prompt", "TEXT", "the text to continue; may be repeated: all prompts are continued together",
     .read = read_prompt, .letter = 'p'},
    {"ids", "LIST", "a prompt as token ids, such as 1,403,407; may be repeated", .read = read_ids},
    {"max-tokens", "N", "tokens to generate (default: 128)", .integer = &generate_chosen.max_tokens,
     .low = 1, .high = 1 << 30},
    {"greedy", NULL, "always take the most likely token", .flag = &generate_chosen.greedy},
    {"temperature", "T", "divide logits by T (default: 0.8)", .real = &generate_chosen.temperature,
     .low = 1e-6, .high = 1e6},
    {"top-k", "K", "draw from the K most likely tokens (default: 0, all)",
     .integer = &generate_chosen.top_k, .low = 0, .high = 1 << 30},
    {"top-p", "P",
     "draw from the most likely tokens whose probabilities add up to P (default: "
     "0.95)",
     .real = &generate_chosen.top_p, .low = 0, .high = 1},
    {"min-p", "P",
     "draw from tokens at least P times as likely as the most likely one (default: "
     "0)",
     .real = &generate_chosen.min_p, .low = 0, .high = 1},
    {"repetition-penalty", "R", "make tokens that were there already less likely (default: 1)",
     .real = &generate_chosen.repetition_penalty, .low = 0.001, .high = 1000},
    {"seed", "N", "of the draw; the same seed gives the same text (default: 0)",
     .integer = &generate_chosen.seed, .low = 0, .high = 9e15},
    {"stop", "TEXT", "end before this text; may be repeated", .read = read_stop},
    {"ignore-end", NULL, "continue after tokens that end a text",
     .flag = &generate_chosen.ignore_end},
    {"json", NULL, "print one JSON object at the end", .flag = &generate_chosen.json},
    {"logits", "K", "with --json: the logits of the first K positions of each sequence",
     .integer = &generate_chosen.logits, .low = 0, .high = 1 << 20},
    {"dtype", "TYPE",
     "keep matrices as f32, f16, bf16, or quantised, such as q8_0 (default: as the "
     "file has them)",
     .read = cli_read_matrix_dtype, .user = &generate_chosen.dtype},
    {"cache-dtype", "TYPE", "keep keys and values as f32 (default), f16 or bf16",
     .read = cli_read_float_dtype, .user = &generate_chosen.cache_dtype},
    {"context", "N",
     "longest length of a sequence (default: prompt and --max-tokens, at most what "
     "the model was made for)",
     .integer = &generate_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT},
    {"prefill", "N", "tokens of a prompt that are computed in one pass (default: 256)",
     .integer = &generate_chosen.prefill, .low = 1, .high = 1 << 20},
    {"rates", "LIST",
     "divide heads and features by the ranks' speeds, such as 3,1 (default: "
     "evenly)",
     .read = cli_read_rates, .user = &generate_chosen.rates},
    {"wire", "TYPE",
     "round activations that ranks send each other to f16, bf16 or q8_0, for slow connections "
     "(default: they are sent as they are)",
     .read = cli_read_matrix_dtype, .user = &generate_chosen.wire},
    {"stages", "S",
     "divide the layers over S stages, which are groups of ranks, for slow connections between "
     "them "
     "(default: 1); prompts pass through them one after the other",
     .integer = &generate_chosen.stages, .low = 1, .high = TSR_MAX_COMM_SIZE},
    {"device", "DEVICE",
     "index, UUID or part of the name (default: TESSERA_DEVICE, or the fastest)",
     .text = &generate_chosen.device},
    {"timeout", "SECONDS", "longest wait for another rank (default: 600)",
     .real = &generate_chosen.timeout, .low = 0.1, .high = 1e6},
    {0},
};

int generate_options_read(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    const int code =
        cli_options_read("generate", generate_option_table, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count == 0)
        return cli_usage_error("generate: missing MODEL, a folder or a file");
    if (generate_chosen.prompt_count == 0)
        return cli_usage_error("generate: missing --prompt TEXT or --ids LIST");
    if (generate_chosen.logits > 0 && !generate_chosen.json)
        return cli_usage_error("generate: --logits needs --json");
    generate_chosen.model = words[0];
    return CLI_DONE;
}
