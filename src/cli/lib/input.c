#include "cli/lib/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"

int cli_input_read(const char *command, size_t most, char **out, size_t *size)
{
    size_t capacity = 65536, used = 0, got;
    char *text = cli_alloc(capacity + 1, 1);
    while ((got = fread(text + used, 1, capacity - used, stdin)) > 0) {
        used += got;
        if (used > most)
            break;
        if (used == capacity) {
            capacity *= 2;
            text = cli_resize(text, capacity + 1, 1);
        }
    }
    text[used] = '\0';
    const int code =
        ferror(stdin) ? cli_failed("%s: cannot read standard input: %s", command, strerror(errno))
        : used > most ? cli_failed("%s: standard input has more than %zu bytes", command, most)
                      : CLI_DONE;
    if (code != CLI_DONE) {
        free(text);
        return code;
    }
    *out = text;
    *size = used;
    return CLI_DONE;
}
