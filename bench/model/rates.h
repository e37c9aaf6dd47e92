/* tessera bench rates: how fast each rank computes, while all ranks compute, for tessera plan
 * --cluster. Its code is in four files: options (rates.c), measuring (rates_run.c), what follows
 * from the measured times (rates_fit.c), and output (rates_print.c). */
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
    bool experts;   /* measure experts by themselves */
    double seconds; /* the time for measuring one kind of pass of one model */
    double timeout;
    cli_stages stages; /* only its memory is used */
    const char *device;
    bench_destination to;
} bench_rates_options;

/* The times, in seconds, of which the time of a pass of `rows` rows consists: pass + layer · number
 * of layers + element · elements of the layers' matrices, and with the head also head +
 * head_element · elements of the head's matrix. Only one row of a prompt goes through the head. If
 * experts are measured, expert_element counts for those of their elements that a row uses, and
 * element for the others; otherwise expert_element is 0. */
typedef struct bench_rates_pass {
    int64_t rows;
    double pass, layer, element, head, head_element, expert_element;
} bench_rates_pass;

/* The models whose times are compared. Layers are compared in models with few and many layers, of
 * the full width or of the part of one rank. All have the whole head, so that no model is small
 * enough for weights to stay in a processor's cache. The head is compared with the part of one
 * rank. Few and many layers with hardly any elements, without a head, give the time of a pass. The
 * models with a part of the experts only are measured with --experts. */
enum {
    BENCH_RATES_WHOLE,
    BENCH_RATES_DEEP_WHOLE,
    BENCH_RATES_PART,
    BENCH_RATES_DEEP_PART,
    BENCH_RATES_PART_HEAD,
    BENCH_RATES_EMPTY,
    BENCH_RATES_DEEP_EMPTY,
    BENCH_RATES_EXPERTS,
    BENCH_RATES_DEEP_EXPERTS,
    BENCH_RATES_MODELS
};
#define BENCH_RATES_FEW_LAYERS 1
#define BENCH_RATES_MANY_LAYERS 5

/* The measured times of a rank's passes, in seconds. */
typedef struct bench_rates_times {
    char device[256];
    double seconds[BENCH_RATES_MODELS][BENCH_RATES_PASSES];
} bench_rates_times;

/* The numbers of elements of a layer's matrices, and of the matrix of a head. `experts` are the
 * elements of a layer's experts that a row uses, whole and in the models with a part of the layer
 * or of the experts; 0: experts are not measured by themselves. */
typedef struct bench_rates_sizes {
    double layer, part_layer, head, part_head;
    double experts, part_experts;
} bench_rates_sizes;

/* What a rank has measured, as it is sent to rank 0. */
typedef struct bench_rates_rank {
    char device[256];
    /* How many seconds longer a collective of tensors takes than one of as much host memory: of all
     * ranks, and of the ranks of its host. 0 for a single rank. */
    double collective, host_collective;
    bench_rates_pass pass[BENCH_RATES_PASSES];
} bench_rates_rank;

typedef struct bench_rates_report {
    char name[256];
    const tsr_model_config *config;
    tsr_dtype type;
    double element_bytes; /* bytes per element of the layers' matrices */
    bool experts;         /* they were measured by themselves */
    int ranks, passes;
    bench_rates_rank *rank; /* [ranks] */
} bench_rates_report;

/* Measures on all ranks, and prints on rank 0. Returns an exit code. */
int bench_rates_run(bench_rates_options *options);

/* Replaces the times of `rank` by the mean over those ranks of times[ranks] that have a device of
 * the same name and whose times, added up over all models and `passes` passes, differ from this
 * rank's by at most an eighth. Equal ranks differ by noise, which the differences that
 * bench_rates_fit computes would enlarge. */
void bench_rates_average(int ranks, const bench_rates_times *times, int rank, int passes,
                         bench_rates_times *out);

/* Computes the times of pass[passes], whose rows are set, from the measured times. Noise can make
 * no number negative. Returns false if a time with many layers is not longer than the one with few
 * by at least a thousandth for each layer: then *noisy is the first pass of which that is so. */
bool bench_rates_fit(const bench_rates_times *times, const bench_rates_sizes *sizes, int passes,
                     bench_rates_pass *pass, int *noisy);

/* Returns how long a rank computes for a pass of a model with this number of layers, of which it
 * has the part of one of `ranks` ranks. */
double bench_rates_part_seconds(const bench_rates_pass *pass, const bench_rates_sizes *sizes,
                                int layers, int ranks);

void bench_rates_write(const bench_rates_report *report, bench_format format, FILE *out);

#endif
