/* Texts between UTF-8, which all of tessera uses, and UTF-16, which Windows uses. */
#ifndef TSR_PLATFORM_WINDOWS_TEXT_H
#define TSR_PLATFORM_WINDOWS_TEXT_H

#include <wchar.h>

/* Return a new string, for free(), or NULL with errno: EILSEQ if the text is not valid, ENOMEM. */
wchar_t *tsr__windows_wide(const char *text);
char *tsr__windows_utf8(const wchar_t *text);

/* Sets errno to what POSIX calls the last error of Windows. Returns −1. */
int tsr__windows_fail(void);

#endif
