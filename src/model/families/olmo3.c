/* OLMo 3: OLMo 2 with a sliding window in three of four layers, whose rotary positions have no
 * frequency scaling. GGUF files call it "olmo2", too. Source: llama.cpp; Olmo3ForCausalLM of
 * Hugging Face Transformers 5.12 scales in all layers. */
#include "model/families/family.h"

const tsr__family tsr__family_olmo3 = {
    .name = "olmo3",
    .hf_class = "Olmo3ForCausalLM",
    .gguf = "olmo2",
    .gguf_needs_window = true,
    TSR__LIKE_LLAMA_BUT(tsr__olmo2_inside),
    .windows = TSR__WINDOWS_PERIODIC,
    .window_period = 4,
    .window_rope = TSR__WINDOW_ROPE_UNSCALED,
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_WHOLE,
              .norms = TSR_BLOCK_NORMS_AFTER},
};
