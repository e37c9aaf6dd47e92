/* Makes small models with random weights of each family: their files, and their logits in double
 * precision, computed independently of the library. */
#ifndef TESTS_MODEL_MADE_H
#define TESTS_MODEL_MADE_H

#include <stdbool.h>
#include <stdint.h>

#define MADE_MOST_TENSORS 64

typedef enum made_scaling { MADE_NONE, MADE_LINEAR, MADE_LLAMA3, MADE_YARN } made_scaling;

typedef struct made_family {
    const char *type; /* the member model_type */
    bool learned_positions, layer_norm, gated, qk_norm, tied;
    bool qkv_bias, output_bias, mlp_bias;
    bool transposed, fused; /* Hugging Face files have matrices as [in, out]; q, k and v as one */
    int window, window_from;
    int value_dim; /* 0: MADE_HEAD_DIM; at most MADE_MOST_VALUES */
    made_scaling scaling;
    const char *json; /* further members of config.json, after a leading comma */
} made_family;

enum {
    MADE_LAYERS = 2,
    MADE_WIDTH = 32,
    MADE_HEADS = 4,
    MADE_KV_HEADS = 2,
    MADE_HEAD_DIM = 8,
    MADE_MOST_VALUES = 12,
    MADE_HIDDEN = 48,
    MADE_VOCABULARY = 40,
    MADE_CONTEXT = 64
};

/* A tensor with the name, the shape and the order of values of a Hugging Face file. */
typedef struct made_tensor {
    char name[96];
    int ndim;
    int64_t shape[2];
    float *values;
} made_tensor;

typedef struct made_model {
    made_family family;
    int kv_heads;
    int count;
    made_tensor tensors[MADE_MOST_TENSORS];
    char folder[64];
} made_model;

extern const made_family made_families[];
extern const int made_family_count;

/* Draws the weights, and creates a folder for files. */
void made_init(made_model *model, const made_family *family, uint64_t seed);
/* Removes the folder, and frees the weights. */
void made_finish(made_model *model);

/* Write the files: a folder of Hugging Face, or a GGUF file in 1 to 3 parts. Return the path, which
 * is valid until the next call. */
const char *made_write_hf(made_model *model);
const char *made_write_gguf(made_model *model, int parts);

/* Returns the tensor with this name, such as "layers.0.mlp.up_proj.weight" (without the prefix that
 * it has in files), or NULL. */
made_tensor *made_find(made_model *model, const char *name);
void made_remove(made_model *model, const char *name);

/* Computes the logits [count, MADE_VOCABULARY] that follow each token. */
void made_logits(made_model *model, int count, const int32_t *ids, double *logits);

#endif
