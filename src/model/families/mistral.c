/* Mistral: Llama with a sliding window in all layers. GGUF files call it "llama", too. Source:
 * MistralForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

const tsr__family tsr__family_mistral = {
    .name = "mistral",
    .hf_class = "MistralForCausalLM",
    .gguf = "llama",
    .gguf_needs_window = true,
    TSR__LIKE_LLAMA,
    .gguf_interleaved = true,
    .windows = TSR__WINDOWS_ALL,
    .layer = {.gated = true, .activation = TSR_ACT_SILU},
};
