#include "cli/lib/say.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/lib/text.h"

/* The size of a message, which is enough for two paths of the greatest length. Longer messages are
 * cut. The buffers are on the stack, because the message may be that memory is exhausted. */
#define MAX 9216

/* Writes the byte as an escape sequence such as \n or \x1b, of at most four characters. Returns the
 * end of the sequence. */
static char *escape_byte(char byte, char *out)
{
    int length =
        byte == '\n' ? snprintf(out, 5, "\\n") : snprintf(out, 5, "\\x%02x", (unsigned char)byte);
    return out + length;
}

/* Copies text and escapes control characters and bytes that are not UTF-8. */
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
    char text[MAX], line[4 * MAX];
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

const char *cli_without_module(const char *text)
{
    static const char *const modules[] = {"checkpoint_files_open",
                                          "checkpoint_files_verify",
                                          "checkpoint_files_merge",
                                          "model",
                                          "shard",
                                          "tokenizer"};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const size_t length = strlen(modules[i]);
        if (strncmp(text, modules[i], length) == 0 && strncmp(text + length, ": ", 2) == 0)
            return text + length + 2;
    }
    return text;
}

int cli_failed_in(const char *command, const char *text)
{
    text = cli_without_module(text);
    const size_t length = strlen(command);
    const bool has_name =
        strncmp(text, command, length) == 0 && strchr(": ", text[length]) && text[length] != '\0';
    return has_name ? cli_failed("%s", text) : cli_failed("%s: %s", command, text);
}
