/* GLM 4.5 to 4.7: rotary positions of a part of the features, experts after some leading dense
 * layers, and one expert that all tokens share. Layers that predict further tokens have copies of
 * the embedding and the head in some files, which are not read. Source: Glm4MoeForCausalLM in
 * Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "n_routed_experts",
                                      .hidden = "moe_intermediate_size",
                                      .shared_count = "n_shared_experts",
                                      .normalise = "norm_topk_prob",
                                      .first_dense = "first_k_dense_replace"};

static const tsr_model_experts experts = {
    .gating = TSR_GATING_SIGMOID, .normalise = true, .choice_bias = true};

static const tsr__weight_name inside[] = {
    TSR__LLAMA_ATTENTION_NAMES,
    {"norm2", "post_attention_layernorm", "post_attention_norm"},
    TSR__LLAMA_MLP_NAMES,
    TSR__EXPERT_NAMES,
    {"mlp.router.choice_bias", "mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    TSR__NEXTN_NAMES,
    {"mlp.shared.gate", "mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared.up", "mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared.down", "mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_glm4_moe = {
    .name = "glm4_moe",
    .hf_class = "Glm4MoeForCausalLM",
    .gguf = "glm4moe",
    TSR__LIKE_LLAMA_BUT(inside),
    .attention_bias = TSR__ATTENTION_BIAS_QKV,
    .qk_norm_varies = true,
    .expert_keys = &keys,
    .hf_next_layers = "num_nextn_predict_layers",
    .hf_next_inside = true,
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_HEADS,
              .experts = &experts},
};
