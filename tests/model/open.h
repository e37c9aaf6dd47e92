/* Shorter forms of the functions of model.h that take an opened file: they take a path, or a
 * configuration for random weights, and open and close the file themselves. */
#ifndef TESTS_MODEL_OPEN_H
#define TESTS_MODEL_OPEN_H

#include <string.h>

#include "base/error.h"
#include "tessera/convert.h"
#include "tessera/generator.h"
#include "tessera/model.h"

/* The families as errors name them. */
#define MODEL_FAMILIES                                                                             \
    "llama, mistral, qwen2, qwen3, gpt2, smollm3, granite, olmo2, olmo3, gemma2, gemma3_text, "    \
    "phi3, ministral3, qwen3_moe, mixtral, gpt_oss, qwen2_moe, olmoe, glm4_moe, granitemoe, "      \
    "minimax_m2, qwen3_next, qwen3_5_text, qwen3_5_moe_text, deepseek_v3, deepseek_v2, kimi_k2, "  \
    "glm4_moe_lite, gemma4_text, lfm2, lfm2_moe"

/* A configuration in which all layers are equal, except for the layers before `window_from`, which
 * have no window. */
typedef struct flat_config {
    const char *architecture;
    int layers;
    int64_t width, heads, kv_heads, head_dim, hidden, vocabulary, context;
    double norm_epsilon;
    tsr_norm_kind norm;
    bool norm_bias, qkv_bias, output_bias, mlp_bias, qk_norm, gated;
    tsr_activation activation;
    bool learned_positions;
    tsr_rope_params rope;
    int64_t window;
    int window_from;
    bool tied;
    int32_t bos;
    int end_count;
    int32_t end[TSR_MODEL_MAX_END_TOKENS];
} flat_config;

static inline const tsr_model_layer *layer_of(const tsr_model_config *c, int layer)
{
    return c->kinds[c->layer_kinds[layer]];
}

static inline void flatten(const tsr_model_config *c, flat_config *out)
{
    const tsr_model_layer *last = layer_of(c, c->layers - 1);
    memset(out, 0, sizeof *out);
    *out = (flat_config){.architecture = c->architecture,
                         .layers = c->layers,
                         .width = c->width,
                         .heads = last->heads,
                         .kv_heads = last->kv_heads,
                         .head_dim = last->head_dim,
                         .hidden = last->hidden,
                         .vocabulary = c->vocabulary,
                         .context = c->context,
                         .norm_epsilon = c->norm_epsilon,
                         .norm = c->norm,
                         .norm_bias = c->norm_bias,
                         .qkv_bias = last->qkv_bias,
                         .output_bias = last->output_bias,
                         .mlp_bias = last->mlp_bias,
                         .qk_norm = last->qk_norm,
                         .gated = last->gated,
                         .activation = last->activation,
                         .learned_positions = c->learned_positions,
                         .window = last->window,
                         .tied = c->tied,
                         .bos = c->bos,
                         .end_count = c->end_count};
    memcpy(out->end, c->end, sizeof out->end);
    if (last->rope)
        out->rope = *last->rope;
    while (out->window > 0 && layer_of(c, out->window_from)->window == 0)
        out->window_from++;
}

static inline tsr_status read_flat(const char *path, flat_config *out)
{
    tsr_model_file *file = NULL;
    const tsr_status status = tsr_model_file_open(path, out ? &file : NULL);
    if (status == TSR_OK)
        flatten(tsr_model_file_config(file), out);
    tsr_model_file_close(&file);
    return status;
}

/* Opens a model from a file that has been opened with this status. All ranks get an error if one
 * of them has no file. */
static inline tsr_status open_from(tsr_status status, tsr_model_file **file,
                                   const tsr_model_params *params, tsr_model **out)
{
    const tsr__error before = tsr__error_take();
    const tsr_status opened = tsr_model_open(*file, params, out);
    if (status != TSR_OK)
        tsr__error_put_back(&before);
    tsr_model_file_close(file);
    return status != TSR_OK ? status : opened;
}

static inline tsr_status open_model(const char *path, const tsr_model_params *params,
                                    tsr_model **out)
{
    tsr_model_file *file = NULL;
    return open_from(tsr_model_file_open(path, &file), &file, params, out);
}

static inline tsr_status create_random(const flat_config *flat, tsr_dtype dtype, uint64_t seed,
                                       const tsr_model_params *params, tsr_model **out)
{
    if (!flat)
        return tsr_model_file_open_random(NULL, dtype, seed, &(tsr_model_file *){NULL});
    tsr_rope_params rope = flat->rope;
    rope.struct_size = sizeof rope;
    const tsr_model_layer layer = {.struct_size = sizeof layer,
                                   .heads = flat->heads,
                                   .kv_heads = flat->kv_heads,
                                   .head_dim = flat->head_dim,
                                   .hidden = flat->hidden,
                                   .window = flat->window,
                                   .rope = flat->learned_positions ? NULL : &rope,
                                   .qkv_bias = flat->qkv_bias,
                                   .output_bias = flat->output_bias,
                                   .mlp_bias = flat->mlp_bias,
                                   .qk_norm = flat->qk_norm,
                                   .gated = flat->gated,
                                   .activation = flat->activation};
    tsr_model_config config = {.struct_size = sizeof config,
                               .architecture = flat->architecture,
                               .layers = flat->layers,
                               .width = flat->width,
                               .vocabulary = flat->vocabulary,
                               .context = flat->context,
                               .norm_epsilon = flat->norm_epsilon,
                               .norm = flat->norm,
                               .norm_bias = flat->norm_bias,
                               .learned_positions = flat->learned_positions,
                               .tied = flat->tied,
                               .bos = flat->bos,
                               .end_count = flat->end_count,
                               .kind_count = 1,
                               .kinds = (const tsr_model_layer *const[]){&layer}};
    tsr_model_file *file = NULL;
    const tsr_status status = tsr_model_file_open_random(&config, dtype, seed, &file);
    return open_from(status, &file, params, out);
}

/* Opens a model with random weights in which two of three layers are delta nets. With next_token of
 * the params, a token is mostly a function of the one before it. */
static inline tsr_status open_delta_file(int64_t vocabulary, int64_t context, uint64_t seed,
                                         const tsr_model_params *params, tsr_model_file **file)
{
    static const tsr_model_delta_net net = {.struct_size = sizeof net,
                                            .key_heads = 2,
                                            .heads = 4,
                                            .key_dim = 8,
                                            .value_dim = 12,
                                            .taps = 4};
    static const tsr_rope_params rope = {
        .struct_size = sizeof rope, .rotary_dim = 8, .theta = 10000};
    static const tsr_model_layer delta = {.struct_size = sizeof delta,
                                          .hidden = 48,
                                          .gated = true,
                                          .activation = TSR_ACT_SILU,
                                          .delta_net = &net};
    static const tsr_model_layer attention = {.struct_size = sizeof attention,
                                              .heads = 4,
                                              .kv_heads = 2,
                                              .head_dim = 8,
                                              .hidden = 48,
                                              .rope = &rope,
                                              .qk_norm = TSR_QK_NORM_HEADS,
                                              .gated = true,
                                              .activation = TSR_ACT_SILU,
                                              .output_gate = true};
    const bool next = params && params->next_token;
    const tsr_model_config config = {.struct_size = sizeof config,
                                     .architecture = "qwen3_5_text",
                                     .layers = 3,
                                     .width = 32,
                                     .vocabulary = vocabulary,
                                     .context = context,
                                     .norm_epsilon = 1e-6,
                                     .norm = TSR_NORM_RMS,
                                     .bos = -1,
                                     .kind_count = 2,
                                     .kinds = (const tsr_model_layer *const[]){&delta, &attention},
                                     .layer_kinds = (const uint16_t[]){0, 1, 0},
                                     .embedding_scale = next ? 100 : 1,
                                     .next_token_layers = next ? 1 : 0};
    return tsr_model_file_open_random(&config, TSR_F32, seed, file);
}

static inline tsr_status open_delta(int64_t vocabulary, int64_t context, uint64_t seed,
                                    const tsr_model_params *params, tsr_model **out)
{
    tsr_model_file *file = NULL;
    const tsr_status status = open_delta_file(vocabulary, context, seed, params, &file);
    return open_from(status, &file, params, out);
}

/* The ranks of a plan, or 1 if there is no plan with so many. */
static inline int ranks_of(const tsr_model_plan_params *params)
{
    return params && params->ranks > 0 && params->ranks <= TSR_MODEL_PLAN_MAX_RANKS ? params->ranks
                                                                                    : 1;
}

static inline tsr_status plan_model(const char *path, const tsr_model_plan_params *params,
                                    const uint64_t *memory_bytes, tsr_model_rank_plan *ranks,
                                    tsr_model_fit *fit)
{
    tsr_model_file *file = NULL;
    for (int i = 0; ranks && i < ranks_of(params); i++)
        ranks[i] = TSR_INIT(tsr_model_rank_plan);
    if (fit)
        *fit = TSR_INIT(tsr_model_fit);
    tsr_status status = tsr_model_file_open(path, &file);
    if (status == TSR_OK)
        status = tsr_model_plan(file, params, memory_bytes, ranks, fit);
    tsr_model_file_close(&file);
    return status;
}

static inline tsr_status convert_model(const char *source, const char *destination,
                                       const tsr_convert_params *params, tsr_convert_stats *out)
{
    tsr_model_file *file = NULL;
    tsr_status status = source ? tsr_model_file_open(source, &file) : TSR_OK;
    if (status == TSR_OK)
        status = tsr_model_convert(file, destination, params, out);
    tsr_model_file_close(&file);
    return status;
}

/* Makes a step and copies its tokens to tokens[*count]. */
static inline tsr_status step_tokens(tsr_generator *generator, tsr_generated *tokens, int *count)
{
    const tsr_status status = tsr_generator_step(generator, count);
    for (int i = 0; status == TSR_OK && i < *count; i++)
        tokens[i] = *tsr_generator_token(generator, i);
    return status;
}

#endif
