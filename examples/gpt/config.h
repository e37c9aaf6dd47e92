/* The description of a model and its training, and the JSON files that contain it. */
#ifndef GPT_CONFIG_H
#define GPT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/tessera.h"

typedef enum gpt_style {
    GPT_STYLE_GPT2 = 0, /* learned positions, layer norm, GELU; the head is the embedding */
    GPT_STYLE_LLAMA = 1 /* rotary positions, RMS norm, SwiGLU, grouped queries */
} gpt_style;

/* The model, in the library's description, and how much of its context is used. It points into
 * itself, so it must not be copied. */
typedef struct gpt_config {
    tsr_model_config model;
    tsr_model_layer layer;           /* of a new model, whose layers are all equal */
    const tsr_model_layer *kinds[1]; /* to `layer` */
    tsr_rope_params rope;            /* of `layer` */
    tsr_model_experts experts;       /* of `layer`, if it has experts */
    int block;            /* the most tokens that attention sees; at most the model's context */
    tsr_model_file *file; /* from which the model was read; NULL: none */
} gpt_config;

typedef struct gpt_training {
    int batch;      /* windows in a micro-batch, over all data-parallel ranks */
    int accumulate; /* micro-batches in a step, whose gradients are added */
    int steps;
    int64_t seed;
    double learning_rate, min_learning_rate;
    int warmup_steps, decay_steps;
    double beta1, beta2, eps, weight_decay;
    double clip;      /* the largest norm of the gradient; 0: it is not clipped */
    double balance;   /* the factor of the loss that balances the loads of experts */
    double bias_rate; /* how much biases for the choice of experts change in a step */
    double dropout;
} gpt_training;

#define GPT_MAX_STAGES 64

/* How blocks are divided over the stages of a pipeline. */
typedef struct gpt_stages {
    enum {
        GPT_STAGES_EVEN = 0,
        GPT_STAGES_RATES = 1, /* in proportion to the stages' speeds, which are measured */
        GPT_STAGES_GIVEN = 2
    } kind;
    int count;
    int given; /* how many numbers of blocks are given */
    int blocks[GPT_MAX_STAGES];
} gpt_stages;

#define GPT_MAX_RATES 64

/* In what proportions the ranks of a group divide something. */
typedef struct gpt_rates {
    int count; /* 0: evenly */
    double values[GPT_MAX_RATES];
} gpt_rates;

/* Where the windows of a recorded run start: offsets[step * batch + row]. */
typedef struct gpt_offsets {
    int64_t *values;
    int64_t steps;
    int batch;
} gpt_offsets;

const char *gpt_style_name(gpt_style style);

/* Describes everything that a model's results depend on: "gpt2, 4 blocks, …". */
void gpt_config_describe(const gpt_config *config, size_t size, char *text);

/* Sets the defaults of a style. The vocabulary has no default. Call gpt_config_finish()
 * afterwards. */
void gpt_config_default(gpt_style style, gpt_config *out);
void gpt_config_finish(gpt_config *config);
gpt_style gpt_config_style(const gpt_config *config);
/* Returns the first kind of layer that has attention, or, if none has, the first one. */
const tsr_model_layer *gpt_config_layer(const gpt_config *config);
gpt_training gpt_training_default(void);

/* Replaces MLPs by mixtures of `count` experts, with the MLP's size, of which a token uses `used`.
 * With `biased`, experts are chosen as in DeepSeek-V3: by sigmoids and biases that training changes
 * against unequal loads; otherwise as in Qwen3-MoE. The style must be llama. */
void gpt_config_add_experts(gpt_config *config, int count, int used, bool biased);

/* Gives biases to all norms and linear layers except for the head. */
void gpt_config_add_biases(gpt_config *config);

/* Computes the sizes of a new model that follow from others. Call it after gpt_config_check(). */
void gpt_config_complete(gpt_config *config);
/* Checks sizes that depend on each other. On failure returns false with a sentence in `error`. */
bool gpt_config_check(const gpt_config *config, char *error, size_t error_size);

/* Reads a recorded run ({"config": …, "optimizer": …}) or a model's config.json as Hugging Face
 * writes it. Members that a recorded run lacks are left unchanged. On failure this and the
 * functions below return false with a sentence in `error`. */
bool gpt_config_read(const char *path, gpt_config *config, gpt_training *training, char *error,
                     size_t error_size);
/* Opens a given model: a folder of Hugging Face's format. The block is the model's context, but at
 * most `most_block`. */
bool gpt_config_open(const char *folder, int most_block, gpt_config *config, char *error,
                     size_t error_size);
/* Reads the member "offsets" of a recorded run. */
bool gpt_offsets_read(const char *path, gpt_offsets *out, char *error, size_t error_size);
void gpt_offsets_free(gpt_offsets *offsets);

#endif
