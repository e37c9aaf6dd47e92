/* Runs `tessera bench first` in new processes, because it measures first calls. */
#ifndef TSR_BENCH_HARNESS_FRESH_H
#define TSR_BENCH_HARNESS_FRESH_H

#include "bench/harness/bench.h"

/* Adds rows to the benchmark "launch": the first calls of a process, with empty and with filled
 * caches on disk. */
bool bench_fresh_processes(bench_context *context);

#endif
