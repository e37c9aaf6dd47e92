/* The options of tessera chat. */
#include "cli/chat/chat.h"
#include "cli/lib/say.h"

chat_options chat_chosen;

static const cli_option chat_option_table[] = {
    {"system", "TEXT", "what the model is told before the conversation",
     .text = &chat_chosen.system},
    INFERENCE_FORMAT_OPTION,
    {"max-tokens", "N", "longest reply (default: until the model ends it)",
     .integer = &inference_chosen.max_tokens, .low = 1, .high = 1 << 30},
    {"ignore-end", NULL, "continue after tokens that end a reply", .flag = &chat_chosen.ignore_end},
    {"show-reasoning", NULL,
     "print all that the model writes, also its reasoning before the answer",
     .flag = &chat_chosen.show_reasoning},
    INFERENCE_SAMPLING_OPTIONS,
    INFERENCE_DTYPE_OPTIONS,
    {"context", "N",
     "longest conversation in tokens (default: what the model was made for, at most 4096)",
     .integer = &inference_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT},
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
    inference_chosen.model = words[0];
    return CLI_DONE;
}
