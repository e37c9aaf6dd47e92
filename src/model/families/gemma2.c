/* Gemma 2: norms before and after attention and MLP, a sliding window in every second layer, and
 * limits of scores and logits. Source: Gemma2ForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

const tsr__config_keys tsr__gemma_keys = {
    .layers = "num_hidden_layers",
    .width = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .hidden = "intermediate_size",
    .context = "max_position_embeddings",
    .norm_epsilon = "rms_norm_eps",
    .activation = "hidden_activation",
};

const tsr__weight_name tsr__gemma_inside[] = {
    TSR__GEMMA_NAMES,
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_gemma2 = {
    .name = "gemma2",
    .hf_class = "Gemma2ForCausalLM",
    .gguf = "gemma2",
    TSR__LIKE_GEMMA,
    .window_period = 2,
    .gguf_scale_by_width = 46,
    .usual = {.head_dim = 256, .window = 4096, .query_scalar = 256},
    .layer = {.gated = true, .activation = TSR_ACT_GELU_TANH, .norms = TSR_BLOCK_NORMS_BOTH},
};
