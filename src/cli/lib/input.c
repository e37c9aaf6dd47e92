#include "cli/lib/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"

/* Reads a file that is open. `name` names it in errors. */
static int read_all(const char *command, FILE *file, const char *name, size_t most, char **out,
                    size_t *size)
{
    size_t capacity = 1 << 16, used = 0, got;
    char *text = cli_alloc(capacity + 1, 1);
    while ((got = fread(text + used, 1, capacity - used, file)) > 0) {
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
        ferror(file)  ? cli_failed("%s: cannot read %s: %s", command, name, strerror(errno))
        : used > most ? cli_failed("%s: %s has more than %zu bytes", command, name, most)
                      : CLI_DONE;
    if (code != CLI_DONE) {
        free(text);
        return code;
    }
    *out = text;
    *size = used;
    return CLI_DONE;
}

int cli_input_read(const char *command, size_t most, char **out, size_t *size)
{
    return read_all(command, stdin, "standard input", most, out, size);
}

int cli_file_read(const char *command, const char *path, size_t most, char **out, size_t *size)
{
    if (strcmp(path, "-") == 0)
        return cli_input_read(command, most, out, size);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return cli_failed("%s: cannot open %s: %s", command, path, strerror(errno));
    const int code = read_all(command, file, path, most, out, size);
    fclose(file);
    return code;
}
