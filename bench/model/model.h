/* tessera bench model: how fast a job processes prompts and generates tokens. Its code is in five
 * files: options and help (model_options.c), generated shapes (shapes.c), measuring (model_run.c),
 * output (model_print.c), and the output of --kernels (kernels_print.c). */
#ifndef TSR_BENCH_MODEL_MODEL_H
#define TSR_BENCH_MODEL_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/report/destination.h"
#include "cli/lib/command.h"
#include "cli/lib/model.h"
#include "cli/lib/stages.h"
#include "tessera/tessera.h"
#include "tool_seam.h"

extern const cli_command bench_model_command;

/* A model that can be generated. */
typedef struct bench_model_shape {
    const char *name;
    tsr_model_config config;
} bench_model_shape;

/* Returns the shape with this name, or NULL. */
const bench_model_shape *bench_model_shape_find(const char *name);
/* For cli_option.read: finds the shape with the name `text`. `user` points to a pointer to a shape.
 */
bool bench_model_read_shape(void *user, const char *text, char *problem, size_t size);

typedef struct bench_model_options {
    const char *path; /* the model's file or folder; NULL: a generated model */
    const bench_model_shape *shape;
    tsr_dtype type; /* the dtype of a generated model's matrices */
    tsr_dtype dtype, cache_dtype;
    int64_t prompt_tokens, generate, repetitions, prefill, sequences;
    cli_stages stages;
    cli_draft draft;
    bool allow_int8, kernels;
    tsr_precision precision;
    double timeout;
    const char *device;
    bench_destination to;
} bench_model_options;

/* What a rank reports about itself, as it is sent to rank 0. */
typedef struct bench_model_rank {
    char device[256];
    int64_t heads, kv_heads;
    int first_layer, layers;
    uint64_t weight_bytes, table_bytes, open_ns;
    double memory; /* the bandwidth of its memory (a ceiling: bench/ceilings/ceilings.h) in bytes
                      per second, measured on all ranks at the same time */
} bench_model_rank;

/* One of the tests. Names such as pp512, tg128 and 4xtg128 mean: process a prompt of 512 tokens,
 * generate 128 tokens, and generate 128 tokens in each of 4 sequences. With --draft, tg128+draft
 * generates with drafts. */
typedef struct bench_model_test {
    char name[32];
    bool generates;
    int64_t tokens; /* the number of tokens of all sequences together */
    int sequences;
    int count;
    double *seconds;       /* [count]: the time of each repetition, measured by rank 0 */
    double *communication; /* [ranks]: the fraction of the time in which a rank waited for others */
    /* Of rank 0, for a step that generates a token in each sequence: batches submitted to the
     * device, waits of the host, and those after which the device had no work left */
    double submissions, waits, idle_waits;
    bool drafts;                 /* generates with --draft */
    tsr_generator_stats drafted; /* of rank 0, of all repetitions and the one that is not timed */
} bench_model_test;

#define BENCH_MODEL_TESTS 3

/* The commands of one pass through the model, as --kernels prints them. */
typedef struct bench_model_kernels {
    char name[64];
    tsr__profile profile;
} bench_model_kernels;

typedef struct bench_model_report {
    char name[256];
    const tsr_model_config *config;
    tsr_dtype dtype;     /* the dtype in which most weights are kept */
    uint64_t parameters; /* the number of parameters of the full model */
    int ranks;
    bench_model_rank *rank; /* [ranks] */
    int test_count;
    bench_model_test tests[BENCH_MODEL_TESTS];
    int kernels_count; /* 0 without --kernels */
    bench_model_kernels kernels[BENCH_MODEL_TESTS];
} bench_model_report;

/* Opens the model on all ranks, verifies it, measures, and prints on rank 0. Returns an exit
 * code. */
int bench_model_run(bench_model_options *options);

/* Results of a test, computed from its repetitions. */
typedef struct bench_model_figures {
    double mean, deviation; /* tokens per second; the deviation of a single repetition is 0 */
    double communication;   /* the fraction of the time in which a rank waited for others, averaged
                               over   the ranks */
    /* `weights`: bytes of weights that all ranks read per second while they generate; each weight
     * is read once in a step. `memory`: `weights` divided by the sum of the ranks' memory
     * bandwidths. Both are 0 for prompts, which read weights once for many tokens. */
    double weights, memory;
} bench_model_figures;
bench_model_figures bench_model_summarize(const bench_model_report *report,
                                          const bench_model_test *test);

/* Write the kernels of rank 0: tables after those of the rates, or a member of the JSON document.
 */
void bench_model_write_kernels(const bench_model_report *report, bench_format format, FILE *out);
void bench_model_add_kernels(json_t *document, const bench_model_report *report);

void bench_model_write(const bench_model_report *report, bench_format format, FILE *out);

#endif
