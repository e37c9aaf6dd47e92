/* What goes to standard error: one message, one line, whatever the names and texts in it hold. */
#include <string.h>

#include "cli/command.h"
#include "cli/text.h"

/* Room for two of the longest paths, without memory from anywhere: that there is none left is said
 * here, too. What is longer is cut. */
#define MOST 9216

/* As C would write it: four characters at the most. Returns their end. */
static char *escape_byte(char byte, char *out)
{
    int length =
        byte == '\n' ? snprintf(out, 5, "\\n") : snprintf(out, 5, "\\x%02x", (unsigned char)byte);
    return out + length;
}

/* Bytes that are no UTF-8 could be control characters, too. */
static void escape(const char *text, char *out)
{
    while (*text != '\0') {
        uint32_t code = 0;
        int size = cli_character(text, &code);
        if (size == 0 || cli_is_control(code)) {
            out = escape_byte(*text++, out);
            if (size == 2)
                out = escape_byte(*text++, out);
            continue;
        }
        memcpy(out, text, (size_t)size);
        out += size;
        text += size;
    }
    *out = '\0';
}

void cli_say_list(const char *format, va_list arguments)
{
    char text[MOST], line[4 * MOST];
    vsnprintf(text, sizeof text, format, arguments);
    escape(text, line);
    fprintf(stderr, "tessera: %s\n", line);
}

void cli_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cli_say_list(format, arguments);
    va_end(arguments);
}

int cli_usage_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cli_say_list(format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

int cli_failed(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cli_say_list(format, arguments);
    va_end(arguments);
    return CLI_FAILED;
}
