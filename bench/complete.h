/* The complete run: tessera bench without a benchmark's name. */
#ifndef TSR_BENCH_HARNESS_COMPLETE_H
#define TSR_BENCH_HARNESS_COMPLETE_H

#include "bench/harness/bench.h"

/* The default time for each result; with it a run takes about a minute per device. */
#define BENCH_COMPLETE_SECONDS 0.2

/* Runs every benchmark on every usable device, or on the one that --device names. A benchmark that
 * fails has no results and is noted as a failure, and the others continue. Returns false if nothing
 * could be measured. */
bool bench_complete(bench_context *context);

#endif
