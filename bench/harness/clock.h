/* Reads the host's clock. */
#ifndef TSR_BENCH_HARNESS_CLOCK_H
#define TSR_BENCH_HARNESS_CLOCK_H

#include <time.h>

static inline double bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

#endif
