/* <time.h> with a nanosleep that sleeps at least as long as it is asked to. */
#ifndef TSR_WINDOWS_TIME_H
#define TSR_WINDOWS_TIME_H

#include_next <time.h>

int tsr__windows_nanosleep(const struct timespec *time, struct timespec *left);
#define nanosleep(time, left) tsr__windows_nanosleep(time, left)

#endif
