#include "cli/lib/tools.h"

#include <stdlib.h>
#include <string.h>

static bool is_mistral(tsr_chat_format format)
{
    return format == TSR_CHAT_MISTRAL_V3 || format == TSR_CHAT_MISTRAL_TEKKEN ||
           format == TSR_CHAT_MISTRAL_V7 || format == TSR_CHAT_MISTRAL_V7_TEKKEN;
}

/* Calls are messages of their own, whose text are the arguments. */
static bool names_calls(tsr_chat_format format)
{
    return format == TSR_CHAT_MISTRAL_V11_TEKKEN || format == TSR_CHAT_MISTRAL_V13_TEKKEN;
}

void cli_text_add_spaced(cli_text *text, const json_t *value, size_t indent)
{
    char *line = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) |
                                       (indent > 0 ? JSON_INDENT(indent) : 0));
    cli_text_print(text, line != NULL ? line : "null");
    free(line);
}

/* Descriptions --------------------------------------------------------------------------------- */

static void describe_hermes(const json_t *tools, cli_text *out)
{
    cli_text_print(out,
                   "# Tools\n\nYou may call one or more functions to assist with the user "
                   "query.\n\nYou are provided with function signatures within <tools></tools> "
                   "XML tags:\n<tools>");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        cli_text_print(out, "\n");
        cli_text_add_spaced(out, json_array_get(tools, i), 0);
    }
    cli_text_print(out, "\n</tools>\n\nFor each function call, return a json object with function "
                        "name and arguments within <tool_call></tool_call> XML tags:\n"
                        "<tool_call>\n{\"name\": <function-name>, \"arguments\": "
                        "<args-json-object>}\n</tool_call>");
}

void cli_tools_in_system(tsr_chat_format format, const json_t *tools, const char *given,
                         cli_text *out)
{
    cli_text_print(out, format == TSR_CHAT_LLAMA3 ? "Environment: ipython\n\n" : "");
    cli_text_print(out, given != NULL ? given : "");
    if (format == TSR_CHAT_CHATML) {
        cli_text_print(out, given != NULL ? "\n\n" : "");
        describe_hermes(tools, out);
    }
}

void cli_tools_in_user(tsr_chat_format format, const json_t *tools, cli_text *out)
{
    if (format != TSR_CHAT_LLAMA3)
        return;
    cli_text_print(out, "Given the following functions, please respond with a JSON for a function "
                        "call with its proper arguments that best answers the given prompt.\n\n"
                        "Respond in the format {\"name\": function name, \"parameters\": "
                        "dictionary of argument name and its value}.Do not use variables.\n\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        cli_text_add_spaced(out, json_array_get(tools, i), 4);
        cli_text_print(out, "\n\n");
    }
}

bool cli_tools_as_message(tsr_chat_format format)
{
    return is_mistral(format) || names_calls(format);
}

/* Calls and results ---------------------------------------------------------------------------- */

const char *cli_tool_short_id(const char *id)
{
    const size_t size = strlen(id);
    return size > 9 ? id + size - 9 : id;
}

void cli_tool_call(tsr_chat_format format, size_t number, const char *name, const char *id,
                   const json_t *arguments, cli_text *out)
{
    if (format == TSR_CHAT_CHATML)
        cli_text_print(out, out->size > 0 ? "\n<tool_call>\n" : "<tool_call>\n");
    else if (is_mistral(format))
        cli_text_print(out, number == 0 ? "[" : ", ");
    cli_text_print(out, "{\"name\": \"");
    cli_text_print(out, name);
    cli_text_print(out, format == TSR_CHAT_LLAMA3 ? "\", \"parameters\": " : "\", \"arguments\": ");
    cli_text_add_spaced(out, arguments, 0);
    if (is_mistral(format)) {
        cli_text_print(out, ", \"id\": \"");
        cli_text_print(out, cli_tool_short_id(id));
        cli_text_print(out, "\"");
    }
    cli_text_print(out, format == TSR_CHAT_CHATML ? "}\n</tool_call>" : "}");
}

void cli_tool_calls_end(tsr_chat_format format, cli_text *out)
{
    cli_text_print(out, is_mistral(format) ? "]" : "");
}

bool cli_tool_results_join(tsr_chat_format format)
{
    return format == TSR_CHAT_CHATML;
}

void cli_tool_result(tsr_chat_format format, const char *id, const char *content, cli_text *out)
{
    if (format == TSR_CHAT_CHATML) {
        cli_text_print(out, out->size > 0 ? "\n<tool_response>\n" : "<tool_response>\n");
        cli_text_print(out, content);
        cli_text_print(out, "\n</tool_response>");
    } else if (is_mistral(format)) {
        cli_text_print(out, "{\"content\": ");
        cli_text_print(out, content);
        cli_text_print(out, ", \"call_id\": \"");
        cli_text_print(out, id != NULL ? cli_tool_short_id(id) : "");
        cli_text_print(out, "\"}");
    } else if (names_calls(format)) {
        cli_text_print(out, content);
    } else {
        json_t *string = json_string(content);
        cli_text_add_spaced(out, string, 0);
        json_decref(string);
    }
}
