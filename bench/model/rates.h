/* tessera bench rates: how fast each rank computes, while all ranks compute, for tessera plan
 * --cluster. Its code is in two files: options and output (rates.c), and measuring
 * (rates_run.c). */
#ifndef TSR_BENCH_MODEL_RATES_H
#define TSR_BENCH_MODEL_RATES_H

#include <stdint.h>

#include "bench/model/model.h"

extern const cli_command bench_rates_command;

/* The most kinds of passes that are measured. The rows of a pass (the tokens that go through the
 * model together) are 1, 2, 4, … for generating with that many sequences, and, in the last one, the
 * tokens of a prompt. */
#define BENCH_RATES_PASSES 12

typedef struct bench_rates_options {
    const char *path; /* the model's file or folder; NULL: a model is generated from `shape` */
    const bench_model_shape *shape;
    tsr_dtype type; /* the dtype of the matrices */
    int64_t sequences, prompt;
    double seconds; /* the time for measuring one kind of pass of one model */
    double timeout;
    const char *device;
    bench_destination to;
} bench_rates_options;

/* The times, in seconds, of which the time of a pass of `rows` rows consists: pass + layer · number
 * of layers + element · elements of the layers' matrices + head · elements of the head's matrix.
 * Only one row of a prompt goes through the head. */
typedef struct bench_rates_pass {
    int64_t rows;
    double pass, layer, element, head;
} bench_rates_pass;

/* What a rank has measured, as it is sent to rank 0. */
typedef struct bench_rates_rank {
    char device[256];
    double collective; /* how many seconds longer an all-reduce of a tensor takes than one of as
                          much host memory; 0 for a single rank */
    bench_rates_pass pass[BENCH_RATES_PASSES];
} bench_rates_rank;

typedef struct bench_rates_report {
    char name[256];
    tsr_model_config config;
    tsr_dtype type;
    double element_bytes; /* bytes per element of the layers' matrices */
    int ranks, passes;
    bench_rates_rank *rank; /* [ranks] */
} bench_rates_report;

/* Measures on all ranks, and prints on rank 0. Returns an exit code. */
int bench_rates_run(bench_rates_options *options);

void bench_rates_write(const bench_rates_report *report, bench_format format, FILE *out);

#endif
