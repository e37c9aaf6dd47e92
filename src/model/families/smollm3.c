/* SmolLM 3: Llama, of which every fourth layer has no rotary positions. Source: SmolLM3ForCausalLM
 * in Hugging Face Transformers. */
#include "model/families/family.h"

const tsr__family tsr__family_smollm3 = {
    .name = "smollm3",
    .hf_class = "SmolLM3ForCausalLM",
    .gguf = "smollm3",
    TSR__LIKE_LLAMA,
    .tied = true,
    .gguf_interleaved = true,
    .no_rope_period = 4,
    .layer = {.gated = true, .activation = TSR_ACT_SILU},
};
