#include "data.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

#define PIXEL_MAX 16
#define VALUES (DIGITS_PIXELS + 1)
#define FILE_MAX ((size_t)64 << 20) /* the largest size of a file; larger ones are refused */

typedef struct reader {
    const char *path;
    const char *at, *end; /* the part of the text that has not been read yet */
    int64_t line;
    char *error;
    size_t error_size;
} reader;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool
fail(const reader *r, const char *format, ...)
{
    int used = r->line > 0
                   ? snprintf(r->error, r->error_size, "%s:%lld: ", r->path, (long long)r->line)
                   : snprintf(r->error, r->error_size, "%s: ", r->path);
    if (used >= 0 && (size_t)used < r->error_size) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(r->error + used, r->error_size - (size_t)used, format, arguments);
        va_end(arguments);
    }
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads one value of a line. A comma or the end of the line must follow. */
static bool read_value(reader *r, int index, int *out)
{
    int most = index < DIGITS_PIXELS ? PIXEL_MAX : DIGITS_LABELS - 1;
    int value = 0, digits = 0;
    for (; r->at < r->end && is_digit(*r->at) && digits < 4; digits++)
        value = 10 * value + (*r->at++ - '0');
    if (digits == 0 || (r->at < r->end && *r->at != ',' && *r->at != '\n' && *r->at != '\r'))
        return fail(r, "value %d is not a number from 0 to %d", index + 1, most);
    if (value > most)
        return fail(r, "value %d is %d; %s go from 0 to %d", index + 1, value,
                    index < DIGITS_PIXELS ? "pixels" : "labels", most);
    *out = value;
    return true;
}

static bool read_line(reader *r, float *pixels, int32_t *label)
{
    r->line++;
    for (int i = 0; i < VALUES; i++) {
        int value = 0;
        if (!read_value(r, i, &value))
            return false;
        if (i < DIGITS_PIXELS)
            pixels[i] = (float)value / PIXEL_MAX;
        else
            *label = value;
        bool comma = r->at < r->end && *r->at == ',';
        if (comma && i + 1 == VALUES)
            return fail(r, "more than %d values", VALUES);
        if (!comma && i + 1 < VALUES)
            return fail(r, "%d values instead of %d", i + 1, VALUES);
        r->at += comma;
    }
    if (r->at < r->end && *r->at == '\r')
        r->at++;
    if (r->at < r->end && *r->at++ != '\n')
        return fail(r, "a stray carriage return");
    return true;
}

static int64_t count_lines(const char *at, const char *end)
{
    int64_t lines = 0;
    for (const char *c = at; c < end; c++)
        lines += *c == '\n' || c + 1 == end;
    return lines;
}

bool digits_read(const char *path, digits_data *out, char *error, size_t error_size)
{
    reader r = {.path = path, .error = error, .error_size = error_size};
    size_t size;
    char *text;
    if (!read_file(path, FILE_MAX, &text, &size, error, error_size))
        return false;
    r.at = text;
    r.end = text + size;

    digits_data data = {.count = count_lines(r.at, r.end)};
    data.pixels = calloc((size_t)data.count + 1, DIGITS_PIXELS * sizeof *data.pixels);
    data.labels = calloc((size_t)data.count + 1, sizeof *data.labels);
    bool read = data.pixels && data.labels;
    if (!read)
        fail(&r, "out of memory");
    else if (data.count == 0)
        read = fail(&r, "no lines");
    for (int64_t i = 0; read && i < data.count; i++)
        read = read_line(&r, data.pixels + i * DIGITS_PIXELS, data.labels + i);
    free(text);
    if (read)
        *out = data;
    else
        digits_free(&data);
    return read;
}

void digits_free(digits_data *data)
{
    free(data->pixels);
    free(data->labels);
    *data = (digits_data){0};
}
