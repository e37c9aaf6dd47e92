/* Qwen 3 with experts in place of all or some MLPs. Source: Qwen3MoeForCausalLM in Hugging Face
 * Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_experts",
                                      .hidden = "moe_intermediate_size",
                                      .normalise = "norm_topk_prob",
                                      .dense_layers = "mlp_only_layers"};

static const tsr_model_experts experts = {.normalise = true};

const tsr__weight_name tsr__qwen3_moe_inside[] = {
    TSR__LLAMA_ATTENTION_NAMES, {"norm2", "post_attention_layernorm", "ffn_norm"},
    TSR__LLAMA_MLP_NAMES,       TSR__EXPERT_NAMES,
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_qwen3_moe = {
    .name = "qwen3_moe",
    .hf_class = "Qwen3MoeForCausalLM",
    .gguf = "qwen3moe",
    TSR__LIKE_LLAMA_BUT(tsr__qwen3_moe_inside),
    .windows = TSR__WINDOWS_SWITCHED,
    .expert_keys = &keys,
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_HEADS,
              .experts = &experts},
};
