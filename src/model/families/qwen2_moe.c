/* Qwen 1.5 and 2 with experts, one of them shared by all tokens, with a gate. Source:
 * Qwen2MoeForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_experts",
                                      .hidden = "moe_intermediate_size",
                                      .shared_hidden = "shared_expert_intermediate_size",
                                      .normalise = "norm_topk_prob",
                                      .dense_layers = "mlp_only_layers"};

static const tsr_model_experts experts = {.shared_gate = true};

static const tsr__weight_name inside[] = {
    TSR__LLAMA_ATTENTION_NAMES, {"norm2", "post_attention_layernorm", "ffn_norm"},
    TSR__LLAMA_MLP_NAMES,       TSR__EXPERT_NAMES,
    TSR__SHARED_EXPERT_NAMES,   {NULL, NULL, NULL},
};

const tsr__family tsr__family_qwen2_moe = {
    .name = "qwen2_moe",
    .hf_class = "Qwen2MoeForCausalLM",
    .gguf = "qwen2moe",
    TSR__LIKE_LLAMA_BUT(inside),
    .windows = TSR__WINDOWS_SWITCHED,
    .attention_bias = TSR__ATTENTION_BIAS_IGNORED,
    .expert_keys = &keys,
    .layer = {.gated = true, .activation = TSR_ACT_SILU, .qkv_bias = true, .experts = &experts},
};
