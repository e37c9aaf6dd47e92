#include "cli/lib/terminal.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/text.h"

#define MIN_COLUMNS 20
#define MAX_TEXT_COLUMNS 100

int cli_columns(FILE *out)
{
    struct winsize size;
    int64_t columns = 0;
    const char *variable = getenv("COLUMNS");
    if (variable != NULL)
        (void)cli_read_integer(variable, 1, 10000, &columns);
    if (columns == 0 && isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    return columns > 0 && columns < MIN_COLUMNS ? MIN_COLUMNS : (int)columns;
}

int cli_text_width(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++) /* continuation bytes of UTF-8 take no column */
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static bool locale_is_utf8(void)
{
    static int known; /* 0: not determined yet; 1: UTF-8; 2: another encoding */
    if (known == 0) {
        locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
        bool utf8 = locale != (locale_t)0 && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
        if (locale != (locale_t)0)
            freelocale(locale);
        known = utf8 ? 1 : 2;
    }
    return known == 1;
}

/* Returns the ASCII text that is most similar to a character that the tool's own texts use. Returns
 * "?" for all other characters. */
static const char *ascii_of(uint32_t code)
{
    switch (code) {
    case 0xb1: /* ± */
        return "+-";
    case 0xb5: /* µ */
        return "u";
    case 0xb7: /* · */
        return "*";
    case 0xd7: /* × */
        return "x";
    case 0x1d40: /* ᵀ */
        return "^T";
    case 0x2013: /* – */
    case 0x2212: /* − */
        return "-";
    case 0x2026: /* … */
        return "...";
    default:
        return "?";
    }
}

char *cli_localized(const char *text)
{
    /* A character takes at least two bytes, and its replacement takes at most three. */
    char *copy = cli_alloc(2 * strlen(text) + 1, 1);
    if (locale_is_utf8())
        return strcpy(copy, text);
    for (char *to = copy; *text != '\0';) {
        uint32_t code = 0;
        int size = cli_character(text, &code);
        if (size == 1) {
            *to++ = *text;
        } else {
            const char *ascii = size > 0 ? ascii_of(code) : "?";
            strcpy(to, ascii);
            to += strlen(ascii);
        }
        text += size > 0 ? size : 1;
    }
    return copy;
}

void cli_put(FILE *out, const char *text)
{
    char *copy = cli_localized(text);
    fputs(copy, out);
    free(copy);
}

char *cli_format_list(const char *format, va_list arguments)
{
    char *text = NULL;
    for (size_t size = 128;;) {
        va_list again;
        text = cli_resize(text, size, 1);
        va_copy(again, arguments);
        const int length = vsnprintf(text, size, format, again);
        va_end(again);
        if (length < 0)
            text[0] = '\0';
        if (length < 0 || (size_t)length < size)
            return text;
        size = (size_t)length + 1;
    }
}

void cli_print(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cli_format_list(format, arguments);
    va_end(arguments);
    cli_put(out, text);
    free(text);
}

/* If a line has fewer columns than this, continued lines do not start below the explanation. */
#define NARROW 60
#define NARROW_INDENT 8

/* Returns the column at which continued lines start. */
static size_t continuation_of(const char *line, size_t indent, size_t columns)
{
    size_t start = indent;
    const char *text = line + strspn(line, " "), *gap = strstr(text, "  ");
    if (gap != NULL)
        start = (size_t)(gap - line) + strspn(gap, " ");
    return start > columns / 2 || (start > indent && columns < NARROW) ? indent + 4 : start;
}

/* Writes one line without its newline. Changes the line temporarily. */
static void wrap_line(FILE *out, char *line, size_t columns)
{
    size_t spaces = strspn(line, " "), used = 0;
    size_t gap = columns < NARROW && spaces > NARROW_INDENT ? NARROW_INDENT : spaces;
    size_t hanging = continuation_of(line, gap, columns);
    bool any = false; /* words have been written to this output line */
    for (char *word = line + spaces; *word != '\0';) {
        size_t length = strcspn(word, " ");
        char after = word[length];
        word[length] = '\0';
        size_t width = (size_t)cli_text_width(word);
        if (any && used + gap + width > columns) {
            fputc('\n', out);
            used = 0;
            gap = hanging;
        }
        fprintf(out, "%*s", (int)gap, "");
        fputs(word, out);
        used += gap + width;
        any = true;
        word += length;
        *word = after;
        gap = strspn(word, " ");
        word += gap;
        gap = columns < NARROW && gap > 2 ? 2 : gap;
    }
    fputc('\n', out);
}

void cli_wrap(FILE *out, const char *text)
{
    int columns = cli_columns(out);
    if (columns == 0 || columns > MAX_TEXT_COLUMNS)
        columns = MAX_TEXT_COLUMNS;
    char *copy = cli_localized(text);
    for (char *line = copy; *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        wrap_line(out, line, (size_t)columns);
        line = end != NULL ? end + 1 : line + strlen(line);
    }
    free(copy);
}

void cli_line(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cli_format_list(format, arguments);
    va_end(arguments);
    if (cli_columns(out) > 0) {
        cli_wrap(out, text);
    } else {
        cli_put(out, text);
        fputc('\n', out);
    }
    free(text);
}

/* Standard output ---------------------------------------------------------------------------- */

/* The errno of the first flush or large write that failed. It is kept because later ones may
 * succeed although output is missing. */
static int flush_problem;

bool cli_flush(void)
{
    errno = 0;
    if (fflush(stdout) != 0 && flush_problem == 0)
        flush_problem = errno != 0 ? errno : EIO;
    return flush_problem == 0;
}

void cli_write(const char *bytes, size_t size)
{
    errno = 0;
    if (fwrite(bytes, 1, size, stdout) < size && flush_problem == 0)
        flush_problem = errno != 0 ? errno : EIO;
}

/* Writes the rest of standard output. If some of the output could not be written, returns the
 * errno; otherwise 0. */
static int flush_end(void)
{
    (void)cli_flush();
    /* stdio has not kept the reason of a write that failed between two flushes */
    return flush_problem != 0 ? flush_problem : ferror(stdout) ? EIO : 0;
}

int cli_end_output(int code)
{
    const int problem = flush_end();
    return problem != 0 && code == CLI_DONE
               ? cli_failed("cannot write to standard output: %s", strerror(problem))
               : code;
}
