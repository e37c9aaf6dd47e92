/* GPT-2: learned positions, layer norms, an MLP without a gate, and biases everywhere. Source:
 * GPT2LMHeadModel in Hugging Face Transformers. */
#include "model/families/family.h"

/* "bias" is not Hugging Face's: false in files of models that were trained without biases. The
 * files then hold biases of 0 for programs that expect them, and this library leaves them out. */
static const tsr__config_keys keys = {
    .layers = "n_layer",
    .width = "n_embd",
    .heads = "n_head",
    .kv_heads = "n_head",
    .hidden = "n_inner",
    .context = "n_positions",
    .norm_epsilon = "layer_norm_epsilon",
    .activation = "activation_function",
    .bias = "bias",
};

static const tsr__weight_name outside[] = {
    {"embedding", "wte", "token_embd"},
    {"positions", "wpe", "position_embd"},
    {"norm", "ln_f", "output_norm"},
    {"head", "lm_head", "output"},
    {NULL, NULL, NULL},
};

/* The files keep the weights of q, k and v in one matrix, so the three have the same name. */
static const tsr__weight_name inside[] = {
    {"norm1", "ln_1", "attn_norm"},
    {"attention.q", "attn.c_attn", "attn_qkv"},
    {"attention.k", "attn.c_attn", "attn_qkv"},
    {"attention.v", "attn.c_attn", "attn_qkv"},
    {"attention.o", "attn.c_proj", "attn_output"},
    {"norm2", "ln_2", "ffn_norm"},
    {"mlp.up", "mlp.c_fc", "ffn_up"},
    {"mlp.down", "mlp.c_proj", "ffn_down"},
    {NULL, NULL, NULL},
};

const tsr__family tsr__family_gpt2 = {
    .name = "gpt2",
    .hf_class = "GPT2LMHeadModel",
    .gguf = "gpt2",
    .hf_prefix = "transformer.",
    .hf_block = "h.",
    .keys = &keys,
    .outside = outside,
    .inside = inside,
    .norm = TSR_NORM_LAYER,
    .norm_bias = true,
    .learned_positions = true,
    .tied = true,
    .hf_transposed = true,
    .hidden_per_width = 4,
    .layer = {.activation = TSR_ACT_GELU_TANH,
              .qkv_bias = true,
              .output_bias = true,
              .mlp_bias = true},
};
