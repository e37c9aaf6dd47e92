/* <stdio.h> with POSIX's meaning: paths are UTF-8, line ends are not translated, and rename
 * replaces an existing file. */
#ifndef TSR_WINDOWS_STDIO_H
#define TSR_WINDOWS_STDIO_H

#include_next <stdio.h>
#include <sys/types.h>

FILE *tsr__windows_fopen(const char *path, const char *mode);
FILE *tsr__windows_fdopen(int descriptor, const char *mode);
int tsr__windows_rename(const char *from, const char *to);
int tsr__windows_remove(const char *path);
#define fopen(path, mode) tsr__windows_fopen(path, mode)
#define fdopen(descriptor, mode) tsr__windows_fdopen(descriptor, mode)
#define rename(from, to) tsr__windows_rename(from, to)
#define remove(path) tsr__windows_remove(path)

ssize_t getline(char **line, size_t *capacity, FILE *file);

#endif
