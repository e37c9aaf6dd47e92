/* Qwen3-Next: gated delta nets in three of four layers, attention with a gate of its output in the
 * others, and experts of which one is shared by all tokens, with a gate. Source:
 * Qwen3NextForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_experts",
                                      .hidden = "moe_intermediate_size",
                                      .shared_hidden = "shared_expert_intermediate_size",
                                      .normalise = "norm_topk_prob",
                                      .dense_layers = "mlp_only_layers"};

static const tsr__delta_keys delta_keys = {.period = 4, .hf_by_key_heads = true};

static const tsr_model_experts experts = {.normalise = true, .shared_gate = true};

static const tsr__weight_name inside[] = {
    TSR__QWEN3_NEXT_ATTENTION_NAMES,
    {"delta_net.q", "linear_attn.in_proj_qkvz", "attn_qkv"},
    {"delta_net.k", "linear_attn.in_proj_qkvz", "attn_qkv"},
    {"delta_net.v", "linear_attn.in_proj_qkvz", "attn_qkv"},
    {"delta_net.z", "linear_attn.in_proj_qkvz", "attn_gate"},
    {"delta_net.beta", "linear_attn.in_proj_ba", "ssm_ba"},
    {"delta_net.alpha", "linear_attn.in_proj_ba", "ssm_ba"},
    TSR__LLAMA_MLP_NAMES,
    TSR__EXPERT_NAMES,
    TSR__SHARED_EXPERT_NAMES,
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_qwen3_next = {
    .name = "qwen3_next",
    .hf_class = "Qwen3NextForCausalLM",
    .gguf = "qwen3next",
    TSR__LIKE_LLAMA_BUT(inside),
    .hf_norms_less_one = true,
    .expert_keys = &keys,
    .delta_keys = &delta_keys,
    .hf_next_layers = "num_nextn_predict_layers",
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_HEADS,
              .output_gate = true,
              .experts = &experts},
};
