/* tessera bench, without a benchmark's name. */
#ifndef TSR_BENCH_HARNESS_COMPLETE_H
#define TSR_BENCH_HARNESS_COMPLETE_H

#include "bench/harness/bench.h"

/* For each result, where the command line does not say: a run takes about a minute then. */
#define BENCH_COMPLETE_SECONDS 0.2

/* Every benchmark on every usable device, or on the one that --device names. A benchmark that fails
 * gives no figures and is noted, and the others go on. False: nothing could be done at all. */
bool bench_complete(bench_context *context);

#endif
