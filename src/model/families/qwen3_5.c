/* Qwen 3.5, 3.6 and 3.8, text: gated delta nets in three of four layers, and attention with a gate
 * of its output in the others. The three positions of a token, for images, are equal in a text.
 * Source: Qwen3_5ForCausalLM in Hugging Face Transformers. */
#include "model/families/family.h"

const tsr__delta_keys tsr__qwen3_5_delta_keys = {.period = 4, .gguf_tiled = true};

static const tsr__weight_name inside[] = {
    TSR__QWEN3_NEXT_ATTENTION_NAMES,
    TSR__QWEN3_5_DELTA_NAMES,
    TSR__LLAMA_MLP_NAMES,
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_qwen3_5 = {
    .name = "qwen3_5_text",
    .hf_class = "Qwen3_5ForCausalLM",
    .gguf = "qwen35",
    TSR__LIKE_LLAMA_BUT(inside),
    .hf_norms_less_one = true,
    .gguf_sections = true,
    .delta_keys = &tsr__qwen3_5_delta_keys,
    .hf_next_layers = "mtp_num_hidden_layers",
    .layer = {.gated = true,
              .activation = TSR_ACT_SILU,
              .qk_norm = TSR_QK_NORM_HEADS,
              .output_gate = true},
};
