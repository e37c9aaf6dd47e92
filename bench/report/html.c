#include "bench/report/html.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/lib/text.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* Returns true for a character that XML allows and does not discourage; it discourages control
 * characters. */
static bool allowed(uint32_t code)
{
    return code == '\t' || code == '\n' ||
           (!cli_is_control(code) && (code < 0xd800 || (code >= 0xe000 && code < 0xfffe) ||
                                      (code >= 0x10000 && code < 0x110000)));
}

void html_text(FILE *out, const char *text)
{
    const char *cursor = text;
    while (*cursor != '\0') {
        uint32_t code = 0;
        int size = cli_character(cursor, &code);
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
            fwrite(cursor, 1, (size_t)size, out);
        cursor += size > 0 ? size : 1;
    }
}

/* Writes, for example, "12.5" or "12", without trailing zeros. */
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
    for (const char *cursor = format; *cursor != '\0'; cursor++) {
        if (*cursor != '%') {
            fputc(*cursor, out);
            continue;
        }
        cursor++;
        if (*cursor == 's')
            html_text(out, va_arg(arguments, const char *));
        else if (*cursor == 'd')
            fprintf(out, "%d", va_arg(arguments, int));
        else if (*cursor == 'f')
            write_number(out, va_arg(arguments, double));
        else if (*cursor == '%')
            fputc('%', out);
        else
            break; /* unknown conversion: nothing more is written, which a test detects */
    }
    va_end(arguments);
}
