/* tessera bench --tune: the kernels that matrix products take on each device, chosen by measuring.
 */
#ifndef TSR_BENCH_TUNE_TUNE_H
#define TSR_BENCH_TUNE_TUNE_H

#include <stdio.h>

#include "bench/tune/search.h"

/* For one measurement of one kernel on one product, where the command line does not say. */
#define BENCH_TUNE_SECONDS 0.2

typedef struct tune_device {
    int device_place;
    double seconds;
    char path[1024]; /* where its tuning is; empty: nothing was stored */
} tune_device;

typedef struct tune_report {
    int device_count, result_count;
    tune_device *devices;
    tune_result *results;
} tune_report;

/* Tunes every usable device, or the one that --device names, and stores what won after each class.
 */
bool bench_tune(bench_context *context, tune_report *out);
void bench_tune_finish(tune_report *report);

#define TUNE_SCHEMA "tessera.tuning"
#define TUNE_SCHEMA_VERSION 1
void bench_tune_text(const bench_context *context, const tune_report *report);
void bench_tune_json(const bench_context *context, const tune_report *report, FILE *out);

#endif
