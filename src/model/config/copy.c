/* Configurations of the caller: checked, and copied to memory of the library. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/config/config.h"

/* Checks the sizes of one kind of layer in the way in which those of files are checked. */
static tsr_status check_kind(const tsr_model_config *c, const tsr_model_layer *layer)
{
    tsr__facts facts;
    tsr__config *checked = NULL;
    tsr__facts_init(&facts);
    facts.family = tsr__family_by_name(c->architecture);
    facts.file = "model: configuration";
    facts.layers = c->layers;
    facts.width = c->width;
    const bool has_state = tsr__layer_has_state(layer);
    facts.heads = has_state ? 1 : layer->heads;
    facts.kv_heads = has_state ? 1 : layer->kv_heads;
    facts.head_dim = has_state ? 2 : layer->head_dim;
    if (!has_state && !layer->latent)
        facts.value_dim = layer->value_dim;
    facts.delta.period = 1; /* no layer has a delta net, which is checked below */
    TSR__REQUIRE(
        !layer->latent == !facts.family->latent,
        "model: configuration: a layer has %s attention; models of architecture %s have %s",
        layer->latent ? "latent" : "no latent", c->architecture,
        facts.family->latent ? "latent attention" : "no latent attention");
    if (layer->latent) /* checked below */
        facts.latent = (tsr__latent_facts){
            .q_rank = 0, .kv_rank = 1, .nope = 1, .rope = 2, .value = 1, .head = 3};
    facts.hidden = layer->experts && !layer->experts->beside_mlp ? 1 : layer->hidden;
    facts.layer_input = c->layer_input;
    if (facts.family->expert_keys) { /* experts are checked below, and with their own errors */
        facts.experts.count = facts.experts.used = facts.experts.hidden = 1;
        facts.experts.shared_hidden = 0;
        facts.experts.first_dense = c->layers;
    }
    facts.vocabulary = c->vocabulary;
    facts.context = c->context;
    facts.norm_epsilon = c->norm_epsilon;
    TSR__TRY(tsr__config_make(&facts, &checked));
    tsr__free(checked);
    TSR__REQUIRE(layer->window >= 0 && layer->window <= TSR_MODEL_MAX_CONTEXT,
                 "model: configuration: a window is %" PRId64 "; 0 to %d is possible",
                 layer->window, TSR_MODEL_MAX_CONTEXT);
    TSR__REQUIRE((unsigned)layer->qk_norm <= TSR_QK_NORM_WHOLE &&
                     (unsigned)layer->norms <= TSR_BLOCK_NORMS_BOTH,
                 "model: configuration: qk_norm is %d and norms %d; 0 to %d are possible",
                 (int)layer->qk_norm, (int)layer->norms, TSR_BLOCK_NORMS_BOTH);
    TSR__REQUIRE(isfinite(layer->attention_scale) && isfinite(layer->softcap) &&
                     layer->softcap >= 0,
                 "model: configuration: attention_scale is %g and softcap %g",
                 layer->attention_scale, layer->softcap);
    TSR__REQUIRE(
        isfinite(layer->temperature) &&
            (layer->temperature == 0 || (layer->temperature_length >= 1 &&
                                         layer->temperature_length <= TSR_MODEL_MAX_CONTEXT)),
        "model: configuration: temperature is %g and temperature_length %" PRId64,
        layer->temperature, layer->temperature_length);
    TSR__REQUIRE(!layer->keys_as_values || layer->value_dim == layer->head_dim,
                 "model: configuration: values are keys, but value_dim is %" PRId64
                 " and head_dim %" PRId64,
                 layer->value_dim, layer->head_dim);
    TSR__REQUIRE(!layer->long_rope || layer->rope,
                 "model: configuration: a layer has long_rope, but no rope");
    TSR__REQUIRE(!layer->experts || facts.family->expert_keys,
                 "model: configuration: a layer has experts, but models of architecture %s do not",
                 c->architecture);
    TSR__REQUIRE(!layer->delta_net || facts.family->delta_keys,
                 "model: configuration: a layer has a delta net, but models of architecture %s do "
                 "not",
                 c->architecture);
    TSR__REQUIRE(!layer->output_gate || facts.family->layer.output_gate,
                 "model: configuration: output_gate is true, but attention has no gate in models "
                 "of architecture %s",
                 c->architecture);
    if (layer->latent)
        TSR__TRY(tsr__latent_check("model: configuration", layer));
    TSR__REQUIRE(layer->conv_taps == 0 || (facts.family->short_convs && !layer->delta_net),
                 "model: configuration: a layer has conv_taps %d; models of architecture %s%s",
                 layer->conv_taps, c->architecture,
                 facts.family->short_convs ? " have no delta net beside it"
                                           : " have no short convolutions");
    if (has_state)
        TSR__TRY(tsr__state_layer_check("model: configuration", layer));
    if (layer->delta_net)
        TSR__TRY(tsr__delta_net_check("model: configuration", layer->delta_net));
    if (layer->conv_taps != 0)
        TSR__TRY(tsr__conv_taps_check("model: configuration", layer->conv_taps));
    return layer->experts ? tsr__experts_check("model: configuration", layer->experts) : TSR_OK;
}

/* Replaces factors of 0 by 1, and checks them. */
static tsr_status complete_factors(tsr_model_config *c)
{
    double *factors[] = {&c->embedding_scale, &c->residual_scale, &c->logit_scale};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        if (*factors[i] == 0)
            *factors[i] = 1;
        TSR__REQUIRE(isfinite(*factors[i]), "model: configuration: a factor is %g", *factors[i]);
    }
    TSR__REQUIRE(isfinite(c->logit_softcap) && c->logit_softcap >= 0,
                 "model: configuration: logit_softcap is %g; it must not be negative",
                 c->logit_softcap);
    return TSR_OK;
}

/* Copies rotary positions with their divisors to number `index` of those of `copy`, and sets *rope
 * to the copy. */
static tsr_status copy_rope(const tsr_rope_params **rope, int index, tsr__config *copy)
{
    tsr_rope_params *to = &copy->ropes[index];
    if (!*rope)
        return TSR_OK;
    TSR__TRY(TSR__TAKE_PART(tsr_rope_params, *rope, to));
    if (to->divisors && to->rotary_dim >= 0 && to->rotary_dim / 2 <= TSR__MOST_PAIRS) {
        memcpy(copy->divisors[index], to->divisors, (size_t)to->rotary_dim / 2 * sizeof(float));
        to->divisors = copy->divisors[index];
    }
    *rope = to;
    return TSR_OK;
}

/* Copies the description of a kind of layer, with its rotary positions. */
static tsr_status copy_kind(const tsr_model_layer *given, int kind, tsr__config *copy)
{
    tsr_model_layer *layer = &copy->kinds[kind];
    TSR__REQUIRE(given, "model: configuration: kinds[%d] is NULL", kind);
    TSR__TRY(TSR__TAKE_PART(tsr_model_layer, given, layer));
    if (layer->experts) {
        TSR__TRY(TSR__TAKE_PART(tsr_model_experts, layer->experts, &copy->experts[kind]));
        layer->experts = &copy->experts[kind];
    }
    if (layer->latent) {
        TSR__TRY(TSR__TAKE_PART(tsr_model_latent, layer->latent, &copy->latents[kind]));
        layer->latent = &copy->latents[kind];
    }
    if (layer->delta_net) {
        tsr_model_delta_net *net = &copy->delta_nets[kind];
        TSR__TRY(TSR__TAKE_PART(tsr_model_delta_net, layer->delta_net, net));
        if (net->taps == 0)
            net->taps = TSR__USUAL_TAPS;
        layer->delta_net = net;
    }
    if (layer->value_dim == 0)
        layer->value_dim = layer->latent ? layer->latent->value_dim : layer->head_dim;
    TSR__TRY(copy_rope(&layer->rope, 2 * kind, copy));
    return copy_rope(&layer->long_rope, 2 * kind + 1, copy);
}

static tsr_status check_next_layers(const tsr_model_config *c)
{
    TSR__REQUIRE(c->next_token_layers >= 0 &&
                     c->next_token_layers <= TSR_MODEL_MAX_NEXT_TOKEN_LAYERS,
                 "model: configuration: next_token_layers is %d; 0 to %d is possible",
                 c->next_token_layers, TSR_MODEL_MAX_NEXT_TOKEN_LAYERS);
    TSR__REQUIRE(c->next_token_layers == 0 || tsr__family_by_name(c->architecture)->hf_next_layers,
                 "model: configuration: next_token_layers is %d, but models of architecture %s "
                 "have none",
                 c->next_token_layers, c->architecture);
    TSR__REQUIRE(c->next_token_layers == 0 || tsr__config_attention_layer(c),
                 "model: configuration: next_token_layers is %d, but no layer has attention",
                 c->next_token_layers);
    return TSR_OK;
}

static tsr_status copy_config(const tsr_model_config *given, tsr__config *copy)
{
    char names[TSR__FAMILY_NAMES];
    tsr_model_config *c = &copy->public;
    TSR__TRY(TSR__TAKE_PART(tsr_model_config, given, c));
    TSR__REQUIRE(c->architecture && tsr__family_by_name(c->architecture),
                 "model: architecture is %.40s; known are %s",
                 c->architecture ? c->architecture : "NULL",
                 tsr__family_names(sizeof names, names));
    c->architecture = tsr__family_by_name(c->architecture)->name;
    TSR__REQUIRE(c->end_count >= 0 && c->end_count <= TSR_MODEL_MAX_END_TOKENS,
                 "model: configuration: end_count is %d; 0 to %d is possible", c->end_count,
                 TSR_MODEL_MAX_END_TOKENS);
    TSR__REQUIRE(c->kinds && c->kind_count >= 1 && c->kind_count <= TSR_MODEL_MAX_LAYER_KINDS,
                 "model: configuration: kind_count is %d%s; 1 to %d is possible", c->kind_count,
                 c->kinds ? "" : ", and kinds is NULL", TSR_MODEL_MAX_LAYER_KINDS);
    for (int i = 0; i < c->kind_count; i++)
        TSR__TRY(copy_kind(c->kinds[i], i, copy));
    c->kinds = copy->kind_pointers;
    TSR__TRY(complete_factors(c));
    for (int i = 0; i < c->kind_count; i++)
        TSR__TRY(check_kind(c, c->kinds[i]));
    for (int i = 0; c->layer_kinds && i < c->layers; i++) {
        TSR__REQUIRE(c->layer_kinds[i] < c->kind_count,
                     "model: configuration: layer %d is of kind %d; there are %d kinds", i,
                     c->layer_kinds[i], c->kind_count);
        copy->layer_kinds[i] = c->layer_kinds[i];
    }
    c->layer_kinds = copy->layer_kinds;
    for (int i = 0; i < c->layers; i++)
        TSR__TRY(tsr__config_check_shared("model: configuration", c, i));
    return check_next_layers(c);
}

tsr_status tsr__config_copy(const tsr_model_config *config, tsr__config **out)
{
    tsr__config *copy = tsr__config_create();
    if (!copy)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = copy_config(config, copy);
    if (status == TSR_OK)
        *out = copy;
    else
        tsr__free(copy);
    return status;
}
