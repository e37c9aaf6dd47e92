/* Phi 3, 3.5, 4 and 4 mini: Llama with q, k and v in one matrix and gate and up in another, and the
 * frequency scaling LongRoPE. llama.cpp ignores the sliding window of some of these models, and so
 * does this library. Source: Phi3ForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__weight_name inside[] = {
    {"norm1", "input_layernorm", "attn_norm"},
    {"attention.q", "self_attn.qkv_proj", "attn_qkv"},
    {"attention.k", "self_attn.qkv_proj", "attn_qkv"},
    {"attention.v", "self_attn.qkv_proj", "attn_qkv"},
    {"attention.o", "self_attn.o_proj", "attn_output"},
    {"norm2", "post_attention_layernorm", "ffn_norm"},
    {"mlp.gate", "mlp.gate_up_proj", "ffn_up"},
    {"mlp.up", "mlp.gate_up_proj", "ffn_up"},
    {"mlp.down", "mlp.down_proj", "ffn_down"},
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_phi3 = {
    .name = "phi3",
    .hf_class = "Phi3ForCausalLM",
    .gguf = "phi3",
    TSR__LIKE_LLAMA_BUT(inside),
    .layer = {.gated = true, .activation = TSR_ACT_SILU},
};
