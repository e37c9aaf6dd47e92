/* Converts texts between UTF-8, which the library uses, and UTF-16, which Windows uses. */
#ifndef TSR_PLATFORM_WINDOWS_UTF16_H
#define TSR_PLATFORM_WINDOWS_UTF16_H

#include <wchar.h>

/* Return a new string that the caller must free, or NULL with errno set: EILSEQ for an invalid
 * text, ENOMEM if memory is exhausted. */
wchar_t *tsr__windows_wide(const char *text);
char *tsr__windows_utf8(const wchar_t *text);

/* Sets errno to POSIX's number for the last error of Windows. Returns −1. */
int tsr__windows_fail(void);

#endif
