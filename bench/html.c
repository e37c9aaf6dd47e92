#include "bench/html.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* The bytes of the well-formed UTF-8 character that starts here; 0: there is none. */
static int character(const unsigned char *text, uint32_t *code)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    int size = text[0] < 0x80           ? 1
               : (text[0] >> 5) == 0x06 ? 2
               : (text[0] >> 4) == 0x0e ? 3
               : (text[0] >> 3) == 0x1e ? 4
                                        : 0;
    if (size == 0)
        return 0;
    *code = size == 1 ? text[0] : text[0] & (0xffu >> (size + 1));
    for (int i = 1; i < size; i++) {
        if ((text[i] & 0xc0) != 0x80) /* also the end of the string */
            return 0;
        *code = *code << 6 | (text[i] & 0x3fu);
    }
    return *code >= lowest[size] ? size : 0;
}

/* The characters of XML, without the controls that it merely discourages. */
static bool allowed(uint32_t code)
{
    return code == '\t' || code == '\n' || (code >= 0x20 && code < 0x7f) ||
           (code >= 0xa0 && code < 0xd800) || (code >= 0xe000 && code < 0xfffe) ||
           (code >= 0x10000 && code < 0x110000);
}

void html_text(FILE *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        uint32_t code = 0;
        int size = character(at, &code);
        if (size == 0 || !allowed(code))
            fputs(REPLACEMENT, out);
        else if (code == '&')
            fputs("&amp;", out);
        else if (code == '<')
            fputs("&lt;", out);
        else if (code == '>')
            fputs("&gt;", out);
        else if (code == '"')
            fputs("&quot;", out);
        else if (code == '\'')
            fputs("&#39;", out);
        else
            fwrite(at, 1, (size_t)size, out);
        at += size > 0 ? size : 1;
    }
}

/* "12.5", "12": without zeros that say nothing. */
static void write_number(FILE *out, double value)
{
    char text[64];
    snprintf(text, sizeof text, "%.2f", value > -1e9 && value < 1e9 ? value : 0);
    char *end = text + strlen(text);
    while (end[-1] == '0')
        *--end = '\0';
    if (end[-1] == '.')
        *--end = '\0';
    fputs(text, out);
}

void html_line(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    for (const char *at = format; *at != '\0'; at++) {
        if (*at != '%') {
            fputc(*at, out);
            continue;
        }
        at++;
        if (*at == 's')
            html_text(out, va_arg(arguments, const char *));
        else if (*at == 'd')
            fprintf(out, "%d", va_arg(arguments, int));
        else if (*at == 'f')
            write_number(out, va_arg(arguments, double));
        else if (*at == '%')
            fputc('%', out);
        else
            break; /* no conversion of ours: a test would see the page end here */
    }
    va_end(arguments);
}
