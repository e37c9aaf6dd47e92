/* tessera bench --tune: chooses the kernels of matrix products on each device by measuring. */
#ifndef TSR_BENCH_TUNE_TUNE_H
#define TSR_BENCH_TUNE_TUNE_H

#include <stdio.h>

#include "bench/report/destination.h"
#include "bench/tune/search.h"

/* The default time for one measurement of one kernel on one product. */
#define BENCH_TUNE_SECONDS 0.2

typedef struct tune_device {
    int device_place;
    double seconds;
    char path[1024]; /* the file in which its tuning was stored; empty: nothing was stored */
} tune_device;

typedef struct tune_report {
    int device_count, result_count;
    tune_device *devices;
    tune_result *results;
} tune_report;

/* Tunes every usable device, or the one that --device names. Stores the winner of each class of
 * products in the device's tuning file. */
bool bench_tune(bench_context *context, tune_report *out);
void bench_tune_finish(tune_report *report);

#define TUNE_SCHEMA "tessera.tuning"
#define TUNE_SCHEMA_VERSION 1
void bench_tune_write(const bench_context *context, const tune_report *report, bench_format format,
                      FILE *out);

#endif
