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
    {"norm1", "input_layernorm", "attn_norm"},
    {"attention.q", "self_attn.q_proj", "attn_q"},
    {"attention.k", "self_attn.k_proj", "attn_k"},
    {"attention.v", "self_attn.v_proj", "attn_v"},
    {"attention.q_norm", "self_attn.q_norm", "attn_q_norm"},
    {"attention.k_norm", "self_attn.k_norm", "attn_k_norm"},
    {"attention.o", "self_attn.o_proj", "attn_output"},
    {"norm2", "post_attention_layernorm", "ffn_norm"},
    {"mlp.gate", "mlp.gate_proj", "ffn_gate"},
    {"mlp.up", "mlp.up_proj", "ffn_up"},
    {"mlp.down", "mlp.down_proj", "ffn_down"},
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
