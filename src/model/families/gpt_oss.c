/* gpt-oss: experts with biases and a limited activation, attention sinks, and a sliding window in
 * every second layer. Its Hugging Face files have experts as blocks and scales in two tensors
 * (weights/mxfp4.c). Source: GptOssForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_local_experts"};

static const tsr_model_experts experts = {.gating = TSR_GATING_SOFTMAX_CHOSEN,
                                          .router_bias = true,
                                          .bias = true,
                                          .activation = TSR_EXPERT_SWIGLU_OAI};

static const tsr__weight_name inside[] = {
    TSR__LLAMA_ATTENTION_NAMES,
    {"attention.sinks", "self_attn.sinks", "attn_sinks.weight"},
    {"norm2", "post_attention_layernorm", "post_attention_norm"},
    {"mlp.router", "mlp.router", "ffn_gate_inp"},
    {"mlp.experts.gate.weight", "mlp.experts.gate_up_proj", "ffn_gate_exps.weight"},
    {"mlp.experts.gate.bias", "mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias"},
    {"mlp.experts.up.weight", "mlp.experts.gate_up_proj", "ffn_up_exps.weight"},
    {"mlp.experts.up.bias", "mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias"},
    {"mlp.experts.down.weight", "mlp.experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.experts.down.bias", "mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_gpt_oss = {
    .name = "gpt_oss",
    .hf_class = "GptOssForCausalLM",
    .gguf = "gpt-oss",
    TSR__LIKE_LLAMA_BUT(inside),
    .windows = TSR__WINDOWS_PERIODIC,
    .window_period = 2,
    .hf_mxfp4 = true,
    .hf_gate_up_alternates = true,
    .expert_keys = &keys,
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qkv_bias = true,
              .output_bias = true,
              .sinks = true,
              .experts = &experts},
};
