/* Families of models: how their files name sizes and weights, and what their layers consist of.
 * Each family is one file of this folder; families.c lists them. A family that differs from the
 * others only in these facts needs a file and a line in that list. */
#ifndef TSR_MODEL_FAMILIES_FAMILY_H
#define TSR_MODEL_FAMILIES_FAMILY_H

#include <stdbool.h>

#include "tessera/model.h"

/* The keys of config.json. */
typedef struct tsr__config_keys {
    const char *layers, *width, *heads, *kv_heads, *hidden, *context, *norm_epsilon, *activation;
    const char *bias; /* a switch for all biases of layers and norms; NULL: there is none */
} tsr__config_keys;

/* The name of a weight or norm of ours in a Hugging Face file and in a GGUF file, without the
 * ending ".weight" or ".bias", unless `ours` is one of our names in full. An asterisk stands for
 * the number of an expert, each of which then has a tensor of its own. */
typedef struct tsr__weight_name {
    const char *ours, *hf, *gguf;
} tsr__weight_name;

/* Which layers have the sliding window of a configuration. */
typedef enum tsr__windows {
    TSR__WINDOWS_IGNORED = 0,
    TSR__WINDOWS_ALL = 1,      /* all layers */
    TSR__WINDOWS_SWITCHED = 2, /* layers from max_window_layers on, if use_sliding_window is true */
    /* those that layer_types says or, if the files do not say, all except layers period − 1,
     * 2 · period − 1, … */
    TSR__WINDOWS_PERIODIC = 3
} tsr__windows;

/* The rotary positions of layers with a window. */
typedef enum tsr__window_rope {
    TSR__WINDOW_ROPE_SAME = 0,
    TSR__WINDOW_ROPE_UNSCALED = 1, /* the same base, without frequency scaling */
    TSR__WINDOW_ROPE_OWN = 2       /* a base of their own, without frequency scaling */
} tsr__window_rope;

/* Values of a configuration that files of some models leave out. 0: none. */
typedef struct tsr__usual_values {
    int64_t heads, kv_heads, head_dim, vocabulary, context, window;
    double theta, window_theta, query_scalar;
} tsr__usual_values;

/* Which biases of attention config.json means by attention_bias. */
typedef enum tsr__attention_bias {
    TSR__ATTENTION_BIAS_ALL = 0,
    TSR__ATTENTION_BIAS_QKV = 1,
    TSR__ATTENTION_BIAS_IGNORED = 2
} tsr__attention_bias;

/* The keys of config.json that say how many experts there are, and which size a shared one has.
 * NULL: there is none. */
typedef struct tsr__expert_keys {
    const char *count, *hidden, *shared_hidden, *shared_count;
    const char *used; /* NULL: num_experts_per_tok */
    const char *normalise, *choice_bias, *gating, *group_rule;
    const char *enabled;      /* a switch for all experts */
    const char *first_dense;  /* how many layers have no experts, from the first on */
    const char *dense_layers; /* a list of layers that have none; with decoder_sparse_step */
} tsr__expert_keys;

/* How a family's files name and arrange gated delta nets. */
typedef struct tsr__delta_keys {
    int period; /* layers period − 1, 2 · period − 1, … have attention, if the files do not say */
    /* The rows of q, k, v and z, and those of beta and alpha, alternate in Hugging Face files:
     * first those that belong to the first key head, then those of the second. */
    bool hf_by_key_heads;
    /* In GGUF files, head h reads key head h % key_heads. */
    bool gguf_tiled;
} tsr__delta_keys;

typedef struct tsr__family {
    const char *name;     /* model_type in config.json */
    const char *hf_class; /* the model's class in Hugging Face Transformers */
    const char *gguf;     /* general.architecture */
    /* Several families may have the same name in GGUF files. This one is meant only if the file has
     * a sliding window. */
    bool gguf_needs_window;
    bool gguf_experts_vary; /* one with expert_keys is meant by files without experts, too */
    const char *hf_prefix;  /* starts all names except that of the head; a file may leave it out */
    const char *hf_block;   /* follows the prefix; the number of a layer comes next */
    const tsr__config_keys *keys;
    const tsr__weight_name *outside, *inside; /* weights outside and inside layers; end in {NULL} */
    tsr_norm_kind norm;
    bool norm_bias;
    bool learned_positions;
    bool tied;             /* the head is the embedding's matrix, if config.json does not say */
    bool hf_transposed;    /* matrices of layers are [in, out] in Hugging Face files */
    bool gguf_interleaved; /* rows of q and k are in the order of TSR_ROPE_ADJACENT in GGUF */
    tsr__windows windows;
    int window_period; /* TSR__WINDOWS_PERIODIC; 0: no layer has a window */
    int no_rope_period; /* layers period − 1, 2 · period − 1, … have no rotary positions; 0: all do
                         */
    tsr__window_rope window_rope;
    tsr__usual_values usual;
    bool hf_norms_less_one;  /* Hugging Face files have the weights of norms less 1 */
    bool embedding_by_width; /* the embedding is multiplied by √width */
    /* config.json has attention_multiplier, embedding_multiplier, residual_multiplier and
     * logits_scaling, the number by which logits are divided */
    bool multipliers;
    bool query_scalar; /* scores are divided by √query_pre_attn_scalar, not √head_dim */
    /* The number of layers of the model whose GGUF file means √(width / heads) instead of
     * √head_dim, as llama.cpp takes it; 0: none. GGUF files of such families have no key for the
     * scale. */
    int gguf_scale_by_width;
    bool gguf_sections;   /* GGUF files have rope.dimension_sections, for images */
    bool gguf_yarn_log;   /* GGUF files say with yarn_log_multiplier that YaRN's factor is 1 */
    int hidden_per_width; /* the hidden features, in multiples of the width, if config.json does not
                             give their number; 0: it must */
    tsr__attention_bias attention_bias;
    /* Sizes of heads of layers with a window and of others have keys of their own, GGUF files have
     * lists of sizes by layers, and files say which layers share keys; as in Gemma 4 */
    bool sizes_by_layers;
    bool qk_norm_varies; /* config.json has use_qk_norm; in GGUF files the tensors say it */
    bool hf_rotary_dim;  /* config.json has rotary_dim */
    /* Hugging Face files have experts in MXFP4 (weights/mxfp4.h), or as floats [experts, in, out]
     */
    bool hf_mxfp4;
    /* Hugging Face files have gate and up of all experts in one tensor, and down in another */
    bool hf_merged_experts;
    bool hf_gate_up_alternates; /* Hugging Face files have gate and up of experts in one tensor, in
                                   alternate rows */
    const tsr__expert_keys *expert_keys; /* NULL: no layer has experts */
    bool latent;                         /* all layers have latent attention */
    /* The family that is meant if GGUF files have this one's name, but choose experts by softmax.
     * NULL: none. */
    const struct tsr__family *gguf_softmax;
    const tsr__delta_keys *delta_keys; /* NULL: no layer has a delta net */
    bool short_convs;                  /* layers of the type "conv" have a short convolution */
    bool adjusted_hidden; /* config.json has the size of MLPs before an adjustment, as in LFM2 */
    /* The key of config.json for the number of layers that predict further tokens. NULL: there are
     * none, or they are left out. */
    const char *hf_next_layers;
    /* Hugging Face files number these layers after the others, in place of names that begin with
     * "mtp" */
    bool hf_next_inside;
    /* What each layer has if the files do not say: biases, norms of q and k, gate and activation,
     * and options of experts. GGUF files do not name the activation. */
    tsr_model_layer layer;
} tsr__family;

extern const tsr__family tsr__family_llama, tsr__family_mistral, tsr__family_qwen2,
    tsr__family_qwen3, tsr__family_gpt2, tsr__family_smollm3, tsr__family_granite,
    tsr__family_olmo2, tsr__family_olmo3, tsr__family_gemma2, tsr__family_gemma3, tsr__family_phi3,
    tsr__family_ministral3, tsr__family_qwen3_moe, tsr__family_mixtral, tsr__family_gpt_oss,
    tsr__family_qwen2_moe, tsr__family_olmoe, tsr__family_glm4_moe, tsr__family_granitemoe,
    tsr__family_minimax_m2, tsr__family_qwen3_next, tsr__family_qwen3_5, tsr__family_qwen3_5_moe,
    tsr__family_deepseek_v3, tsr__family_deepseek_v2, tsr__family_kimi_k2,
    tsr__family_glm4_moe_lite, tsr__family_gemma4, tsr__family_lfm2, tsr__family_lfm2_moe;

/* What all descendants of Llama have in common (llama.c). */
extern const tsr__config_keys tsr__llama_keys;
extern const tsr__weight_name tsr__llama_outside[], tsr__llama_inside[];
/* The rows of tsr__llama_inside without those of the MLP. */
#define TSR__LLAMA_ATTENTION_NAMES                                                                 \
    {"norm1", "input_layernorm", "attn_norm"}, {"attention.q", "self_attn.q_proj", "attn_q"},      \
        {"attention.k", "self_attn.k_proj", "attn_k"},                                             \
        {"attention.v", "self_attn.v_proj", "attn_v"},                                             \
        {"attention.q_norm", "self_attn.q_norm", "attn_q_norm"},                                   \
        {"attention.k_norm", "self_attn.k_norm", "attn_k_norm"},                                   \
    {                                                                                              \
        "attention.o", "self_attn.o_proj", "attn_output"                                           \
    }
#define TSR__LLAMA_MLP_NAMES                                                                       \
    {"mlp.gate", "mlp.gate_proj", "ffn_gate"}, {"mlp.up", "mlp.up_proj", "ffn_up"},                \
    {                                                                                              \
        "mlp.down", "mlp.down_proj", "ffn_down"                                                    \
    }
/* The rows of all Gemmas. */
#define TSR__GEMMA_NAMES                                                                           \
    TSR__LLAMA_ATTENTION_NAMES, {"post_norm1", "post_attention_layernorm", "post_attention_norm"}, \
        {"norm2", "pre_feedforward_layernorm", "ffn_norm"}, TSR__LLAMA_MLP_NAMES,                  \
    {                                                                                              \
        "post_norm2", "post_feedforward_layernorm", "post_ffw_norm"                                \
    }
/* The rows of experts of most families (qwen3_moe.c), and of Mixtral's descendants. */
#define TSR__EXPERT_NAMES                                                                          \
    {"mlp.router", "mlp.gate", "ffn_gate_inp"},                                                    \
        {"mlp.experts.gate", "mlp.experts.*.gate_proj", "ffn_gate_exps"},                          \
        {"mlp.experts.up", "mlp.experts.*.up_proj", "ffn_up_exps"},                                \
    {                                                                                              \
        "mlp.experts.down", "mlp.experts.*.down_proj", "ffn_down_exps"                             \
    }
/* Those of one expert that all tokens share, with a gate. */
#define TSR__SHARED_EXPERT_NAMES                                                                   \
    {"mlp.shared.gate", "mlp.shared_expert.gate_proj", "ffn_gate_shexp"},                          \
        {"mlp.shared.up", "mlp.shared_expert.up_proj", "ffn_up_shexp"},                            \
        {"mlp.shared.down", "mlp.shared_expert.down_proj", "ffn_down_shexp"},                      \
    {                                                                                              \
        "mlp.shared.router", "mlp.shared_expert_gate", "ffn_gate_inp_shexp"                        \
    }
/* The rows of a layer that predicts further tokens in files with hf_next_inside. */
#define TSR__NEXTN_NAMES                                                                           \
    {"next.embedding_norm", "enorm", "nextn.enorm"}, {"next.hidden_norm", "hnorm", "nextn.hnorm"}, \
        {"next.join", "eh_proj", "nextn.eh_proj"},                                                 \
    {                                                                                              \
        "next.norm", "shared_head.norm", "nextn.shared_head_norm"                                  \
    }
/* What Qwen3-Next and Qwen 3.5 have in common, without the projections of delta nets
 * (qwen3_next.c), and these projections in Qwen 3.5 (qwen3_5.c). */
#define TSR__QWEN3_NEXT_ATTENTION_NAMES                                                            \
    TSR__LLAMA_ATTENTION_NAMES, {"attention.gate", "self_attn.q_proj", "attn_q"},                  \
        {"delta_net.q_conv", "linear_attn.conv1d", "ssm_conv1d"},                                  \
        {"delta_net.k_conv", "linear_attn.conv1d", "ssm_conv1d"},                                  \
        {"delta_net.v_conv", "linear_attn.conv1d", "ssm_conv1d"},                                  \
        {"delta_net.a_log", "linear_attn.A_log", "ssm_a"},                                         \
        {"delta_net.dt_bias", "linear_attn.dt_bias", "ssm_dt.bias"},                               \
        {"delta_net.norm", "linear_attn.norm", "ssm_norm"},                                        \
        {"delta_net.o", "linear_attn.out_proj", "ssm_out"},                                        \
        {"next.embedding_norm", "pre_fc_norm_embedding", "nextn.enorm"},                           \
        {"next.hidden_norm", "pre_fc_norm_hidden", "nextn.hnorm"},                                 \
        {"next.join", "fc", "nextn.eh_proj"}, {"next.norm", "norm", "nextn.shared_head_norm"},     \
    {                                                                                              \
        "norm2", "post_attention_layernorm", "post_attention_norm"                                 \
    }
#define TSR__QWEN3_5_DELTA_NAMES                                                                   \
    {"delta_net.q", "linear_attn.in_proj_qkv", "attn_qkv"},                                        \
        {"delta_net.k", "linear_attn.in_proj_qkv", "attn_qkv"},                                    \
        {"delta_net.v", "linear_attn.in_proj_qkv", "attn_qkv"},                                    \
        {"delta_net.z", "linear_attn.in_proj_z", "attn_gate"},                                     \
        {"delta_net.beta", "linear_attn.in_proj_b", "ssm_beta"},                                   \
    {                                                                                              \
        "delta_net.alpha", "linear_attn.in_proj_a", "ssm_alpha"                                    \
    }
extern const tsr__delta_keys tsr__qwen3_5_delta_keys;
#define TSR__MIXTRAL_EXPERT_NAMES                                                                  \
    {"mlp.router", "block_sparse_moe.gate", "ffn_gate_inp"},                                       \
        {"mlp.experts.gate", "block_sparse_moe.experts.*.w1", "ffn_gate_exps"},                    \
        {"mlp.experts.up", "block_sparse_moe.experts.*.w3", "ffn_up_exps"},                        \
    {                                                                                              \
        "mlp.experts.down", "block_sparse_moe.experts.*.w2", "ffn_down_exps"                       \
    }
extern const tsr__weight_name tsr__qwen3_moe_inside[];
/* What Gemma 2 and 3 have in common (gemma2.c), and OLMo 2 and 3 (olmo2.c). */
extern const tsr__config_keys tsr__gemma_keys;
extern const tsr__weight_name tsr__gemma_inside[], tsr__olmo2_inside[];
#define TSR__LIKE_LLAMA TSR__LIKE_LLAMA_BUT(tsr__llama_inside)
/* The same with other names of the weights inside layers. */
#define TSR__LIKE_LLAMA_BUT(names)                                                                 \
    .hf_prefix = "model.", .hf_block = "layers.", .keys = &tsr__llama_keys,                        \
    .outside = tsr__llama_outside, .inside = (names), .norm = TSR_NORM_RMS
#define TSR__LIKE_GEMMA                                                                            \
    .hf_prefix = "model.", .hf_block = "layers.", .keys = &tsr__gemma_keys,                        \
    .outside = tsr__llama_outside, .inside = tsr__gemma_inside, .norm = TSR_NORM_RMS,              \
    .tied = true, .windows = TSR__WINDOWS_PERIODIC, .hf_norms_less_one = true,                     \
    .embedding_by_width = true, .query_scalar = true

/* Returns the family whose `name` this is, or NULL. */
const tsr__family *tsr__family_by_name(const char *name);
/* Returns the family whose `gguf` this is, or NULL. */
const tsr__family *tsr__family_by_gguf(const char *name, bool has_window, bool has_experts);
#define TSR__FAMILY_NAMES 464
/* Writes the names of all families, separated by commas, to `text` and returns it. */
char *tsr__family_names(size_t size, char *text);

/* Returns the names of one of our weights, whose name may end in ".weight" or ".bias"; NULL: the
 * family has no such weight. */
const tsr__weight_name *tsr__family_weight(const tsr__family *family, bool inside,
                                           const char *ours);

#endif
