/* Reads files with one number per line. Any other line is an error, even an empty one. If an empty
 * line were skipped, the numbers after it would belong to different items than the author of the
 * file believes. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/say.h"
#include "cli/sample/sample.h"

/* Parses a line and stores the number as element `i` of `values`. */
typedef bool (*read_fn)(const char *text, void *values, uint64_t i);

static bool read_integer(const char *text, void *values, uint64_t i)
{
    return cli_read_integer(text, INT64_MIN, INT64_MAX, (int64_t *)values + i);
}

static bool read_real(const char *text, void *values, uint64_t i)
{
    return cli_read_real(text, -INFINITY, INFINITY, (double *)values + i);
}

/* Removes the space at both ends of a line, in place. */
static char *trimmed(char *line)
{
    size_t length = strlen(line);
    while (length > 0 && isspace((unsigned char)line[length - 1]))
        line[--length] = '\0';
    while (isspace((unsigned char)*line))
        line++;
    return line;
}

#define MAX_LINE 4096

/* Reads a line without its end, or the first bytes of a longer one, and writes a zero byte behind
 * it. The length of a longer line is MAX_LINE. Returns false at the end of the file. */
static bool read_line(FILE *file, char line[MAX_LINE + 1], size_t *length)
{
    int byte = getc(file);
    if (byte == EOF)
        return false;
    for (*length = 0; byte != EOF && byte != '\n' && *length < MAX_LINE; byte = getc(file))
        line[(*length)++] = (char)byte;
    line[*length] = '\0';
    return true;
}

/* Reads lines until the end of the file, one number each, into a new array. Integers and reals both
 * have 8 bytes. */
static int read_lines(FILE *file, const char *path, const char *what, read_fn read, void **values,
                      uint64_t *count)
{
    char line[MAX_LINE + 1];
    size_t length, capacity = 0;
    int code = CLI_DONE;
    for (uint64_t number = 1; code == CLI_DONE && read_line(file, line, &length); number++) {
        if (*count == capacity) {
            capacity = capacity == 0 ? 1024 : 2 * capacity;
            *values = cli_resize(*values, capacity, 8);
        }
        bool whole = strlen(line) == length;
        char *text = trimmed(line);
        if (length == MAX_LINE)
            code = cli_failed("sample: %s, line %llu: longer than %d bytes", path,
                              (unsigned long long)number, MAX_LINE - 1);
        else if (!whole)
            code = cli_failed("sample: %s, line %llu: contains a zero byte", path,
                              (unsigned long long)number);
        else if (text[0] == '\0')
            code =
                cli_failed("sample: %s, line %llu: empty line", path, (unsigned long long)number);
        else if (!read(text, *values, *count))
            code = cli_failed("sample: %s, line %llu: '%.80s' is not %s", path,
                              (unsigned long long)number, text, what);
        else
            ++*count;
    }
    if (code == CLI_DONE && ferror(file))
        code = cli_failed("sample: cannot read %s: %s", path, strerror(errno));
    return code;
}

static int read_file(const char *path, const char *what, read_fn read, void **values,
                     uint64_t *count)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "r");
    if (file == NULL)
        return cli_failed("sample: cannot read %s: %s", path, strerror(errno));
    void *read_values = cli_alloc(1, 8);
    uint64_t read_count = 0;
    int code =
        read_lines(file, standard ? "standard input" : path, what, read, &read_values, &read_count);
    if (!standard)
        fclose(file);
    if (code != CLI_DONE) {
        free(read_values);
        return code;
    }
    *values = read_values;
    *count = read_count;
    return CLI_DONE;
}

int sample_read_integers(const char *path, int64_t **values, uint64_t *count)
{
    void *read_values = NULL;
    int code = read_file(path, "an integer of 64 bits", read_integer, &read_values, count);
    if (code == CLI_DONE)
        *values = read_values;
    return code;
}

int sample_read_reals(const char *path, double **values, uint64_t *count)
{
    void *read_values = NULL;
    int code = read_file(path, "a finite number", read_real, &read_values, count);
    if (code == CLI_DONE)
        *values = read_values;
    return code;
}
