/* The memory of a process that reads an epoch in PyTorch's order. */
#ifndef TSR_BENCH_CASES_SAMPLE_MEMORY_H
#define TSR_BENCH_CASES_SAMPLE_MEMORY_H

#include "bench/harness/bench.h"

/* The process reads the part of one rank: 1/SAMPLE_RANKS of a dataset of SAMPLE_ITEMS items. */
#define SAMPLE_ITEMS 10000000
#define SAMPLE_RANKS 8
#define SAMPLE_RANK 3

/* Measures the peak memory of a process that only prints this part of an epoch. */
bool bench_sample_memory(bench_context *context, double *peak_bytes);

#endif
