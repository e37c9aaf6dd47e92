/* The table of architectures: see architecture.h. Sources: the models' classes in Hugging Face
 * Transformers, and the names of tensors in llama.cpp. */
#include "model/architecture.h"

#include <stdio.h>
#include <string.h>

static const tsr__config_keys usual_keys = {
    .layers = "num_hidden_layers",
    .width = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .hidden = "intermediate_size",
    .context = "max_position_embeddings",
    .norm_epsilon = "rms_norm_eps",
    .activation = "hidden_act",
};
static const tsr__config_keys gpt2_keys = {
    .layers = "n_layer",
    .width = "n_embd",
    .heads = "n_head",
    .kv_heads = "n_head",
    .hidden = "n_inner",
    .context = "n_positions",
    .norm_epsilon = "layer_norm_epsilon",
    .activation = "activation_function",
};

static const tsr__weight_name usual_outside[] = {
    {"embedding", "embed_tokens", "token_embd"},
    {"norm", "norm", "output_norm"},
    {"head", "lm_head", "output"},
    {NULL, NULL, NULL},
};
static const tsr__weight_name usual_inside[] = {
    {"norm1", "input_layernorm", "attn_norm"},
    {"attention.q", "self_attn.q_proj", "attn_q"},
    {"attention.k", "self_attn.k_proj", "attn_k"},
    {"attention.v", "self_attn.v_proj", "attn_v"},
    {"attention.q_norm", "self_attn.q_norm", "attn_q_norm"},
    {"attention.k_norm", "self_attn.k_norm", "attn_k_norm"},
    {"attention.o", "self_attn.o_proj", "attn_output"},
    {"norm2", "post_attention_layernorm", "ffn_norm"},
    {"mlp.gate", "mlp.gate_proj", "ffn_gate"},
    {"mlp.up", "mlp.up_proj", "ffn_up"},
    {"mlp.down", "mlp.down_proj", "ffn_down"},
    {NULL, NULL, NULL},
};
static const tsr__weight_name gpt2_outside[] = {
    {"embedding", "wte", "token_embd"},
    {"positions", "wpe", "position_embd"},
    {"norm", "ln_f", "output_norm"},
    {"head", "lm_head", "output"},
    {NULL, NULL, NULL},
};
/* The files keep the weights of q, k and v in one matrix, so the three have the same name. */
static const tsr__weight_name gpt2_inside[] = {
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

/* The fields of tsr__architecture whose values all descendants of Llama share. */
#define USUAL                                                                                      \
    .hf_prefix = "model.", .hf_block = "layers.", .keys = &usual_keys, .outside = usual_outside,   \
    .inside = usual_inside, .norm = TSR_NORM_RMS, .gated = true, .activation = TSR_ACT_SILU

/* Several architectures may have the same name in GGUF: tsr__architecture_by_gguf returns the first
 * of them. */
static const tsr__architecture table[] = {
    {
        .name = "llama",
        .hf_class = "LlamaForCausalLM",
        .gguf = "llama",
        USUAL,
        .gguf_interleaved = true,
    },
    {
        .name = "mistral",
        .hf_class = "MistralForCausalLM",
        .gguf = "llama",
        USUAL,
        .has_window = true,
        .gguf_interleaved = true,
    },
    {
        .name = "qwen2",
        .hf_class = "Qwen2ForCausalLM",
        .gguf = "qwen2",
        USUAL,
        .qkv_bias = true,
        .has_window = true,
        .window_needs_switch = true,
    },
    {
        .name = "qwen3",
        .hf_class = "Qwen3ForCausalLM",
        .gguf = "qwen3",
        USUAL,
        .qk_norm = true,
        .has_window = true,
        .window_needs_switch = true,
    },
    {
        .name = "gpt2",
        .hf_class = "GPT2LMHeadModel",
        .gguf = "gpt2",
        .hf_prefix = "transformer.",
        .hf_block = "h.",
        .keys = &gpt2_keys,
        .outside = gpt2_outside,
        .inside = gpt2_inside,
        .norm = TSR_NORM_LAYER,
        .norm_bias = true,
        .learned_positions = true,
        .qkv_bias = true,
        .output_bias = true,
        .mlp_bias = true,
        .tied = true,
        .hf_transposed = true,
        .activation = TSR_ACT_GELU_TANH,
    },
};
#define ROWS ((int)(sizeof table / sizeof *table))

const tsr__architecture *tsr__architecture_by_name(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

const tsr__architecture *tsr__architecture_by_gguf(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(table[i].gguf, name) == 0)
            return &table[i];
    return NULL;
}

char *tsr__architecture_names(size_t size, char *text)
{
    size_t used = 0;
    for (int i = 0; i < ROWS && used < size; i++) {
        const int written =
            snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ", table[i].name);
        used += written > 0 ? (size_t)written : 0;
    }
    return text;
}
