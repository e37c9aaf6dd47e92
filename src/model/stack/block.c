/* Creates the blocks of a stack, each with the layers that its kind has. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/stack/stack.h"
#include "model/weights/weights.h"

#define NAME_SIZE 48

/* Layers have the names of Hugging Face's files, without the prefix. Their initial weights depend
 * on them. */
const char *tsr__stack_layer_name(const tsr_stack *s, const char *ours)
{
    const bool inside = strncmp(ours, "next.", 5) == 0;
    return tsr__family_weight(s->family, inside, ours)->hf;
}

tsr_init_params tsr__stack_init(const tsr__stack_options *o, uint64_t seed, float deviation)
{
    return (tsr_init_params){.struct_size = sizeof(tsr_init_params),
                             .kind = o->deviation > 0 ? TSR_INIT_NORMAL : TSR_INIT_NONE,
                             .seed = seed,
                             .deviation = deviation};
}

bool tsr__layer_is_long(const tsr_model_layer *layer, int64_t context)
{
    return layer->long_rope && (double)context > layer->rope->original_length;
}

/* DeepSeek adds this to the sum of sigmoid scores by which weights are divided. */
#define SIGMOID_EPSILON 1e-20F

static tsr_route_params route_of(const tsr_model_experts *e)
{
    return (tsr_route_params){.struct_size = sizeof(tsr_route_params),
                              .gating = e->gating,
                              .groups = e->groups,
                              .groups_used = e->groups_used,
                              .normalise = e->normalise,
                              .epsilon = e->gating == TSR_GATING_SIGMOID ? SIGMOID_EPSILON : 0,
                              .scale = (float)e->scale};
}

/* What the params of a block's layers have in common. */
typedef struct common_params {
    float epsilon;
    tsr_dtype norm_dtype;
    tsr_partition_params heads;
    tsr_init_params init, output_init;
    bool is_long, tiled_heads;
    tsr_group *context_group;
} common_params;

static tsr_delta_net_params delta_net_of(const tsr_model_layer *layer, const common_params *common)
{
    const tsr_model_delta_net *net = layer->delta_net;
    return (tsr_delta_net_params){.struct_size = sizeof(tsr_delta_net_params),
                                  .key_heads = net->key_heads,
                                  .heads = net->heads,
                                  .key_dim = net->key_dim,
                                  .value_dim = net->value_dim,
                                  .taps = net->taps,
                                  .tiled_heads = common->tiled_heads,
                                  .context_group = common->context_group,
                                  .norm_epsilon = common->epsilon,
                                  .partition = &common->heads,
                                  .init = &common->init,
                                  .output_init = &common->output_init};
}

static tsr_short_conv_params short_conv_of(const tsr_model_layer *layer,
                                           const common_params *common)
{
    return (tsr_short_conv_params){.struct_size = sizeof(tsr_short_conv_params),
                                   .taps = layer->conv_taps,
                                   .context_group = common->context_group,
                                   .partition = &common->heads,
                                   .init = &common->init,
                                   .output_init = &common->output_init};
}

static tsr_latent_attention_params latent_attention_of(const tsr_model_layer *layer,
                                                       const common_params *common)
{
    const tsr_model_latent *l = layer->latent;
    return (tsr_latent_attention_params){.struct_size = sizeof(tsr_latent_attention_params),
                                         .heads = layer->heads,
                                         .q_lora_rank = l->q_lora_rank,
                                         .kv_lora_rank = l->kv_lora_rank,
                                         .nope_dim = l->nope_dim,
                                         .rope_dim = l->rope_dim,
                                         .value_dim = l->value_dim,
                                         .rope = layer->rope,
                                         .causal = true,
                                         .scale = (float)layer->attention_scale,
                                         .norm_epsilon = common->epsilon,
                                         .norm_dtype = common->norm_dtype,
                                         .partition = &common->heads,
                                         .init = &common->init,
                                         .output_init = &common->output_init};
}

static tsr_self_attention_params attention_of(const tsr_model_layer *layer,
                                              const common_params *common)
{
    return (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                       .heads = layer->heads,
                                       .kv_heads = layer->kv_heads,
                                       .head_dim = layer->head_dim,
                                       .value_dim = layer->value_dim,
                                       .bias = layer->qkv_bias,
                                       .output_bias = layer->output_bias,
                                       .causal = true,
                                       .rope = common->is_long ? layer->long_rope : layer->rope,
                                       .qk_norm = layer->qk_norm,
                                       .window = layer->window,
                                       .scale = (float)layer->attention_scale,
                                       .temperature = (float)layer->temperature,
                                       .temperature_length = layer->temperature_length,
                                       .softcap = (float)layer->softcap,
                                       .sinks = layer->sinks,
                                       .output_gate = layer->output_gate,
                                       .value_norm = layer->value_norm,
                                       .keys_as_values = layer->keys_as_values,
                                       .shared_keys = layer->shared_keys,
                                       .context_group = common->context_group,
                                       .norm_epsilon = common->epsilon,
                                       .norm_dtype = common->norm_dtype,
                                       .partition = &common->heads,
                                       .init = &common->init,
                                       .output_init = &common->output_init};
}

/* Creates a block with the layer that mixes the tokens of this kind of layer. `block` has
 * everything else. */
static tsr_status create_with_mixer(const tsr_model_layer *layer, const common_params *common,
                                    tsr_block_params *block, tsr_layer **out)
{
    tsr_self_attention_params attention;
    tsr_latent_attention_params latent;
    tsr_delta_net_params net;
    tsr_short_conv_params conv;
    if (layer->delta_net) {
        net = delta_net_of(layer, common);
        block->delta_net = &net;
    } else if (layer->conv_taps > 0) {
        conv = short_conv_of(layer, common);
        block->short_conv = &conv;
    } else if (layer->latent) {
        latent = latent_attention_of(layer, common);
        block->latent_attention = &latent;
    } else {
        attention = attention_of(layer, common);
        block->attention = &attention;
    }
    return tsr_block_create(block, out);
}

/* Refuses layers that a context group cannot divide. */
static tsr_status check_context(const tsr__stack_options *o, const tsr_model_layer *layer)
{
    return o->context_group && layer->latent
               ? tsr__fail(TSR_ERR_UNSUPPORTED, "it has latent attention, whose sequences a "
                                                "context_group cannot divide")
               : TSR_OK;
}

tsr_status tsr__stack_create_block(tsr_stack *s, const tsr__stack_options *o, uint64_t seed,
                                   int number, tsr_layer **out)
{
    char name[NAME_SIZE];
    const tsr_model_config *c = s->config;
    const int kind = tsr__config_kind(c, number);
    const tsr_model_layer *layer = c->kinds[kind];
    TSR__TRY(check_context(o, layer));
    const tsr__kind_division division = o->divisions ? o->divisions[kind] : (tsr__kind_division){0};
    tsr_partition_params hidden = o->partition, shared = o->partition, mlp_hidden = o->partition;
    mlp_hidden.align = layer->experts ? division.mlp : division.hidden;
    hidden.align = division.hidden;
    hidden.limits = division.expert_limits;
    shared.align = division.shared;
    common_params common = {
        .epsilon = (float)c->norm_epsilon,
        .norm_dtype = o->norm_dtype,
        .heads = o->partition,
        .init = tsr__stack_init(o, seed, o->deviation),
        .output_init = tsr__stack_init(o, seed, o->deviation / sqrtf(2.0F * (float)c->layers)),
        .is_long = tsr__layer_is_long(layer, o->context > 0 ? o->context : c->context),
        .tiled_heads = o->tiled_delta_nets,
        .context_group = o->context_group};
    common.heads.align = division.heads;
    const tsr_model_experts none = {0}, *e = layer->experts ? layer->experts : &none;
    const tsr_route_params route = route_of(e);
    const tsr_moe_params experts = {.struct_size = sizeof experts,
                                    .hidden_size = e->hidden,
                                    .experts = e->count,
                                    .experts_used = e->used,
                                    .route = &route,
                                    .router_bias = e->router_bias,
                                    .choice_bias = e->choice_bias,
                                    .bias = e->bias,
                                    .activation = e->activation,
                                    .limit = (float)e->limit,
                                    .shared_size = e->shared_hidden,
                                    .shared_gate = e->shared_gate,
                                    .whole_experts = division.whole_experts,
                                    .teams = division.teams,
                                    .partition = &hidden,
                                    .shared_partition = &shared,
                                    .init = &common.init,
                                    .output_init = &common.output_init,
                                    .experts_over_data = o->experts_over_data,
                                    .input_norm = e->beside_mlp,
                                    .router_norm = e->router_norm,
                                    .expert_scale = e->expert_scale,
                                    .norm_epsilon = common.epsilon};
    const tsr_mlp_params mlp = {.struct_size = sizeof mlp,
                                .hidden_size = layer->hidden,
                                .bias = layer->mlp_bias,
                                .gated = layer->gated,
                                .activation = layer->activation,
                                .partition = &mlp_hidden,
                                .init = &common.init,
                                .output_init = &common.output_init};
    const tsr_norm_params norm = {.struct_size = sizeof norm,
                                  .kind = c->norm,
                                  .bias = c->norm_bias,
                                  .epsilon = common.epsilon,
                                  .dtype = o->norm_dtype};
    tsr_block_params block = {.struct_size = sizeof block,
                              .group = s->group,
                              .name = name,
                              .size = c->width,
                              .dtype = s->dtype,
                              .deferred = true,
                              .recompute = o->recompute,
                              .norms = layer->norms,
                              .residual_scale = (float)c->residual_scale,
                              .norm = &norm,
                              .layer_input = c->layer_input,
                              .output_scale = layer->output_scale,
                              .mlp = layer->experts && !e->beside_mlp ? NULL : &mlp,
                              .experts = layer->experts ? &experts : NULL};
    snprintf(name, sizeof name, "%s%d", s->family->hf_block, number);
    return create_with_mixer(layer, &common, &block, out);
}

int tsr__stack_keys_layer(const tsr_stack *s, int index)
{
    return tsr__config_keys_layer(s->config, s->first_layer + index) - s->first_layer;
}
