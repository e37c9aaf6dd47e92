/* Texts of requests and answers: valid UTF-8, the content of a message, and sentences about refused
 * requests. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/serve/serve.h"

bool serve_is_utf8(const char *text, size_t size)
{
    json_t *value = json_stringn(text, size);
    const bool valid = value != NULL;
    json_decref(value);
    return valid;
}

/* Replaces each byte that is not UTF-8, such as those of a path, or of a name that was cut
 * short. */
static void make_utf8(char *text)
{
    const size_t size = strlen(text);
    for (size_t at = 0, length; at < size; at += length) {
        length = 1;
        while (length < 4 && length < size - at && !serve_is_utf8(text + at, length))
            length++;
        if (!serve_is_utf8(text + at, length)) {
            text[at] = '?';
            length = 1;
        }
    }
}

void serve_copy_utf8(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text);
    make_utf8(to);
}

void serve_refuse(serve_problem *problem, unsigned status, const char *parameter,
                  const char *format, ...)
{
    va_list arguments;
    problem->status = status;
    snprintf(problem->parameter, sizeof problem->parameter, "%s", parameter);
    va_start(arguments, format);
    vsnprintf(problem->message, sizeof problem->message, format, arguments);
    va_end(arguments);
    make_utf8(problem->parameter);
    make_utf8(problem->message);
}

bool serve_check_bytes(const serve_server *server, size_t bytes, const char *name,
                       serve_problem *problem)
{
    if (server->longest_token == 0 || (int64_t)bytes / server->longest_token <= server->context)
        return true;
    serve_refuse(problem, 400, name,
                 "the prompt has %zu bytes, but the context has only %" PRId64
                 " tokens of at most %" PRId64 " bytes",
                 bytes, server->context, server->longest_token);
    return false;
}

/* Parts of a list are {"type": "text", "text": …}. */
char *serve_content_text(const json_t *content)
{
    cli_text text = {0};
    cli_text_add(&text, "", 0);
    if (json_is_string(content))
        cli_text_add(&text, json_string_value(content), json_string_length(content));
    for (size_t i = 0; json_is_array(content) && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *type = json_object_get(part, "type"),
                     *value = json_object_get(part, "text");
        if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0 ||
            !json_is_string(value)) {
            cli_text_free(&text);
            return NULL;
        }
        cli_text_add(&text, json_string_value(value), json_string_length(value));
    }
    if (!json_is_string(content) && !json_is_array(content))
        cli_text_free(&text);
    return text.data;
}
