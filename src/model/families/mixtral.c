/* Mixtral: Mistral with experts. GGUF files call it "llama", too. Source: MixtralForCausalLM in
 * Hugging Face Transformers. */
#include "model/families/family.h"

static const tsr__expert_keys keys = {.count = "num_local_experts"};

static const tsr_model_experts experts = {.normalise = true};

static const tsr__weight_name inside[] = {
    TSR__LLAMA_ATTENTION_NAMES,
    {"norm2", "post_attention_layernorm", "ffn_norm"},
    TSR__MIXTRAL_EXPERT_NAMES,
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_mixtral = {
    .name = "mixtral",
    .hf_class = "MixtralForCausalLM",
    .gguf = "llama",
    TSR__LIKE_LLAMA_BUT(inside),
    .gguf_interleaved = true,
    .windows = TSR__WINDOWS_ALL,
    .expert_keys = &keys,
    .layer = {.gated = true, .activation = TSR_ACT_SILU, .experts = &experts},
};
