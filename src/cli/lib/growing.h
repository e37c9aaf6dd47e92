/* Strings that grow at their end. If memory is exhausted, the tool exits. */
#ifndef TSR_CLI_LIB_GROWING_H
#define TSR_CLI_LIB_GROWING_H

#include <stddef.h>

/* `data` has a zero byte after its `size` bytes, or is NULL. Free it with cli_text_free. */
typedef struct cli_text {
    char *data;
    size_t size, capacity;
} cli_text;

/* Appends bytes. With `size` 0, `data` is no longer NULL afterwards. */
void cli_text_add(cli_text *text, const char *data, size_t size);
/* Appends a string that ends with a zero byte. */
void cli_text_print(cli_text *text, const char *string);
void cli_text_free(cli_text *text);

#endif
