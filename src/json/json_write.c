/* The JSON writer: see json_write.h. */
#include "json/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static void write_text(tsr__json_writer *writer, const char *text, size_t length)
{
    if (writer->text != NULL)
        memcpy(writer->text + writer->length, text, length);
    writer->length += length;
}

void tsr__json_print(tsr__json_writer *writer, const char *format, ...)
{
    char line[192];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    write_text(writer, line, (size_t)length);
}

void tsr__json_print_string(tsr__json_writer *writer, const char *text)
{
    write_text(writer, "\"", 1);
    for (size_t plain; *text != '\0'; text += plain) {
        plain = 0;
        while ((unsigned char)text[plain] >= ' ' && text[plain] != '"' && text[plain] != '\\')
            plain++;
        write_text(writer, text, plain);
        if (text[plain] == '\0')
            break;
        if ((unsigned char)text[plain] < ' ')
            tsr__json_print(writer, "\\u%04x", (unsigned)(unsigned char)text[plain]);
        else
            tsr__json_print(writer, "\\%c", text[plain]);
        plain++;
    }
    write_text(writer, "\"", 1);
}

void tsr__json_print_u64(tsr__json_writer *writer, uint64_t value)
{
    const char *quote = value > INT64_MAX ? "\"" : "";
    tsr__json_print(writer, "%s%" PRIu64 "%s", quote, value, quote);
}

void tsr__json_print_real(tsr__json_writer *writer, double value)
{
    char text[64];
    int length = 0;
    if (!isfinite(value)) {
        tsr__json_print(writer, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    /* Replace the locale's decimal point, which may have several bytes, by '.'. */
    for (int i = 0; i < length; i++) {
        bool usual = strchr("0123456789e+-", text[i]) != NULL;
        bool point = !usual && (i == 0 || strchr("0123456789", text[i - 1]) != NULL);
        if (usual || point)
            write_text(writer, usual ? &text[i] : ".", 1);
    }
}

tsr_status tsr__json_print_document(tsr__json_print_fn *print, const void *user, size_t before,
                                    char **out, size_t *length)
{
    tsr__json_writer w = {0};
    print(user, &w);
    char *text = tsr__calloc(before + w.length + 1, 1);
    if (text == NULL)
        return TSR_ERR_NO_MEMORY;
    w = (tsr__json_writer){.text = text + before};
    print(user, &w);
    *out = text;
    *length = w.length;
    return TSR_OK;
}
