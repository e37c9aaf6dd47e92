/* Shapes of models that can be generated. */
#include <stdio.h>
#include <string.h>

#include "bench/model/model.h"

#define LAYER(width_, hidden_, heads_, kv_heads_)                                                  \
    (&(const tsr_model_layer){.struct_size = sizeof(tsr_model_layer),                              \
                              .heads = (heads_),                                                   \
                              .kv_heads = (kv_heads_),                                             \
                              .head_dim = (width_) / (heads_),                                     \
                              .hidden = (hidden_),                                                 \
                              .gated = true,                                                       \
                              .activation = TSR_ACT_SILU,                                          \
                              .rope =                                                              \
                                  &(const tsr_rope_params){.struct_size = sizeof(tsr_rope_params), \
                                                           .rotary_dim = (width_) / (heads_)}})
#define LLAMA(layers_, width_, hidden_, heads_, kv_heads_, context_)                               \
    {                                                                                              \
        .struct_size = sizeof(tsr_model_config), .architecture = "llama", .layers = (layers_),     \
        .width = (width_), .vocabulary = 32000, .context = (context_), .norm_epsilon = 1e-5,       \
        .norm = TSR_NORM_RMS, .bos = 1, .kind_count = 1,                                           \
        .kinds = (const tsr_model_layer *const[]){LAYER(width_, hidden_, heads_, kv_heads_)},      \
    }

/* Models with experts. Their layers have more options than those above. */
#define ROPE(dim_, theta_)                                                                         \
    (&(const tsr_rope_params){                                                                     \
        .struct_size = sizeof(tsr_rope_params), .rotary_dim = (dim_), .theta = (theta_)})
#define EXPERTS(count_, used_, hidden_, ...)                                                       \
    (&(const tsr_model_experts){.struct_size = sizeof(tsr_model_experts),                          \
                                .count = (count_),                                                 \
                                .used = (used_),                                                   \
                                .hidden = (hidden_),                                               \
                                __VA_ARGS__})
#define EXPERT_LAYER(heads_, kv_heads_, head_dim_, ...)                                            \
    (&(const tsr_model_layer){.struct_size = sizeof(tsr_model_layer),                              \
                              .heads = (heads_),                                                   \
                              .kv_heads = (kv_heads_),                                             \
                              .head_dim = (head_dim_),                                             \
                              .gated = true,                                                       \
                              .activation = TSR_ACT_SILU,                                          \
                              __VA_ARGS__})
#define EXPERT_MODEL(architecture_, layers_, width_, vocabulary_, context_, ...)                   \
    {                                                                                              \
        .struct_size = sizeof(tsr_model_config), .architecture = (architecture_),                  \
        .layers = (layers_), .width = (width_), .vocabulary = (vocabulary_),                       \
        .context = (context_), .norm_epsilon = 1e-5, .norm = TSR_NORM_RMS, .bos = 1, __VA_ARGS__   \
    }
#define KINDS(count_, ...)                                                                         \
    .kind_count = (count_), .kinds = (const tsr_model_layer *const[])                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

#define QWEN3_LAYER                                                                                \
    EXPERT_LAYER(32, 4, 128, .qk_norm = TSR_QK_NORM_HEADS, .rope = ROPE(128, 1e6),                 \
                 .experts = EXPERTS(128, 8, 768, .normalise = true))
#define MIXTRAL_LAYER                                                                              \
    EXPERT_LAYER(32, 8, 128, .rope = ROPE(128, 1e6),                                               \
                 .experts = EXPERTS(8, 2, 14336, .normalise = true))
#define GPT_OSS_ROPE                                                                               \
    (&(const tsr_rope_params){.struct_size = sizeof(tsr_rope_params),                              \
                              .rotary_dim = 64,                                                    \
                              .theta = 150000,                                                     \
                              .scaling = TSR_ROPE_SCALING_YARN,                                    \
                              .factor = 32,                                                        \
                              .original_length = 4096,                                             \
                              .exact_range = true})
#define GPT_OSS_LAYER(experts_, window_)                                                           \
    EXPERT_LAYER(64, 8, 64, .window = (window_), .rope = GPT_OSS_ROPE, .qkv_bias = true,           \
                 .output_bias = true, .sinks = true,                                               \
                 .experts = EXPERTS(experts_, 4, 2880, .gating = TSR_GATING_SOFTMAX_CHOSEN,        \
                                    .router_bias = true, .bias = true,                             \
                                    .activation = TSR_EXPERT_SWIGLU_OAI, .limit = 7))
#define GLM_LAYER(...)                                                                             \
    EXPERT_LAYER(96, 8, 128, .rope = ROPE(64, 1e6), .qkv_bias = true, .hidden = 10944, __VA_ARGS__)
#define GLM_EXPERTS                                                                                \
    EXPERTS(128, 8, 1408, .gating = TSR_GATING_SIGMOID, .normalise = true, .choice_bias = true,    \
            .shared_hidden = 1408)

#define GLM_LITE_LATENT                                                                            \
    (&(const tsr_model_latent){.struct_size = sizeof(tsr_model_latent),                            \
                               .q_lora_rank = 768,                                                 \
                               .kv_lora_rank = 512,                                                \
                               .nope_dim = 192,                                                    \
                               .rope_dim = 64,                                                     \
                               .value_dim = 256})
#define GLM_LITE_LAYER(...)                                                                        \
    EXPERT_LAYER(20, 20, 256, .latent = GLM_LITE_LATENT, .rope = ROPE(64, 1e6), .hidden = 10240,   \
                 __VA_ARGS__)
#define GLM_LITE_EXPERTS                                                                           \
    EXPERTS(64, 4, 1536, .gating = TSR_GATING_SIGMOID, .normalise = true, .choice_bias = true,     \
            .shared_hidden = 1536, .scale = 1.8)

#define QWEN3_5_DELTA_NET(heads_)                                                                  \
    (&(const tsr_model_delta_net){.struct_size = sizeof(tsr_model_delta_net),                      \
                                  .key_heads = 16,                                                 \
                                  .heads = (heads_),                                               \
                                  .key_dim = 128,                                                  \
                                  .value_dim = 128,                                                \
                                  .taps = 4})
#define QWEN3_5_LAYERS(heads_, kv_heads_, delta_heads_, ...)                                       \
    KINDS(2, EXPERT_LAYER(0, 0, 0, .delta_net = QWEN3_5_DELTA_NET(delta_heads_), __VA_ARGS__),     \
          EXPERT_LAYER(heads_, kv_heads_, 256, .rope = ROPE(64, 1e7),                              \
                       .qk_norm = TSR_QK_NORM_HEADS, .output_gate = true, __VA_ARGS__)),           \
        .layer_kinds = every_fourth
#define QWEN3_5_EXPERTS                                                                            \
    EXPERTS(256, 8, 512, .normalise = true, .shared_hidden = 512, .shared_gate = true)

/* The kinds of Qwen 3.5's layers: every fourth has attention. */
static const uint16_t every_fourth[64] = {
    0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1,
    0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1};
/* The kinds of gpt-oss's layers: with and without a window. */
static const uint16_t alternating[36] = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1,
                                         0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
/* The kinds of layers of GLM's models: the first one has no experts. */
static const uint16_t after_the_first[47] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                             0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                             0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

static const bench_model_shape shapes[] = {
    {"llama-1b", LLAMA(22, 2048, 5632, 32, 4, 2048)},   /* TinyLlama 1.1B */
    {"llama-7b", LLAMA(32, 4096, 11008, 32, 32, 4096)}, /* Llama 2 7B */
    {"llama-110m", LLAMA(12, 768, 2048, 12, 12, 1024)}, /* llama2.c's stories110M */
    {"llama-15m", LLAMA(6, 256, 768, 8, 4, 1024)},      /* about as large as stories15M */
    {"qwen3-30b-a3b", EXPERT_MODEL("qwen3_moe", 48, 2048, 151936, 40960, KINDS(1, QWEN3_LAYER))},
    {"gpt-oss-20b", EXPERT_MODEL("gpt_oss", 24, 2880, 201088, 131072,
                                 KINDS(2, GPT_OSS_LAYER(32, 128), GPT_OSS_LAYER(32, 0)),
                                 .layer_kinds = alternating)},
    {"gpt-oss-120b", EXPERT_MODEL("gpt_oss", 36, 2880, 201088, 131072,
                                  KINDS(2, GPT_OSS_LAYER(128, 128), GPT_OSS_LAYER(128, 0)),
                                  .layer_kinds = alternating)},
    {"glm-4.5-air",
     EXPERT_MODEL("glm4_moe", 46, 4096, 151552, 131072,
                  KINDS(2, GLM_LAYER(.experts = GLM_EXPERTS), GLM_LAYER(.experts = NULL)),
                  .layer_kinds = after_the_first)},
    {"mixtral-8x7b", EXPERT_MODEL("mixtral", 32, 4096, 32000, 32768, KINDS(1, MIXTRAL_LAYER))},
    {"qwen3.5-27b", EXPERT_MODEL("qwen3_5_text", 64, 5120, 248320, 262144,
                                 QWEN3_5_LAYERS(24, 4, 48, .hidden = 17408))},
    {"qwen3.5-35b-a3b", EXPERT_MODEL("qwen3_5_moe_text", 40, 2048, 248320, 262144,
                                     QWEN3_5_LAYERS(16, 2, 32, .experts = QWEN3_5_EXPERTS))},
    {"glm-4.7-flash", EXPERT_MODEL("glm4_moe_lite", 47, 2048, 154880, 202752,
                                   KINDS(2, GLM_LITE_LAYER(.experts = GLM_LITE_EXPERTS),
                                         GLM_LITE_LAYER(.experts = NULL)),
                                   .layer_kinds = after_the_first)},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

const bench_model_shape *bench_model_shape_find(const char *name)
{
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

/* Writes the names of all shapes, separated by commas, to `text` and returns it. */
static char *all_names(size_t size, char *text)
{
    size_t used = 0;
    for (size_t i = 0; i < SHAPES && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", shapes[i].name);
    return text;
}

bool bench_model_read_shape(void *user, const char *text, char *problem, size_t size)
{
    char names[256];
    const bench_model_shape *shape = bench_model_shape_find(text);
    if (shape == NULL)
        snprintf(problem, size, "takes %s, not '%.40s'", all_names(sizeof names, names), text);
    *(const bench_model_shape **)user = shape;
    return shape != NULL;
}
