/* Which chat formats have calls of tools in training data, and the calls of a line's message. */
#include "cli/finetune/data_document.h"

bool data_tools_possible(cli_tool_style style)
{
    return style != CLI_TOOLS_NONE && style != CLI_TOOLS_HARMONY;
}

const char *data_tools_name(const json_t *call)
{
    return json_string_value(json_object_get(json_object_get(call, "function"), "name"));
}

const char *data_tools_id(const json_t *call)
{
    return json_string_value(json_object_get(call, "id"));
}

json_t *data_tools_arguments(cli_tool_style style, const json_t *calls, size_t number, size_t index,
                             data_problem *problem)
{
    const json_t *call = json_array_get(calls, number),
                 *given = json_object_get(json_object_get(call, "function"), "arguments");
    json_t *arguments = json_is_string(given) ? json_loads(json_string_value(given), 0, NULL)
                                              : json_incref((json_t *)given);
    if (data_tools_name(call) != NULL && json_is_object(arguments) &&
        (data_tools_id(call) != NULL || !cli_tools_need_ids(style)) &&
        (number == 0 || style != CLI_TOOLS_LLAMA))
        return arguments;
    json_decref(arguments);
    data_refuse(problem, DATA_NO_FORM,
                "call %zu of message %zu is not {\"function\": {\"name\": …, "
                "\"arguments\": {…}}}%s",
                number, index,
                cli_tools_need_ids(style)  ? " with an id"
                : style == CLI_TOOLS_LLAMA ? "; llama3 calls one tool at a time"
                                           : "");
    return NULL;
}

bool data_tools_calls(cli_tool_style style, const json_t *calls, size_t index, cli_text *out,
                      data_problem *problem)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        json_t *arguments = data_tools_arguments(style, calls, i, index, problem);
        if (arguments == NULL)
            return false;
        cli_tool_call(style, i, data_tools_name(call), data_tools_id(call), arguments, out);
        json_decref(arguments);
    }
    cli_tool_calls_end(style, out);
    return true;
}
