/* <string.h> with functions of POSIX that Windows lacks. */
#ifndef TSR_WINDOWS_STRING_H
#define TSR_WINDOWS_STRING_H

#include_next <string.h>

char *strndup(const char *text, size_t size);
int strerror_r(int error, char *text, size_t size);

#endif
