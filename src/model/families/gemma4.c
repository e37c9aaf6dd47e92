/* Gemma 4, text: Gemma 3 with normalised values, scores without a scale, other sizes of heads and
 * other rotary positions in layers without a window, which rotate the first pairs of whole heads, a
 * scale of each layer's output, and, by model: layers that use the keys of others, wider MLPs in
 * these, inputs of each layer (stack/inputs.c), values that are keys, and experts beside the MLP.
 * Sources: Gemma4ForCausalLM in Hugging Face Transformers, and the names of tensors in llama.cpp.
 */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_experts",
                                      .used = "top_k_experts",
                                      .hidden = "moe_intermediate_size",
                                      .enabled = "enable_moe_block"};

static const tsr_model_experts experts = {.normalise = true,
                                          .activation = TSR_EXPERT_GEGLU,
                                          .beside_mlp = true,
                                          .router_norm = true,
                                          .expert_scale = true};

static const tsr__weight_name outside[] = {
    {"embedding", "embed_tokens", "token_embd"},
    {"input_table", "embed_tokens_per_layer", "per_layer_token_embd"},
    {"input_projection", "per_layer_model_projection", "per_layer_model_proj"},
    {"input_norm", "per_layer_projection_norm", "per_layer_proj_norm"},
    {"norm", "norm", "output_norm"},
    {"head", "lm_head", "output"},
    {NULL, NULL, NULL},
};

static const tsr__weight_name inside[] = {
    TSR__GEMMA_NAMES,
    {"mlp_norm", "post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"mlp.norm", "pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"mlp.router", "router.proj", "ffn_gate_inp"},
    {"mlp.router.scale", "router.scale", "ffn_gate_inp.scale"},
    {"mlp.router.expert_scale", "router.per_expert_scale", "ffn_down_exps.scale"},
    {"mlp.experts.gate.weight", "experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"mlp.experts.up.weight", "experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"mlp.experts.down.weight", "experts.down_proj", "ffn_down_exps.weight"},
    {"experts_norm", "post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"end.gate", "per_layer_input_gate", "inp_gate"},
    {"end.out", "per_layer_projection", "proj"},
    {"end.norm", "post_per_layer_input_norm", "post_norm"},
    {"end.scale", "layer_scalar", "layer_output_scale.weight"},
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_gemma4 = {
    .name = "gemma4_text",
    .hf_class = "Gemma4ForCausalLM",
    .gguf = "gemma4",
    .gguf_experts_vary = true,
    .hf_prefix = "model.",
    .hf_block = "layers.",
    .keys = &tsr__gemma_keys,
    .outside = outside,
    .inside = inside,
    .norm = TSR_NORM_RMS,
    .tied = true,
    .windows = TSR__WINDOWS_PERIODIC,
    .window_period = 6,
    .window_rope = TSR__WINDOW_ROPE_OWN,
    .embedding_by_width = true,
    .sizes_by_layers = true,
    .expert_keys = &keys,
    .layer = {.gated = true,
              .activation = TSR_ACT_GELU_TANH,
              .qk_norm = TSR_QK_NORM_HEADS,
              .norms = TSR_BLOCK_NORMS_BOTH,
              .attention_scale = 1,
              .value_norm = true,
              .output_scale = true,
              .experts = &experts},
};
