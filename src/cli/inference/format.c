/* The option --format of the commands that make prompts of messages. */
#include <stdio.h>

#include "cli/inference/inference.h"

char inference_format_help[600];

/* Writes the names of all formats to `text`: "chatml, llama2 …", with
 * `last` before the last one. */
static void list_formats(char *text, size_t size, const char *last)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 1; i < TSR_CHAT_FORMATS && used < size; i++) {
        const char *between = i == 1 ? "" : i == TSR_CHAT_FORMATS - 1 ? last : ", ";
        const int added = snprintf(text + used, size - used, "%s%s", between,
                                   tsr_chat_format_name((tsr_chat_format)i));
        used += added > 0 ? (size_t)added : size;
    }
}

bool inference_read_format(void *user, const char *text, char *problem, size_t size)
{
    char names[512];
    if (tsr_chat_format_parse(text, user) == TSR_OK)
        return true;
    list_formats(names, sizeof names, ", ");
    snprintf(problem, size, "takes %s, not '%.40s'", names, text);
    return false;
}

void inference_list_formats(void)
{
    char names[512];
    list_formats(names, sizeof names, " or ");
    snprintf(inference_format_help, sizeof inference_format_help,
             "%s (default: the format of the model's chat template)", names);
}
