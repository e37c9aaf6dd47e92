/* Tools, calls and results in the messages of the formats that have them, as their models'
 * templates write them. */
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/data_document.h"
#include "cli/lib/memory.h"

void data_text_add(data_text *text, const char *bytes, size_t size)
{
    if (text->size + size + 1 > text->capacity) {
        text->capacity = 2 * (text->size + size + 1);
        text->bytes = cli_resize(text->bytes, text->capacity, 1);
    }
    if (size > 0)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
}

void data_text_print(data_text *text, const char *string)
{
    data_text_add(text, string, strlen(string));
}

/* Appends JSON with spaces, as templates write it; `indent` spaces for each level, or one line. */
static void add_json(data_text *text, const json_t *value, size_t indent)
{
    char *line = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) |
                                       (indent > 0 ? JSON_INDENT(indent) : 0));
    data_text_print(text, line != NULL ? line : "null");
    free(line);
}

static bool is_mistral(tsr_chat_format format)
{
    return format == TSR_CHAT_MISTRAL_V3 || format == TSR_CHAT_MISTRAL_TEKKEN;
}

bool data_tools_possible(tsr_chat_format format)
{
    return format == TSR_CHAT_CHATML || format == TSR_CHAT_LLAMA3 || is_mistral(format);
}

void data_tools_in_system(tsr_chat_format format, const json_t *tools, bool given, data_text *out)
{
    if (format != TSR_CHAT_CHATML)
        return;
    data_text_print(out, given ? "\n\n" : "");
    data_text_print(out,
                    "# Tools\n\nYou may call one or more functions to assist with the user "
                    "query.\n\nYou are provided with function signatures within <tools></tools> "
                    "XML tags:\n<tools>");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        data_text_print(out, "\n");
        add_json(out, json_array_get(tools, i), 0);
    }
    data_text_print(out, "\n</tools>\n\nFor each function call, return a json object with function "
                         "name and arguments within <tool_call></tool_call> XML tags:\n"
                         "<tool_call>\n{\"name\": <function-name>, \"arguments\": "
                         "<args-json-object>}\n</tool_call>");
}

void data_tools_in_user(tsr_chat_format format, const json_t *tools, data_text *out)
{
    if (format != TSR_CHAT_LLAMA3)
        return;
    data_text_print(out, "Given the following functions, please respond with a JSON for a function "
                         "call with its proper arguments that best answers the given prompt.\n\n"
                         "Respond in the format {\"name\": function name, \"parameters\": "
                         "dictionary of argument name and its value}.Do not use variables.\n\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        add_json(out, json_array_get(tools, i), 4);
        data_text_print(out, "\n\n");
    }
}

bool data_tools_as_message(tsr_chat_format format, const json_t *tools, data_text *out)
{
    if (!is_mistral(format))
        return false;
    add_json(out, tools, 0);
    return true;
}

/* Mistral's models know calls by the last 9 letters and digits of their ids. */
static const char *short_id(const char *id)
{
    const size_t size = strlen(id);
    return size > 9 ? id + size - 9 : id;
}

/* Appends one call. Its arguments are an object, or a string that has one. */
static bool add_call(tsr_chat_format format, const json_t *call, size_t number, data_text *out)
{
    const json_t *function = json_object_get(call, "function"),
                 *given = json_object_get(function, "arguments");
    const char *name = json_string_value(json_object_get(function, "name")),
               *id = json_string_value(json_object_get(call, "id"));
    json_t *arguments = json_is_string(given) ? json_loads(json_string_value(given), 0, NULL)
                                              : json_incref((json_t *)given);
    const bool mistral = is_mistral(format), good = name != NULL && json_is_object(arguments) &&
                                                    (id != NULL || !mistral) &&
                                                    (number == 0 || format != TSR_CHAT_LLAMA3);
    if (good) {
        if (format == TSR_CHAT_CHATML)
            data_text_print(out, out->size > 0 ? "\n<tool_call>\n" : "<tool_call>\n");
        else if (mistral)
            data_text_print(out, number == 0 ? "[" : ", ");
        data_text_print(out, "{\"name\": \"");
        data_text_print(out, name);
        data_text_print(out,
                        format == TSR_CHAT_LLAMA3 ? "\", \"parameters\": " : "\", \"arguments\": ");
        add_json(out, arguments, 0);
        if (mistral) {
            data_text_print(out, ", \"id\": \"");
            data_text_print(out, short_id(id));
            data_text_print(out, "\"");
        }
        data_text_print(out, format == TSR_CHAT_CHATML ? "}\n</tool_call>" : "}");
    }
    json_decref(arguments);
    return good;
}

bool data_tools_calls(tsr_chat_format format, const json_t *calls, size_t index, data_text *out,
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
    data_text_print(out, is_mistral(format) ? "]" : "");
    return true;
}

void data_tools_result(tsr_chat_format format, const json_t *message, const char *content,
                       data_text *out)
{
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    if (format == TSR_CHAT_CHATML) {
        data_text_print(out, out->size > 0 ? "\n<tool_response>\n" : "<tool_response>\n");
        data_text_print(out, content);
        data_text_print(out, "\n</tool_response>");
    } else if (format == TSR_CHAT_LLAMA3) {
        json_t *string = json_string(content);
        add_json(out, string, 0);
        json_decref(string);
    } else {
        data_text_print(out, "{\"content\": ");
        data_text_print(out, content);
        data_text_print(out, ", \"call_id\": \"");
        data_text_print(out, id != NULL ? short_id(id) : "");
        data_text_print(out, "\"}");
    }
}

bool data_tools_join_results(tsr_chat_format format)
{
    return format == TSR_CHAT_CHATML;
}
