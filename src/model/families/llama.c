/* Llama 2 and 3, and the many models that Hugging Face Transformers opens with the same class.
 * Sources: LlamaForCausalLM in Hugging Face Transformers, and the names of tensors in llama.cpp. */
#include "model/families/family.h"

const tsr__config_keys tsr__llama_keys = {
    .layers = "num_hidden_layers",
    .width = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .hidden = "intermediate_size",
    .context = "max_position_embeddings",
    .norm_epsilon = "rms_norm_eps",
    .activation = "hidden_act",
};

const tsr__weight_name tsr__llama_outside[] = {
    {"embedding", "embed_tokens", "token_embd"},
    {"norm", "norm", "output_norm"},
    {"head", "lm_head", "output"},
    {NULL, NULL, NULL},
};

const tsr__weight_name tsr__llama_inside[] = {
    TSR__LLAMA_ATTENTION_NAMES,
    {"norm2", "post_attention_layernorm", "ffn_norm"},
    TSR__LLAMA_MLP_NAMES,
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_llama = {
    .name = "llama",
    .hf_class = "LlamaForCausalLM",
    .gguf = "llama",
    TSR__LIKE_LLAMA,
    .gguf_interleaved = true,
    .layer = {.gated = true, .activation = TSR_ACT_SILU},
};
