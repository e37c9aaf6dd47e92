/* tessera bench compare: lists what became slower between two runs. */
#ifndef TSR_BENCH_COMPARE_COMPARE_H
#define TSR_BENCH_COMPARE_COMPARE_H

#include "cli/lib/command.h"

extern const cli_command bench_compare_command;

/* Exit codes, which docs/tessera.1 documents. BENCH_SLOWER: a result became slower or failed.
 * BENCH_MISSING: a result is missing. */
#define BENCH_SLOWER 3
#define BENCH_MISSING 4

#endif
