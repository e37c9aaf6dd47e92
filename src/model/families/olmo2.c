/* OLMo 2: Llama with norms after attention and MLP instead of before, and norms of all of q and of
 * all of k. Source: Olmo2ForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

const tsr__weight_name tsr__olmo2_inside[] = {
    {"attention.q", "self_attn.q_proj", "attn_q"},
    {"attention.k", "self_attn.k_proj", "attn_k"},
    {"attention.v", "self_attn.v_proj", "attn_v"},
    {"attention.q_norm", "self_attn.q_norm", "attn_q_norm"},
    {"attention.k_norm", "self_attn.k_norm", "attn_k_norm"},
    {"attention.o", "self_attn.o_proj", "attn_output"},
    {"post_norm1", "post_attention_layernorm", "post_attention_norm"},
    {"mlp.gate", "mlp.gate_proj", "ffn_gate"},
    {"mlp.up", "mlp.up_proj", "ffn_up"},
    {"mlp.down", "mlp.down_proj", "ffn_down"},
    {"post_norm2", "post_feedforward_layernorm", "post_ffw_norm"},
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_olmo2 = {
    .name = "olmo2",
    .hf_class = "Olmo2ForCausalLM",
    .gguf = "olmo2",
    TSR__LIKE_LLAMA_BUT(tsr__olmo2_inside),
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_WHOLE,
              .norms = TSR_BLOCK_NORMS_AFTER},
};
