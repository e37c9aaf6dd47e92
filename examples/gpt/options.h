/* The command line of gpt, and the runs that other programs have recorded for comparison. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include "common/common.h"

#define GPT_MAX_RATES 64

/* In what proportions the ranks of a group divide something. */
typedef struct gpt_rates {
    int count; /* 0: evenly */
    double values[GPT_MAX_RATES];
} gpt_rates;

typedef struct gpt_options {
    const char *text;
    const char *config, *init, *offsets; /* files of a recorded run; NULL: none */
    const char *log, *save;              /* NULL: none */
    /* the model */
    bool is_llama;
    int layers, heads, kv_heads, head_dim, width, inner, block, experts, experts_used;
    bool sigmoid; /* experts are chosen by sigmoids and biases */
    double epsilon, theta, route_scale;
    tsr_dtype dtype;
    bool recompute;
    /* the training */
    int batch, accumulate, steps, warmup, decay, eval_every;
    int64_t seed;
    double learning_rate, min_learning_rate, beta1, beta2, adam_epsilon, weight_decay, clip;
    double balance, bias_rate; /* of experts */
    /* the ranks */
    int ranks, data, tensor, context, stages;
    gpt_rates tensor_rates, context_rates;
    const char *strategy, *device;
    bool experts_over_data;
    double timeout;
} gpt_options;

/* Reads the command line, and the recorded run --config, whose values its options replace. Returns
 * an exit status, −1 to go on. */
int gpt_options_read(int argc, char **argv, gpt_options *out);

/* Reads where the windows of a recorded run start: offsets[steps · windows], in memory of malloc.
 * Returns false, with a sentence on standard error, unless there are `windows` in each of `steps`
 * steps, all with starts from 0 to `last`. */
bool gpt_offsets_read(const char *path, int steps, int windows, int64_t last, int64_t **out);

#endif
