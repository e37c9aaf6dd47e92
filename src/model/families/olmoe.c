/* OLMoE: experts, and norms of all of q and of all of k. Source: OlmoeForCausalLM in Hugging Face
 * Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_experts", .normalise = "norm_topk_prob"};

static const tsr_model_experts experts = {.normalise = false};

const tsr__family tsr__family_olmoe = {
    .name = "olmoe",
    .hf_class = "OlmoeForCausalLM",
    .gguf = "olmoe",
    TSR__LIKE_LLAMA_BUT(tsr__qwen3_moe_inside),
    .expert_keys = &keys,
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_WHOLE,
              .experts = &experts},
};
