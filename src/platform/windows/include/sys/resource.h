/* Declares getrusage, which only gives CPU times. */
#ifndef TSR_WINDOWS_SYS_RESOURCE_H
#define TSR_WINDOWS_SYS_RESOURCE_H

#include <sys/time.h>

struct rusage {
    struct timeval ru_utime, ru_stime;
};

/* The times of RUSAGE_CHILDREN are 0, because the library starts no child processes on Windows. */
enum { RUSAGE_SELF, RUSAGE_CHILDREN };
int getrusage(int whom, struct rusage *out);

#endif
