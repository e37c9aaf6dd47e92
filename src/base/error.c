#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[TSR__ERROR_TEXT];

/* Replaces the end of a text that was cut at the buffer's size by "…". It does not split a UTF-8
 * character. */
static void mark_cut(char *text)
{
    static const char ellipsis[] = "…";
    size_t end = TSR__ERROR_TEXT - sizeof ellipsis;
    while (end > 0 && ((unsigned char)text[end] & 0xC0u) == 0x80u)
        end--;
    memcpy(text + end, ellipsis, sizeof ellipsis);
}

/* Records prefix + text as the thread's error text. The new text is built in a separate buffer,
 * because `prefix` and `text` may point into the old text. */
static void record(const char *prefix, const char *text)
{
    char next[TSR__ERROR_TEXT];
    int length = snprintf(next, sizeof next, "%s%s", prefix, text);
    if (length < 0)
        next[0] = '\0';
    else if ((size_t)length >= sizeof next)
        mark_cut(next);
    memcpy(error_text, next, sizeof next);
}

static void format_text(char *text, const char *format, va_list args)
{
    int length = vsnprintf(text, TSR__ERROR_TEXT, format, args);
    if (length < 0)
        text[0] = '\0';
    else if (length >= TSR__ERROR_TEXT)
        mark_cut(text);
}

tsr_status tsr__fail(tsr_status status, const char *format, ...)
{
    char text[TSR__ERROR_TEXT];
    va_list args;
    va_start(args, format);
    format_text(text, format, args);
    va_end(args);
    record("", text);
    return status;
}

tsr_status tsr__fail_context(tsr_status status, const char *format, ...)
{
    char context[TSR__ERROR_TEXT + 2];
    va_list args;
    va_start(args, format);
    format_text(context, format, args);
    va_end(args);
    memcpy(context + strlen(context), ": ", sizeof ": ");
    record(context, error_text);
    return status;
}

tsr__error tsr__error_take(void)
{
    tsr__error taken;
    memcpy(taken.text, error_text, sizeof error_text);
    error_text[0] = '\0';
    return taken;
}

void tsr__error_put_back(const tsr__error *error)
{
    memcpy(error_text, error->text, sizeof error_text);
}

const char *tsr_last_error(void)
{
    return error_text;
}
