/* <time.h> with a nanosleep that never sleeps for less than the given time. */
#ifndef TSR_WINDOWS_TIME_H
#define TSR_WINDOWS_TIME_H

#include_next <time.h>

int tsr__windows_nanosleep(const struct timespec *time, struct timespec *left);
#define nanosleep(time, left) tsr__windows_nanosleep(time, left)

#endif
