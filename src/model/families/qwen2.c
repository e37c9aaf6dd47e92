/* Qwen 2 and 2.5: Llama with biases of q, k and v. Source: Qwen2ForCausalLM in Hugging Face
 * Transformers. */
#include "model/families/family.h"

const tsr__family tsr__family_qwen2 = {
    .name = "qwen2",
    .hf_class = "Qwen2ForCausalLM",
    .gguf = "qwen2",
    TSR__LIKE_LLAMA,
    .windows = TSR__WINDOWS_SWITCHED,
    .layer = {.gated = true, .activation = TSR_ACT_SILU, .qkv_bias = true},
};
