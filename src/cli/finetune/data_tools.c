/* Which chat formats have calls of tools in training data, and the calls of a line's message. */
#include "cli/finetune/data_document.h"
#include "cli/lib/tools.h"

static bool is_mistral(tsr_chat_format format)
{
    return format == TSR_CHAT_MISTRAL_V3 || format == TSR_CHAT_MISTRAL_TEKKEN;
}

bool data_tools_possible(tsr_chat_format format)
{
    return format == TSR_CHAT_CHATML || format == TSR_CHAT_LLAMA3 || is_mistral(format);
}

/* Appends one call. Its arguments are an object, or a string that has one. */
static bool add_call(tsr_chat_format format, const json_t *call, size_t number, cli_text *out)
{
    const json_t *function = json_object_get(call, "function"),
                 *given = json_object_get(function, "arguments");
    const char *name = json_string_value(json_object_get(function, "name")),
               *id = json_string_value(json_object_get(call, "id"));
    json_t *arguments = json_is_string(given) ? json_loads(json_string_value(given), 0, NULL)
                                              : json_incref((json_t *)given);
    const bool good = name != NULL && json_is_object(arguments) &&
                      (id != NULL || !is_mistral(format)) &&
                      (number == 0 || format != TSR_CHAT_LLAMA3);
    if (good)
        cli_tool_call(format, number, name, id, arguments, out);
    json_decref(arguments);
    return good;
}

bool data_tools_calls(tsr_chat_format format, const json_t *calls, size_t index, cli_text *out,
                      data_problem *problem)
{
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!add_call(format, json_array_get(calls, i), i, out))
            return data_refuse(problem, DATA_NO_FORM,
                               "call %zu of message %zu is not {\"function\": {\"name\": …, "
                               "\"arguments\": {…}}}%s",
                               i, index,
                               is_mistral(format)          ? " with an id"
                               : format == TSR_CHAT_LLAMA3 ? "; llama3 calls one tool at a time"
                                                           : "");
    cli_tool_calls_end(format, out);
    return true;
}
