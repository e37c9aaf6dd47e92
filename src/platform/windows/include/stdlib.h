/* <stdlib.h> with POSIX's meaning: the environment is UTF-8. */
#ifndef TSR_WINDOWS_STDLIB_H
#define TSR_WINDOWS_STDLIB_H

#include_next <stdlib.h>

/* The string that getenv returns is valid until the process ends. */
char *tsr__windows_getenv(const char *name);
#define getenv(name) tsr__windows_getenv(name)
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);

int tsr__windows_mkstemp(char *path);
#define mkstemp(path) tsr__windows_mkstemp(path)
char *mkdtemp(char *path);
char *realpath(const char *path, char *resolved);

/* Returns -1, because Windows measures no load average. */
int getloadavg(double *averages, int count);

#endif
