/* Texts that grow, of which the server makes its answers. */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

void serve_text_add(serve_text *text, const char *data, size_t size)
{
    if (text->size + size + 1 > text->capacity) {
        text->capacity = 2 * (text->size + size + 1);
        text->data = cli_resize(text->data, text->capacity, 1);
    }
    if (size > 0)
        memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = '\0';
}

void serve_text_add_json(serve_text *text, json_t *value)
{
    char *line = json_dumps(value, JSON_COMPACT);
    json_decref(value);
    if (line == NULL)
        exit(cli_failed("serve: out of memory"));
    serve_text_add(text, line, strlen(line));
    free(line);
}

bool serve_is_utf8(const char *text, size_t size)
{
    json_t *value = json_stringn(text, size);
    const bool valid = value != NULL;
    json_decref(value);
    return valid;
}

void serve_text_finish(serve_text *text)
{
    free(text->data);
    *text = (serve_text){0};
}
