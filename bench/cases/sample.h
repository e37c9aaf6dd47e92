/* What the parts of `tessera bench sample` share. */
#ifndef TSR_BENCH_CASES_SAMPLE_H
#define TSR_BENCH_CASES_SAMPLE_H

#include "bench/harness/bench.h"

#define BENCH_CHUNK 4096

typedef struct bench_reader {
    tsr_sampler *sampler;
    int64_t epoch;
    int64_t indices[BENCH_CHUNK];
} bench_reader;

/* Times tsr_sampler_fill of BENCH_CHUNK indices. */
bool bench_read_chunks(bench_context *context, bench_row *row, bench_reader *own);

/* Rows for drawing with replacement from so many weights. */
bool bench_weighted(bench_context *context, uint64_t count);

#endif
