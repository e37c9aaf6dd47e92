/* tessera bench compare: lists what became slower between two runs. */
#ifndef TSR_BENCH_COMPARE_COMPARE_H
#define TSR_BENCH_COMPARE_COMPARE_H

#include "cli/lib/command.h"

extern const cli_command bench_compare_command;

/* Exit codes. BENCH_SLOWER: a result became slower or failed. The other: a result is missing.
 * docs/tessera.1 documents them. */
#define BENCH_SLOWER 3
#define BENCH_MISSING 4

#endif
