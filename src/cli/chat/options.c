/* The options of tessera chat. */
#include "cli/chat/chat.h"
#include "cli/lib/say.h"

#define PLAIN_TOKENS 128 /* the longest reply with --plain, unless --max-tokens says otherwise */

chat_options chat_chosen;

static const cli_option chat_option_table[] = {
    {"system", "TEXT", "what the model is told before the conversation",
     .text = &chat_chosen.system},
    INFERENCE_FORMAT_OPTION,
    {"plain", NULL,
     "messages have no format, and the model continues them, for models that were not trained for "
     "conversations",
     .flag = &chat_chosen.plain},
    {"max-tokens", "N", "longest reply (default: until the model ends it; with --plain 128)",
     .integer = &inference_chosen.max_tokens, .low = 1, .high = 1 << 30, .letter = 'n'},
    {"ignore-end", NULL, "continue after tokens that end a reply", .flag = &chat_chosen.ignore_end},
    {"show-reasoning", NULL,
     "print all that the model writes, also its reasoning before the answer",
     .flag = &chat_chosen.show_reasoning},
    INFERENCE_LORA_OPTION,
    INFERENCE_GRAMMAR_OPTIONS(chat_chosen.grammar),
    INFERENCE_SAMPLING_OPTIONS,
    INFERENCE_DTYPE_OPTIONS,
    {"context", "N",
     "longest conversation in tokens (default: what the model was made for, at most 4096)",
     .integer = &inference_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT, .letter = 'c'},
    INFERENCE_JOB_OPTIONS,
    {0},
};

void chat_options_help(FILE *out)
{
    inference_list_formats();
    cli_options_help(out, chat_option_table);
}

int chat_options_read(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    const int code = cli_options_read("chat", chat_option_table, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count == 0 || words[0][0] == '\0')
        return cli_usage_error("chat: missing MODEL, a folder or a file");
    if (chat_chosen.plain && inference_chosen.format != TSR_CHAT_MODEL)
        return cli_usage_error("chat: --plain and --format exclude each other");
    if (chat_chosen.plain && chat_chosen.system != NULL)
        return cli_usage_error("chat: --system needs a format, and --plain is the lack of one");
    if (chat_chosen.plain && inference_chosen.max_tokens == 0)
        inference_chosen.max_tokens = PLAIN_TOKENS;
    if (chat_chosen.grammar.grammar != NULL && chat_chosen.grammar.schema != NULL)
        return cli_usage_error("chat: --grammar and --json-schema exclude each other");
    inference_chosen.model = words[0];
    const char *draft = inference_check_draft();
    if (draft != NULL)
        return cli_usage_error("chat: %s", draft);
    return CLI_DONE;
}
