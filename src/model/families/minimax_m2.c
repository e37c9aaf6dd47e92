/* MiniMax M2: experts, norms of all of q and of all of k, and rotary positions of a part of the
 * features. Source: MiniMaxM2ForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {
    .count = "num_local_experts", .choice_bias = "use_routing_bias", .gating = "scoring_func"};

static const tsr_model_experts experts = {
    .gating = TSR_GATING_SIGMOID, .normalise = true, .choice_bias = true};

static const tsr__weight_name inside[] = {
    TSR__LLAMA_ATTENTION_NAMES,
    {"norm2", "post_attention_layernorm", "ffn_norm"},
    TSR__MIXTRAL_EXPERT_NAMES,
    {"mlp.router.choice_bias", "block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_minimax_m2 = {
    .name = "minimax_m2",
    .hf_class = "MiniMaxM2ForCausalLM",
    .gguf = "minimax-m2",
    TSR__LIKE_LLAMA_BUT(inside),
    .qk_norm_varies = true,
    .hf_rotary_dim = true,
    .expert_keys = &keys,
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_WHOLE,
              .experts = &experts},
};
