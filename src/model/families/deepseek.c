/* DeepSeek V2 and V3 with R1, and what has their layers: Kimi K2 and GLM 4.7 Flash. Latent
 * attention, and experts after some leading dense layers, of which all tokens share one or more. V2
 * chooses experts by softmax, the others by sigmoid with a bias. Layers that predict further tokens
 * have copies of the embedding and the head in some files, which are not read. Source:
 * DeepseekV3ForCausalLM and DeepseekV2ForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "n_routed_experts",
                                      .hidden = "moe_intermediate_size",
                                      .shared_count = "n_shared_experts",
                                      .normalise = "norm_topk_prob",
                                      .gating = "scoring_func",
                                      .group_rule = "topk_method",
                                      .first_dense = "first_k_dense_replace"};

static const tsr_model_experts by_sigmoid = {.gating = TSR_GATING_SIGMOID,
                                             .normalise = true,
                                             .choice_bias = true},
                               by_softmax = {.gating = TSR_GATING_SOFTMAX};

static const tsr__weight_name inside[] = {
    {"norm1", "input_layernorm", "attn_norm"},
    {"attention.q", "self_attn.q_proj", "attn_q"},
    {"attention.q_a", "self_attn.q_a_proj", "attn_q_a"},
    {"attention.q_a_norm", "self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"attention.q_b", "self_attn.q_b_proj", "attn_q_b"},
    {"attention.kv_a", "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"attention.kv_a_norm", "self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"attention.k_b", "self_attn.kv_b_proj", "attn_k_b"},
    {"attention.v_b", "self_attn.kv_b_proj", "attn_v_b"},
    {"attention.o", "self_attn.o_proj", "attn_output"},
    {"norm2", "post_attention_layernorm", "ffn_norm"},
    TSR__LLAMA_MLP_NAMES,
    TSR__EXPERT_NAMES,
    {"mlp.router.choice_bias", "mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    TSR__NEXTN_NAMES,
    {"mlp.shared.gate", "mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared.up", "mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared.down", "mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {NULL, NULL, NULL},
};

/* V2 has no layers that predict further tokens. */
#define NEXT_LAYERS .hf_next_layers = "num_nextn_predict_layers", .hf_next_inside = true

#define LIKE_DEEPSEEK(experts_)                                                                    \
    .gguf = "deepseek2", TSR__LIKE_LLAMA_BUT(inside), .expert_keys = &keys, .latent = true,        \
    .layer = {.gated = true, .activation = TSR_ACT_SILU, .experts = (experts_)}

const tsr__family tsr__family_deepseek_v3 = {
    .name = "deepseek_v3",
    .hf_class = "DeepseekV3ForCausalLM",
    .gguf_softmax = &tsr__family_deepseek_v2,
    NEXT_LAYERS,
    LIKE_DEEPSEEK(&by_sigmoid),
};

const tsr__family tsr__family_deepseek_v2 = {
    .name = "deepseek_v2",
    .hf_class = "DeepseekV2ForCausalLM",
    LIKE_DEEPSEEK(&by_softmax),
};

const tsr__family tsr__family_kimi_k2 = {
    .name = "kimi_k2",
    .hf_class = "DeepseekV3ForCausalLM",
    NEXT_LAYERS,
    LIKE_DEEPSEEK(&by_sigmoid),
};

const tsr__family tsr__family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .hf_class = "Glm4MoeLiteForCausalLM",
    NEXT_LAYERS,
    LIKE_DEEPSEEK(&by_sigmoid),
};
