/* Granite with experts. Source: GraniteMoeForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_local_experts"};

static const tsr_model_experts experts = {.normalise = true};

static const tsr__weight_name inside[] = {
    TSR__LLAMA_ATTENTION_NAMES,
    {"norm2", "post_attention_layernorm", "ffn_norm"},
    {"mlp.router", "block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"mlp.experts.gate", "block_sparse_moe.input_linear", "ffn_gate_exps"},
    {"mlp.experts.up", "block_sparse_moe.input_linear", "ffn_up_exps"},
    {"mlp.experts.down", "block_sparse_moe.output_linear", "ffn_down_exps"},
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_granitemoe = {
    .name = "granitemoe",
    .hf_class = "GraniteMoeForCausalLM",
    .gguf = "granitemoe",
    TSR__LIKE_LLAMA_BUT(inside),
    .tied = true,
    .gguf_interleaved = true,
    .multipliers = true,
    .expert_keys = &keys,
    .layer = {.gated = true, .activation = TSR_ACT_SILU, .experts = &experts},
};
