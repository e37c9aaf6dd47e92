/* LFM2: short convolutions in place of attention in most layers, and attention with norms of q and
 * k in each head in the others; with experts by sigmoid scores in all layers but the first ones.
 * Sources: Lfm2ForCausalLM and Lfm2MoeForCausalLM in Hugging Face Transformers, and the names of
 * tensors in llama.cpp. */
#include "model/families/family.h"

static const tsr__config_keys keys = {
    .layers = "num_hidden_layers",
    .width = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .hidden = "intermediate_size",
    .context = "max_position_embeddings",
    .norm_epsilon = "norm_eps",
    .activation = "hidden_act",
};

static const tsr__expert_keys expert_keys = {.count = "num_experts",
                                             .hidden = "moe_intermediate_size",
                                             .normalise = "norm_topk_prob",
                                             .choice_bias = "use_expert_bias",
                                             .first_dense = "num_dense_layers"};

static const tsr_model_experts experts = {
    .gating = TSR_GATING_SIGMOID, .normalise = true, .choice_bias = true};

static const tsr__weight_name outside[] = {
    {"embedding", "embed_tokens", "token_embd"},
    {"norm", "embedding_norm", "token_embd_norm"},
    {"head", "lm_head", "output"},
    {NULL, NULL, NULL},
};

#define COMMON_NAMES                                                                               \
    {"norm1", "operator_norm", "attn_norm"}, {"attention.q", "self_attn.q_proj", "attn_q"},        \
        {"attention.k", "self_attn.k_proj", "attn_k"},                                             \
        {"attention.v", "self_attn.v_proj", "attn_v"},                                             \
        {"attention.q_norm", "self_attn.q_layernorm", "attn_q_norm"},                              \
        {"attention.k_norm", "self_attn.k_layernorm", "attn_k_norm"},                              \
        {"attention.o", "self_attn.out_proj", "attn_output"},                                      \
        {"short_conv.b", "conv.in_proj", "shortconv.in_proj"},                                     \
        {"short_conv.c", "conv.in_proj", "shortconv.in_proj"},                                     \
        {"short_conv.x", "conv.in_proj", "shortconv.in_proj"},                                     \
        {"short_conv.conv", "conv.conv", "shortconv.conv"},                                        \
        {"short_conv.o", "conv.out_proj", "shortconv.out_proj"},                                   \
        {"norm2", "ffn_norm", "ffn_norm"}, {"mlp.gate", "feed_forward.w1", "ffn_gate"},            \
        {"mlp.up", "feed_forward.w3", "ffn_up"},                                                   \
    {                                                                                              \
        "mlp.down", "feed_forward.w2", "ffn_down"                                                  \
    }

static const tsr__weight_name inside[] = {COMMON_NAMES, {NULL, NULL, NULL}};

static const tsr__weight_name inside_moe[] = {
    COMMON_NAMES,
    {"mlp.router", "feed_forward.gate", "ffn_gate_inp"},
    {"mlp.router.choice_bias", "feed_forward.expert_bias", "exp_probs_b.bias"},
    {"mlp.experts.gate", "feed_forward.experts.*.w1", "ffn_gate_exps"},
    {"mlp.experts.up", "feed_forward.experts.*.w3", "ffn_up_exps"},
    {"mlp.experts.down", "feed_forward.experts.*.w2", "ffn_down_exps"},
    {NULL, NULL, NULL},
};

#define LIKE_LFM2                                                                                  \
    .hf_prefix = "model.", .hf_block = "layers.", .keys = &keys, .outside = outside,               \
    .norm = TSR_NORM_RMS, .tied = true, .short_convs = true,                                       \
    .usual = {.vocabulary = 65536, .context = 128000, .theta = 1e6}

const tsr__family tsr__family_lfm2 = {
    .name = "lfm2",
    .hf_class = "Lfm2ForCausalLM",
    .gguf = "lfm2",
    LIKE_LFM2,
    .inside = inside,
    .adjusted_hidden = true,
    .layer = {.gated = true, .activation = TSR_ACT_SILU, .qk_norm = TSR_QK_NORM_HEADS},
};

const tsr__family tsr__family_lfm2_moe = {
    .name = "lfm2_moe",
    .hf_class = "Lfm2MoeForCausalLM",
    .gguf = "lfm2moe",
    LIKE_LFM2,
    .inside = inside_moe,
    .expert_keys = &expert_keys,
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_HEADS,
              .experts = &experts},
};
