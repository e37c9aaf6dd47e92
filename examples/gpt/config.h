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

typedef struct gpt_config {
    gpt_style style;
    int layers, heads, kv_heads;
    int width;   /* features of a token between blocks; a multiple of heads */
    int inner;   /* hidden features of the MLP */
    int block;   /* the most tokens that attention sees */
    int context; /* positions that a given model was made for; 0: block */
    int vocabulary;
    double norm_eps;
    tsr_activation activation; /* of the MLP */
    bool tied;                 /* the head is the embedding */
    /* Which layers have biases: q, k and v; the output of attention; those of the MLP. */
    bool qkv_bias, output_bias, mlp_bias;
    /* GPT-2 only: */
    bool norm_bias; /* norms have biases */
    /* Llama only: */
    int head_dim;         /* features of a head; 0: width / heads */
    bool qk_norm;         /* q and k are normalised, as in Qwen3 */
    int64_t window;       /* as in tsr_attention_params, as in Mistral; 0: none */
    tsr_rope_params rope; /* rotary_dim is not used: all features of a head are rotated */
} gpt_config;

typedef struct gpt_training {
    int batch;      /* windows in a micro-batch, over all data-parallel ranks */
    int accumulate; /* micro-batches in a step, whose gradients are added */
    int steps;
    int64_t seed;
    double learning_rate, min_learning_rate;
    int warmup_steps, decay_steps;
    double beta1, beta2, eps, weight_decay;
    double clip; /* the largest norm of the gradient; 0: it is not clipped */
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

#define GPT_MAX_TENSOR 64

/* In what proportions the ranks of a tensor-parallel group divide the model. */
typedef struct gpt_tensor_rates {
    int count; /* 0: evenly */
    double values[GPT_MAX_TENSOR];
} gpt_tensor_rates;

/* Where the windows of a recorded run start: offsets[step * batch + row]. */
typedef struct gpt_offsets {
    int64_t *values;
    int64_t steps;
    int batch;
} gpt_offsets;

const char *gpt_style_name(gpt_style style);

/* Describes everything that a model's results depend on: "gpt2, 4 blocks, …". */
void gpt_config_describe(const gpt_config *config, size_t size, char *text);

/* Returns the defaults of a style. The vocabulary has no default. */
gpt_config gpt_config_default(gpt_style style);
gpt_training gpt_training_default(void);

/* Returns the number of features of a head. */
int gpt_config_head_dim(const gpt_config *config);
/* Returns the number of learned positions of GPT-2: the context, of which a training may use only
 * the first `block`. */
int gpt_config_positions(const gpt_config *config);
/* Gives biases to all norms and linear layers except for the head. */
void gpt_config_add_biases(gpt_config *config);

/* Checks sizes that depend on each other. On failure returns false with a sentence in `error`. */
bool gpt_config_check(const gpt_config *config, char *error, size_t error_size);

/* Reads a recorded run ({"config": …, "optimizer": …}) or a model's config.json as Hugging Face
 * writes it. Members that the file lacks are left unchanged. On failure this and the functions
 * below return false with a sentence in `error`. */
bool gpt_config_read(const char *path, gpt_config *config, gpt_training *training, char *error,
                     size_t error_size);
/* Reads config.json of a folder that holds a model of Hugging Face: Llama, Mistral, Qwen2, Qwen3 or
 * GPT-2, with everything that the model's results depend on. The block is the model's context, but
 * at most `most_block`. */
bool gpt_config_read_model(const char *folder, int most_block, gpt_config *config, char *error,
                           size_t error_size);
/* Reads the member "offsets" of a recorded run. */
bool gpt_offsets_read(const char *path, gpt_offsets *out, char *error, size_t error_size);
void gpt_offsets_free(gpt_offsets *offsets);

/* Writes config.json with Hugging Face's names. `dtype` is that of the weights. */
bool gpt_config_write(const char *path, const gpt_config *config, tsr_dtype dtype, char *error,
                      size_t error_size);
/* Copies a model's config.json, with another dtype of the weights. */
bool gpt_config_copy(const char *from, const char *to, tsr_dtype dtype, char *error,
                     size_t error_size);

#endif
