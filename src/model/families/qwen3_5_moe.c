/* Qwen 3.5 and 3.6 with experts, text: Qwen 3.5 with the experts of Qwen3-Next. Source:
 * Qwen3_5MoeForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_experts",
                                      .hidden = "moe_intermediate_size",
                                      .shared_hidden = "shared_expert_intermediate_size",
                                      .normalise = "norm_topk_prob"};

static const tsr_model_experts experts = {.normalise = true, .shared_gate = true};

static const tsr__weight_name inside[] = {
    TSR__QWEN3_NEXT_ATTENTION_NAMES, TSR__QWEN3_5_DELTA_NAMES, TSR__EXPERT_NAMES,
    TSR__SHARED_EXPERT_NAMES,        {NULL, NULL, NULL},
};

const tsr__family tsr__family_qwen3_5_moe = {
    .name = "qwen3_5_moe_text",
    .hf_class = "Qwen3_5MoeForCausalLM",
    .gguf = "qwen35moe",
    TSR__LIKE_LLAMA_BUT(inside),
    .hf_norms_less_one = true,
    .gguf_sections = true,
    .hf_merged_experts = true,
    .expert_keys = &keys,
    .delta_keys = &tsr__qwen3_5_delta_keys,
    .hf_next_layers = "mtp_num_hidden_layers",
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_HEADS,
              .output_gate = true,
              .experts = &experts},
};
