/* Tests whether a device can be opened, without loading a driver into this process. */
#ifndef TSR_BENCH_HARNESS_CAN_OPEN_H
#define TSR_BENCH_HARNESS_CAN_OPEN_H

#include "bench/harness/bench.h"

/* Returns true if the device can be opened. A complete run tests this first, so that a wrong name
 * is reported at once, and not after half a minute of measuring the host. A child process opens the
 * device, because drivers allocate memory that this process must not have yet: it would be included
 * in the peak memory of processes that are started later. */
bool bench_can_open(bench_context *context, const char *which);

#endif
