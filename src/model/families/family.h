/* Families of models: how their files name sizes and weights, and what their layers consist of.
 * Each family is one file of this folder; families.c lists them. A family that differs from the
 * others only in these facts needs a file and a line in that list. */
#ifndef TSR_MODEL_FAMILIES_FAMILY_H
#define TSR_MODEL_FAMILIES_FAMILY_H

#include <stdbool.h>

#include "tessera/model.h"

/* The keys of config.json. */
typedef struct tsr__config_keys {
    const char *layers, *width, *heads, *kv_heads, *hidden, *context, *norm_epsilon, *activation;
    const char *bias; /* a switch for all biases of layers and norms; NULL: there is none */
} tsr__config_keys;

/* The name of a weight or norm of ours in a Hugging Face file and in a GGUF file, without the
 * ending ".weight" or ".bias". */
typedef struct tsr__weight_name {
    const char *ours, *hf, *gguf;
} tsr__weight_name;

/* Which layers have the sliding window of a configuration. */
typedef enum tsr__windows {
    TSR__WINDOWS_IGNORED = 0,
    TSR__WINDOWS_ALL = 1,     /* all layers */
    TSR__WINDOWS_SWITCHED = 2 /* layers from max_window_layers on, if use_sliding_window is true */
} tsr__windows;

typedef struct tsr__family {
    const char *name;     /* model_type in config.json */
    const char *hf_class; /* the model's class in Hugging Face Transformers */
    const char *gguf;     /* general.architecture */
    /* Several families may have the same name in GGUF files. This one is meant only if the file has
     * a sliding window. */
    bool gguf_needs_window;
    const char *hf_prefix; /* starts all names except that of the head; a file may leave it out */
    const char *hf_block;  /* follows the prefix; the number of a layer comes next */
    const tsr__config_keys *keys;
    const tsr__weight_name *outside, *inside; /* weights outside and inside layers; end in {NULL} */
    tsr_norm_kind norm;
    bool norm_bias;
    bool learned_positions;
    bool tied;             /* the head is the embedding's matrix, if config.json does not say */
    bool hf_transposed;    /* matrices of layers are [in, out] in Hugging Face files */
    bool gguf_interleaved; /* rows of q and k are in the order of TSR_ROPE_ADJACENT in GGUF */
    tsr__windows windows;
    int hidden_per_width; /* the hidden features, in multiples of the width, if config.json does not
                             give their number; 0: it must */
    /* What each layer has if the files do not say: biases, norms of q and k, gate and activation.
     * GGUF files do not name the activation. */
    tsr_model_layer layer;
} tsr__family;

extern const tsr__family tsr__family_llama, tsr__family_mistral, tsr__family_qwen2,
    tsr__family_qwen3, tsr__family_gpt2;

/* What all descendants of Llama have in common (llama.c). */
extern const tsr__config_keys tsr__llama_keys;
extern const tsr__weight_name tsr__llama_outside[], tsr__llama_inside[];
#define TSR__LIKE_LLAMA                                                                            \
    .hf_prefix = "model.", .hf_block = "layers.", .keys = &tsr__llama_keys,                        \
    .outside = tsr__llama_outside, .inside = tsr__llama_inside, .norm = TSR_NORM_RMS

/* Returns the family whose `name` this is, or NULL. */
const tsr__family *tsr__family_by_name(const char *name);
/* Returns the family whose `gguf` this is, or NULL. */
const tsr__family *tsr__family_by_gguf(const char *name, bool has_window);
/* Writes the names of all families, separated by commas, to `text` and returns it. */
char *tsr__family_names(size_t size, char *text);

/* Returns the names of one of our weights, whose name may end in ".weight" or ".bias"; NULL: the
 * family has no such weight. */
const tsr__weight_name *tsr__family_weight(const tsr__family *family, bool inside,
                                           const char *ours);

#endif
