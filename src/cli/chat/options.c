/* The options of tessera chat. */
#include <stdio.h>

#include "cli/chat/chat.h"
#include "cli/lib/say.h"

chat_options chat_chosen;

static bool read_format(void *user, const char *text, char *problem, size_t size)
{
    if (tsr_chat_format_parse(text, user) == TSR_OK)
        return true;
    int used = snprintf(problem, size, "takes ");
    for (int i = 1; i < TSR_CHAT_FORMATS && used >= 0 && (size_t)used < size; i++)
        used += snprintf(problem + used, size - (size_t)used, "%s%s", i > 1 ? ", " : "",
                         tsr_chat_format_name((tsr_chat_format)i));
    if (used >= 0 && (size_t)used < size)
        snprintf(problem + used, size - (size_t)used, ", not '%.40s'", text);
    return false;
}

const cli_option chat_option_table[] = {
    {"system", "TEXT", "what the model is told before the conversation",
     .text = &chat_chosen.system},
    {"format", "NAME",
     "chatml, llama2, llama3, mistral, mistral-v1, mistral-v3, mistral-tekken, mistral-v7, "
     "mistral-v7-tekken, zephyr, vicuna or deepseek (default: the format of the model's chat "
     "template)",
     .read = read_format, .user = &chat_chosen.format},
    {"max-tokens", "N", "longest reply (default: until the model ends it)",
     .integer = &inference_chosen.max_tokens, .low = 1, .high = 1 << 30},
    {"ignore-end", NULL, "continue after tokens that end a reply", .flag = &chat_chosen.ignore_end},
    INFERENCE_SAMPLING_OPTIONS,
    INFERENCE_DTYPE_OPTIONS,
    {"context", "N",
     "longest conversation in tokens (default: what the model was made for, at most 4096)",
     .integer = &inference_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT},
    INFERENCE_JOB_OPTIONS,
    {0},
};

int chat_options_read(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    const int code = cli_options_read("chat", chat_option_table, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count == 0)
        return cli_usage_error("chat: missing MODEL, a folder or a file");
    inference_chosen.model = words[0];
    return CLI_DONE;
}
