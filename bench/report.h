/* What a run's rows look like in the end. */
#ifndef TSR_BENCH_REPORT_H
#define TSR_BENCH_REPORT_H

#include "bench/bench.h"

#define BENCH_SCHEMA "tessera.bench"
#define BENCH_SCHEMA_VERSION 1

void bench_report_text(const bench_context *context, const bench *what);
void bench_report_json(const bench_context *context, const bench *what);

const char *bench_unit_name(bench_unit unit);

#endif
