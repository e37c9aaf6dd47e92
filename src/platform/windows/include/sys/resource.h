/* getrusage, for the time of the CPU only. */
#ifndef TSR_WINDOWS_SYS_RESOURCE_H
#define TSR_WINDOWS_SYS_RESOURCE_H

#include <sys/time.h>

struct rusage {
    struct timeval ru_utime, ru_stime;
};

/* There are no child processes, so theirs are 0. */
enum { RUSAGE_SELF, RUSAGE_CHILDREN };
int getrusage(int whom, struct rusage *out);

#endif
