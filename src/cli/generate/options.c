/* The options of tessera generate. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/generate/generate.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/say.h"

generate_options generate_chosen;

static generate_prompt *next_prompt(char *problem, size_t size)
{
    if (generate_chosen.prompt_count == GENERATE_MAX_PROMPTS) {
        snprintf(problem, size, "and the other prompts can be given at most %d times",
                 GENERATE_MAX_PROMPTS);
        return NULL;
    }
    return &generate_chosen.prompts[generate_chosen.prompt_count++];
}

/* Returns whether a prompt comes from standard input. */
static bool reads_input(void)
{
    for (int i = 0; i < generate_chosen.prompt_count; i++) {
        const char *file = generate_chosen.prompts[i].file;
        if (file != NULL && strcmp(file, "-") == 0)
            return true;
    }
    return false;
}

static bool read_file(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    if (strcmp(text, "-") == 0 && reads_input()) {
        snprintf(problem, size, "takes standard input, '-', only once");
        return false;
    }
    generate_prompt *prompt = next_prompt(problem, size);
    if (prompt != NULL)
        *prompt = (generate_prompt){.file = text};
    return prompt != NULL;
}

static bool read_prompt(void *user, const char *text, char *problem, size_t size)
{
    if (strcmp(text, "-") == 0)
        return read_file(user, text, problem, size);
    generate_prompt *prompt = next_prompt(problem, size);
    if (prompt != NULL)
        *prompt = (generate_prompt){.text = text, .size = strlen(text)};
    return prompt != NULL;
}

static bool read_stop(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    if (*text == '\0' || generate_chosen.stop_count == GENERATE_MAX_STOPS) {
        if (*text == '\0')
            snprintf(problem, size, "takes a text that is not empty");
        else
            snprintf(problem, size, "may be given %d times at most", GENERATE_MAX_STOPS);
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
    {"prompt", "TEXT",
     "the text to continue, or - for standard input without its last line break; may be repeated: "
     "all prompts are continued together (default: -, if that is not a terminal)",
     .read = read_prompt, .letter = 'p'},
    {"file", "FILE", "a prompt from a file, without its last line break; may be repeated",
     .read = read_file, .letter = 'f'},
    {"ids", "LIST", "a prompt as token ids, such as 1,403,407; may be repeated", .read = read_ids},
    {"max-tokens", "N", "tokens to generate (default: 128)",
     .integer = &inference_chosen.max_tokens, .low = 1, .high = 1 << 30, .letter = 'n'},
    INFERENCE_LORA_OPTION,
    INFERENCE_SAMPLING_OPTIONS,
    {"stop", "TEXT", "end before this text; may be repeated", .read = read_stop},
    {"ignore-end", NULL, "continue after tokens that end a text",
     .flag = &generate_chosen.ignore_end},
    INFERENCE_GRAMMAR_OPTIONS(generate_chosen.grammar),
    {"json", NULL, "print one JSON object at the end", .flag = &generate_chosen.json},
    {"stats", NULL, "after the text, print times and tokens per second on standard error",
     .flag = &generate_chosen.stats},
    {"logits", "K", "with --json: the logits of the first K positions of each sequence",
     .integer = &generate_chosen.logits, .low = 0, .high = 1 << 20},
    INFERENCE_DTYPE_OPTIONS,
    {"context", "N",
     "longest length of a sequence (default: prompt and --max-tokens, at most what "
     "the model was made for)",
     .integer = &inference_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT, .letter = 'c'},
    INFERENCE_JOB_OPTIONS,
    {0},
};

int generate_options_read(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    inference_chosen.max_tokens = 128;
    const int code =
        cli_options_read("generate", generate_option_table, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count == 0 || words[0][0] == '\0')
        return cli_usage_error("generate: missing MODEL, a folder or a file");
    if (generate_chosen.prompt_count == 0 && isatty(STDIN_FILENO))
        return cli_usage_error("generate: missing --prompt TEXT, --file FILE or --ids LIST");
    if (generate_chosen.prompt_count == 0)
        generate_chosen.prompts[generate_chosen.prompt_count++].file = "-";
    if (generate_chosen.logits > 0 && !generate_chosen.json)
        return cli_usage_error("generate: --logits needs --json");
    if (generate_chosen.grammar.grammar != NULL && generate_chosen.grammar.schema != NULL)
        return cli_usage_error("generate: --grammar and --json-schema exclude each other");
    inference_chosen.model = words[0];
    const char *draft = inference_check_draft();
    if (draft != NULL)
        return cli_usage_error("generate: %s", draft);
    return CLI_DONE;
}
