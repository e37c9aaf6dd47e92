#include "cli/lib/growing.h"

#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"

void cli_text_add(cli_text *text, const char *data, size_t size)
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

void cli_text_print(cli_text *text, const char *string)
{
    cli_text_add(text, string, strlen(string));
}

void cli_text_free(cli_text *text)
{
    free(text->data);
    *text = (cli_text){0};
}
