/* The table of architectures: how their files name sizes and weights, and what distinguishes their
 * layers. To support a family of models that differs only in these, add a row to the table. */
#ifndef TSR_MODEL_ARCHITECTURE_H
#define TSR_MODEL_ARCHITECTURE_H

#include <stdbool.h>

#include "tessera/model.h"

/* The keys of config.json. */
typedef struct tsr__config_keys {
    const char *layers, *width, *heads, *kv_heads, *hidden, *context, *norm_epsilon, *activation;
} tsr__config_keys;

/* The name of a weight or norm of ours in a Hugging Face file and in a GGUF file, without the
 * ending ".weight" or ".bias". */
typedef struct tsr__weight_name {
    const char *ours, *hf, *gguf;
} tsr__weight_name;

typedef struct tsr__architecture {
    const char *name;      /* model_type in config.json */
    const char *hf_class;  /* the model's class in Hugging Face Transformers */
    const char *gguf;      /* general.architecture; several rows may have the same value */
    const char *hf_prefix; /* starts all names except that of the head; a file may leave it out */
    const char *hf_block;  /* follows the prefix; the number of a layer comes next */
    const tsr__config_keys *keys;
    const tsr__weight_name *outside, *inside; /* weights outside and inside layers; end in {NULL} */
    tsr_norm_kind norm;
    bool norm_bias;
    bool gated;
    bool learned_positions;
    bool qk_norm;
    bool qkv_bias, output_bias, mlp_bias; /* which biases exist if config.json does not say */
    bool tied;                 /* the head is the embedding's matrix, if config.json does not say */
    bool has_window;           /* the sliding_window of config.json has an effect */
    bool window_needs_switch;  /* sliding_window has an effect only if use_sliding_window is true */
    bool hf_transposed;        /* matrices of layers are [in, out] in Hugging Face files */
    bool gguf_interleaved;     /* rows of q and k are in the order of TSR_ROPE_ADJACENT in GGUF */
    tsr_activation activation; /* the activation of models in GGUF files, which do not name one */
} tsr__architecture;

/* Returns the row whose `name` this is, or NULL. */
const tsr__architecture *tsr__architecture_by_name(const char *name);
/* Returns the first row whose `gguf` this is, or NULL. */
const tsr__architecture *tsr__architecture_by_gguf(const char *name);
/* Writes the names of all architectures, separated by commas, to `text` and returns it. */
char *tsr__architecture_names(size_t size, char *text);

#endif
