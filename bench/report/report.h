/* Prints the results of a run. */
#ifndef TSR_BENCH_REPORT_REPORT_H
#define TSR_BENCH_REPORT_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "bench/harness/bench.h"
#include "bench/report/destination.h"

#define BENCH_SCHEMA "tessera.bench"
#define BENCH_SCHEMA_VERSION 2

/* A run gets a warning if other processes used more than this fraction of all CPUs, or if more than
 * this fraction of its results is noisy. */
#define BENCH_BUSY_SHARE 0.1
#define BENCH_NOISY_SHARE 0.25

/* Prints the results as tables; `what` is NULL for a complete run. */
void bench_report_text(const bench_context *context, const bench *what);
/* Returns the results as the JSON document that docs/bench.schema.json describes. The caller owns
 * it. */
json_t *bench_report_document(const bench_context *context, const bench *what);
/* Writes the results in any format. Markdown and CSV are what `tessera bench report` makes of the
 * document. */
void bench_report_write(const bench_context *context, const bench *what, bench_format format,
                        FILE *out);

const char *bench_unit_name(bench_unit unit);

/* Returns the number of noisy results. A result is noisy if the middle 80 % of its samples spread
 * over more than 20 % of the median. */
int bench_noisy_rows(const bench_context *context);

#define BENCH_WARNINGS 4
#define BENCH_WARNING_SIZE 160
/* Writes warnings, each a sentence that says why the results may be wrong. Returns their number. */
int bench_warnings(const bench_context *context, char text[BENCH_WARNINGS][BENCH_WARNING_SIZE]);

#endif
