/* The monotonic clock, and deadlines on it. */
#ifndef TSR_BASE_CLOCK_H
#define TSR_BASE_CLOCK_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

#define TSR__SECOND UINT64_C(1000000000)

static inline uint64_t tsr__now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TSR__SECOND + (uint64_t)now.tv_nsec;
}

/* Returns the time of the monotonic clock `timeout_ns` from now. A timeout too long for the clock
 * gives UINT64_MAX, which never passes. */
static inline uint64_t tsr__deadline_ns(uint64_t timeout_ns)
{
    uint64_t now = tsr__now_ns();
    return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

/* Returns the milliseconds until the deadline, as a timeout for poll(). They are rounded up, so
 * that poll() does not return shortly before the deadline. */
static inline int tsr__poll_ms(uint64_t deadline_ns)
{
    uint64_t now = tsr__now_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now - 1) / 1000000 + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

#endif
