#include "cli/lib/tools.h"

#include <stdlib.h>
#include <string.h>

cli_tool_style cli_tool_style_of(tsr_chat_format format)
{
    switch (format) {
    case TSR_CHAT_CHATML:
        return CLI_TOOLS_HERMES;
    case TSR_CHAT_LLAMA3:
        return CLI_TOOLS_LLAMA;
    case TSR_CHAT_MISTRAL_V3:
    case TSR_CHAT_MISTRAL_TEKKEN:
    case TSR_CHAT_MISTRAL_V7:
    case TSR_CHAT_MISTRAL_V7_TEKKEN:
        return CLI_TOOLS_MISTRAL;
    case TSR_CHAT_MISTRAL_V11_TEKKEN:
        return CLI_TOOLS_MISTRAL_V11;
    case TSR_CHAT_MISTRAL_V13_TEKKEN:
        return CLI_TOOLS_MISTRAL_V13;
    case TSR_CHAT_HARMONY:
        return CLI_TOOLS_HARMONY;
    default:
        return CLI_TOOLS_NONE;
    }
}

bool cli_tools_name_calls(cli_tool_style style)
{
    return style >= CLI_TOOLS_MISTRAL_V11;
}

bool cli_tools_have_preambles(cli_tool_style style)
{
    return style >= CLI_TOOLS_MISTRAL_V13;
}

bool cli_tools_need_ids(cli_tool_style style)
{
    return style == CLI_TOOLS_MISTRAL || style == CLI_TOOLS_MISTRAL_V11;
}

bool cli_tools_have_short_ids(cli_tool_style style)
{
    return cli_tools_need_ids(style) || style == CLI_TOOLS_MISTRAL_V13;
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

void cli_tools_in_system(cli_tool_style style, const json_t *tools, const char *given,
                         cli_text *out)
{
    cli_text_print(out, style == CLI_TOOLS_LLAMA ? "Environment: ipython\n\n" : "");
    cli_text_print(out, given != NULL ? given : "");
    if (style == CLI_TOOLS_HERMES) {
        cli_text_print(out, given != NULL ? "\n\n" : "");
        describe_hermes(tools, out);
    }
}

void cli_tools_in_user(cli_tool_style style, const json_t *tools, cli_text *out)
{
    if (style != CLI_TOOLS_LLAMA)
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

bool cli_tools_before_user(cli_tool_style style, bool is_first, bool is_last)
{
    return cli_tools_have_short_ids(style) && (style == CLI_TOOLS_MISTRAL_V13 ? is_first : is_last);
}

/* Calls and results ---------------------------------------------------------------------------- */

const char *cli_tool_short_id(const char *id)
{
    const size_t size = strlen(id);
    return size > 9 ? id + size - 9 : id;
}

void cli_tool_call(cli_tool_style style, size_t number, const char *name, const char *id,
                   const json_t *arguments, cli_text *out)
{
    if (style == CLI_TOOLS_HERMES)
        cli_text_print(out, out->size > 0 ? "\n<tool_call>\n" : "<tool_call>\n");
    else if (style == CLI_TOOLS_MISTRAL)
        cli_text_print(out, number == 0 ? "[" : ", ");
    cli_text_print(out, "{\"name\": \"");
    cli_text_print(out, name);
    cli_text_print(out, style == CLI_TOOLS_LLAMA ? "\", \"parameters\": " : "\", \"arguments\": ");
    cli_text_add_spaced(out, arguments, 0);
    if (style == CLI_TOOLS_MISTRAL) {
        cli_text_print(out, ", \"id\": \"");
        cli_text_print(out, cli_tool_short_id(id));
        cli_text_print(out, "\"");
    }
    cli_text_print(out, style == CLI_TOOLS_HERMES ? "}\n</tool_call>" : "}");
}

void cli_tool_calls_end(cli_tool_style style, cli_text *out)
{
    cli_text_print(out, style == CLI_TOOLS_MISTRAL ? "]" : "");
}

bool cli_tool_results_join(cli_tool_style style)
{
    return style == CLI_TOOLS_HERMES;
}

void cli_tool_result(cli_tool_style style, const char *id, const char *content, cli_text *out)
{
    if (style == CLI_TOOLS_HERMES) {
        cli_text_print(out, out->size > 0 ? "\n<tool_response>\n" : "<tool_response>\n");
        cli_text_print(out, content);
        cli_text_print(out, "\n</tool_response>");
    } else if (style == CLI_TOOLS_MISTRAL) {
        cli_text_print(out, "{\"content\": ");
        cli_text_print(out, content);
        cli_text_print(out, ", \"call_id\": \"");
        cli_text_print(out, id != NULL ? cli_tool_short_id(id) : "");
        cli_text_print(out, "\"}");
    } else if (cli_tools_have_short_ids(style)) {
        cli_text_print(out, content);
    } else {
        json_t *string = json_string(content);
        cli_text_add_spaced(out, string, 0);
        json_decref(string);
    }
}
