/* Gemma 3, text: Gemma 2 with norms of q and k in each head, and layers with a window whose rotary
 * positions have a base of their own, five for each layer without. Source: Gemma3ForCausalLM in
 * Hugging Face Transformers. The text model of Gemma3ForConditionalGeneration is the same; its
 * config.json leaves out the usual values. */
#include "model/families/family.h"

const tsr__family tsr__family_gemma3 = {
    .name = "gemma3_text",
    .hf_class = "Gemma3ForCausalLM",
    .gguf = "gemma3",
    TSR__LIKE_GEMMA,
    .window_period = 6,
    .window_rope = TSR__WINDOW_ROPE_OWN,
    .gguf_scale_by_width = 62,
    .usual = {.heads = 8,
              .kv_heads = 4,
              .head_dim = 256,
              .vocabulary = 262208,
              .context = 131072,
              .window = 4096,
              .theta = 1e6,
              .window_theta = 1e4,
              .query_scalar = 256},
    .layer = {.gated = true,
              .activation = TSR_ACT_GELU_TANH,
              .qk_norm = TSR_QK_NORM_HEADS,
              .norms = TSR_BLOCK_NORMS_BOTH},
};
