/* Running `tessera bench first` in processes of its own. */
#ifndef TSR_BENCH_HARNESS_FRESH_H
#define TSR_BENCH_HARNESS_FRESH_H

#include "bench/harness/bench.h"

/* Adds rows for empty and for warm caches to "launch". */
bool bench_fresh_processes(bench_context *context);

#endif
