/* Ministral 3 and Devstral 2: Llama with YaRN and a temperature of scores that grows with the
 * position. Source: Ministral3ForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

const tsr__family tsr__family_ministral3 = {
    .name = "ministral3",
    .hf_class = "Ministral3ForCausalLM",
    .gguf = "mistral3",
    TSR__LIKE_LLAMA,
    .gguf_interleaved = true,
    .gguf_yarn_log = true,
    .windows = TSR__WINDOWS_ALL,
    .layer = {.gated = true, .activation = TSR_ACT_SILU},
};
