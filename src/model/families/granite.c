/* Granite 3 and 4, dense: Llama with factors of the embedding, scores, residual branches and
 * logits. Source: GraniteForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

const tsr__family tsr__family_granite = {
    .name = "granite",
    .hf_class = "GraniteForCausalLM",
    .gguf = "granite",
    TSR__LIKE_LLAMA,
    .gguf_interleaved = true,
    .multipliers = true,
    .layer = {.gated = true, .activation = TSR_ACT_SILU},
};
