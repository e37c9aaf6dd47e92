/* Qwen 3, dense: Llama whose q and k are normalised in each head. Source: Qwen3ForCausalLM in
 * Hugging Face Transformers. */
#include "model/families/family.h"

const tsr__family tsr__family_qwen3 = {
    .name = "qwen3",
    .hf_class = "Qwen3ForCausalLM",
    .gguf = "qwen3",
    TSR__LIKE_LLAMA,
    .windows = TSR__WINDOWS_SWITCHED,
    .layer = {.gated = true, .activation = TSR_ACT_SILU, .qk_norm = TSR_QK_NORM_HEADS},
};
