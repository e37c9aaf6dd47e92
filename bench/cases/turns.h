/* Measures how the ranks of a host share its processors and its memory: part of tessera bench
 * link. */
#ifndef TSR_BENCH_CASES_TURNS_H
#define TSR_BENCH_CASES_TURNS_H

#include "bench/harness/bench.h"

#define TURNS_SAMPLES 30
#define TURNS_MAX_SIZES 8

typedef struct turns_figures {
    int64_t ranks, processors; /* the numbers of ranks and of processors of the host */
    /* If ranks share a processor, they take turns: a turn is the time for which one rank runs
     * before the next one does, and in an all-reduce of one number each rank has one turn. awake_ns
     * are times of turns while the waiting ranks poll, asleep_ns after they have gone to sleep.
     * They mean something only on the first rank of a host. No samples if each rank of the host has
     * a processor of its own. */
    int samples;
    double awake_ns[TURNS_SAMPLES], asleep_ns[TURNS_SAMPLES];
    int64_t sum, wanted; /* the sum that the all-reduces have given, and the expected one */
    /* How long all-reduces of each size take, for the row "memory"; no samples if the host has one
     * rank. */
    int memory_samples[TURNS_MAX_SIZES];
    double memory_ns[TURNS_MAX_SIZES][TURNS_SAMPLES];
} turns_figures;

/* What to measure: all-reduces of the sizes `bytes`, in ascending order, each for `seconds`. */
typedef struct turns_plan {
    double seconds;
    int size_count;
    const uint64_t *bytes;
} turns_plan;

/* Measures turns and memory. All ranks of `comm` must call it; all hosts measure at the same
 * time. */
TSR_NODISCARD tsr_status turns_measure(tsr_comm *comm, const turns_plan *plan, turns_figures *out);

/* Adds the rows of a host from the figures of its first rank: "turn" if its ranks share processors,
 * and "memory" if it has several ranks. */
bool turns_add_rows(bench_context *context, int host, const turns_plan *plan,
                    const turns_figures *figures);

#endif
