/* Makes a configuration from the values that the files of a model have. */
#include "model/config/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"

static tsr_status size_within(const tsr__facts *facts, const char *what, int64_t value,
                              int64_t largest)
{
    TSR__REQUIRE(value != TSR__UNSET, "%s: there is no %s", facts->file, what);
    TSR__REQUIRE(value >= 1 && value <= largest,
                 "%s: %s is %" PRId64 "; 1 to %" PRId64 " is possible", facts->file, what, value,
                 largest);
    return TSR_OK;
}

/* Checks the sizes of the model outside its layers, and copies them to `out`. */
static tsr_status take_sizes(const tsr__facts *facts, tsr_model_config *out)
{
    TSR__TRY(size_within(facts, "number of layers", facts->layers, TSR_MODEL_MAX_LAYERS));
    TSR__TRY(size_within(facts, "width", facts->width, TSR_MODEL_MAX_WIDTH));
    TSR__TRY(size_within(facts, "number of heads", facts->heads, TSR_MAX_HEADS));
    TSR__TRY(size_within(facts, "vocabulary", facts->vocabulary, TSR_MODEL_MAX_VOCABULARY));
    TSR__TRY(size_within(facts, "context", facts->context, TSR_MODEL_MAX_CONTEXT));
    out->layers = (int)facts->layers;
    out->width = facts->width;
    out->vocabulary = facts->vocabulary;
    out->context = facts->context;
    return TSR_OK;
}

static tsr_status take_heads(const tsr__facts *facts, int64_t width, tsr_model_layer *out)
{
    out->heads = facts->heads;
    out->kv_heads = facts->kv_heads == TSR__UNSET ? out->heads : facts->kv_heads;
    TSR__TRY(size_within(facts, "number of kv heads", out->kv_heads, TSR_MAX_HEADS));
    TSR__REQUIRE(out->heads % out->kv_heads == 0,
                 "%s: %" PRId64 " heads do not divide over %" PRId64 " kv heads", facts->file,
                 out->heads, out->kv_heads);
    out->head_dim = facts->head_dim;
    if (out->head_dim == TSR__UNSET) {
        TSR__REQUIRE(width % out->heads == 0,
                     "%s: a width of %" PRId64 " does not divide over %" PRId64 " heads",
                     facts->file, width, out->heads);
        out->head_dim = width / out->heads;
    }
    TSR__TRY(size_within(facts, "size of a head", out->head_dim, TSR_MAX_HEAD_DIM));
    out->value_dim = facts->value_dim == TSR__UNSET ? out->head_dim : facts->value_dim;
    TSR__TRY(size_within(facts, "size of a head's values", out->value_dim, TSR_MAX_HEAD_DIM));
    const int64_t larger = out->value_dim > out->head_dim ? out->value_dim : out->head_dim;
    TSR__REQUIRE(out->heads <= TSR_MODEL_MAX_WIDTH / larger,
                 "%s: %" PRId64 " heads of %" PRId64 " features are more than %d", facts->file,
                 out->heads, larger, TSR_MODEL_MAX_WIDTH);
    return TSR_OK;
}

/* The heads of latent attention, which all have keys of their own. */
static tsr_status take_latent_heads(const tsr__facts *facts, tsr__config *config,
                                    tsr_model_layer *out)
{
    tsr_model_latent *latent = &config->latents[0];
    TSR__TRY(tsr__config_take_latent(facts, latent));
    out->heads = out->kv_heads = facts->heads;
    out->head_dim = latent->nope_dim + latent->rope_dim;
    out->value_dim = latent->value_dim;
    out->latent = latent;
    return TSR_OK;
}

static bool chosen(int fact, bool usual)
{
    return fact == TSR__UNSET ? usual : fact != 0;
}

static tsr_status take_norms(const tsr__facts *facts, tsr_model_config *out)
{
    out->norm = facts->family->norm;
    out->norm_bias = chosen(facts->norm_bias, facts->family->norm_bias);
    out->norm_epsilon = facts->norm_epsilon == TSR__UNSET ? out->norm == TSR_NORM_RMS ? 1e-6 : 1e-5
                                                          : facts->norm_epsilon;
    TSR__REQUIRE(out->norm_epsilon > 0 && out->norm_epsilon <= 1,
                 "%s: the norms' epsilon is %g; more than 0 and at most 1 is possible", facts->file,
                 out->norm_epsilon);
    return TSR_OK;
}

static void take_tokens(const tsr__facts *facts, tsr_model_config *out)
{
    out->bos = -1;
    if (facts->bos >= 0 && facts->bos < out->vocabulary)
        out->bos = (int32_t)facts->bos;
    for (int i = 0; i < facts->end_count; i++) {
        if (facts->end[i] < out->vocabulary)
            out->end[out->end_count++] = facts->end[i];
    }
}

/* Replaces values that the files leave out by the family's usual ones. */
static void take_usual(tsr__facts *facts)
{
    const tsr__usual_values *usual = &facts->family->usual;
    const struct {
        int64_t *value;
        int64_t usual;
    } integers[] = {
        {&facts->heads, usual->heads},       {&facts->kv_heads, usual->kv_heads},
        {&facts->head_dim, usual->head_dim}, {&facts->vocabulary, usual->vocabulary},
        {&facts->context, usual->context},   {&facts->window, usual->window},
    };
    const struct {
        double *value;
        double usual;
    } reals[] = {
        {&facts->rope.theta, usual->theta},
        {&facts->window_theta, usual->window_theta},
        {&facts->query_scalar, facts->family->query_scalar ? usual->query_scalar : 0},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (*integers[i].value == TSR__UNSET && integers[i].usual != 0)
            *integers[i].value = integers[i].usual;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (*reals[i].value == TSR__UNSET && reals[i].usual != 0)
            *reals[i].value = reals[i].usual;
}

/* Factors ------------------------------------------------------------------------------------ */

/* Takes a factor that must be positive, or `usual` if the files have none. */
static tsr_status take_factor(const tsr__facts *facts, const char *what, double value, double usual,
                              double *out)
{
    *out = value == TSR__UNSET ? usual : value;
    TSR__REQUIRE(value == TSR__UNSET || (isfinite(value) && value > 1e-12 && value < 1e12),
                 "%s: %s is %g; a positive number is needed", facts->file, what, value);
    return TSR_OK;
}

static tsr_status take_factors(const tsr__facts *facts, tsr_model_config *out)
{
    double divisor;
    const double root = facts->family->embedding_by_width ? sqrt((double)out->width) : 1;
    TSR__TRY(take_factor(facts, "the factor of the embedding", facts->embedding_scale, root,
                         &out->embedding_scale));
    TSR__TRY(take_factor(facts, "the factor of residual branches", facts->residual_scale, 1,
                         &out->residual_scale));
    TSR__TRY(take_factor(facts, "the divisor of logits", facts->logit_divisor, 1, &divisor));
    out->logit_scale = 1 / divisor;
    return take_factor(facts, "the soft cap of logits", facts->logit_softcap, 0,
                       &out->logit_softcap);
}

static tsr_status take_layer_input(const tsr__facts *facts, tsr_model_config *out)
{
    out->layer_input = facts->layer_input == TSR__UNSET ? 0 : facts->layer_input;
    TSR__REQUIRE(out->layer_input >= 0 && out->layer_input <= TSR_MODEL_MAX_WIDTH,
                 "%s: each layer has an input of %" PRId64 " features; 0 to %d are possible",
                 facts->file, out->layer_input, TSR_MODEL_MAX_WIDTH);
    return TSR_OK;
}

static tsr_status take_temperature(const tsr__facts *facts, tsr_model_layer *out)
{
    double length = facts->temperature_length != TSR__UNSET ? facts->temperature_length
                                                            : facts->rope.original_length;
    if (facts->temperature == TSR__UNSET || facts->temperature == 0)
        return TSR_OK;
    TSR__TRY(take_factor(facts, "the temperature", facts->temperature, 0, &out->temperature));
    TSR__REQUIRE(length >= 1 && length <= TSR_MODEL_MAX_CONTEXT,
                 "%s: the temperature grows after each %g positions; 1 to %d is possible",
                 facts->file, length, TSR_MODEL_MAX_CONTEXT);
    out->temperature_length = (int64_t)length;
    return TSR_OK;
}

static tsr_status take_scores(const tsr__facts *facts, tsr_model_layer *out)
{
    double scalar;
    TSR__TRY(take_factor(facts, "the factor of scores", facts->attention_scale,
                         facts->family->layer.attention_scale, &out->attention_scale));
    TSR__TRY(take_factor(facts, "query_pre_attn_scalar", facts->query_scalar, (double)out->head_dim,
                         &scalar));
    if (scalar != (double)out->head_dim)
        out->attention_scale = 1 / sqrt(scalar);
    const double yarn = tsr__yarn_score_factor(facts);
    if (out->latent && out->attention_scale == 0 && yarn != 1)
        TSR__TRY(take_factor(facts, "the factor of scores, by YaRN's mscale_all_dim,",
                             yarn / sqrt((double)out->head_dim), 0, &out->attention_scale));
    TSR__TRY(take_temperature(facts, out));
    return take_factor(facts, "the soft cap of scores", facts->attention_softcap, 0, &out->softcap);
}

/* Layers ------------------------------------------------------------------------------------- */

/* The rotary positions of the layers of a file, in tsr__config.ropes. */
enum { ROPE, ROPE_BEYOND, WINDOW_ROPE };

/* Returns the size of a head in layers without a window. */
static int64_t full_head_dim(const tsr__facts *facts, int64_t head_dim)
{
    return facts->full_head_dim != TSR__UNSET ? facts->full_head_dim : head_dim;
}

/* Makes the rotary positions, and copies their divisors. */
static tsr_status take_ropes(const tsr__facts *facts, tsr__config *config, int64_t window_head_dim)
{
    const int64_t head_dim = full_head_dim(facts, window_head_dim);
    const tsr__family *family = facts->family;
    tsr_rope_params *ropes = config->ropes;
    TSR__TRY(
        tsr__rope_make(facts, head_dim, config->public.context, &ropes[ROPE], &ropes[ROPE_BEYOND]));
    for (int i = ROPE; i <= ROPE_BEYOND; i++)
        if (ropes[i].divisors) {
            memcpy(config->divisors[i], ropes[i].divisors,
                   (size_t)ropes[i].rotary_dim / 2 * sizeof(float));
            ropes[i].divisors = config->divisors[i];
        }
    if (family->window_rope == TSR__WINDOW_ROPE_SAME)
        return TSR_OK;
    ropes[WINDOW_ROPE] = (tsr_rope_params){
        .struct_size = sizeof *ropes,
        .rotary_dim = facts->full_head_dim != TSR__UNSET ? window_head_dim : ropes[ROPE].rotary_dim,
        .theta = ropes[ROPE].theta};
    if (family->window_rope == TSR__WINDOW_ROPE_OWN && facts->window_theta != TSR__UNSET)
        ropes[WINDOW_ROPE].theta = facts->window_theta;
    TSR__REQUIRE(isfinite(ropes[WINDOW_ROPE].theta) && ropes[WINDOW_ROPE].theta > 0 &&
                     ropes[WINDOW_ROPE].theta <= 1e15,
                 "%s: the base of rope in layers with a window is %g; a positive number is needed",
                 facts->file, ropes[WINDOW_ROPE].theta);
    TSR__REQUIRE(ropes[WINDOW_ROPE].rotary_dim % 2 == 0,
                 "%s: rope in layers with a window rotates %" PRId64
                 " features; an even number is needed",
                 facts->file, ropes[WINDOW_ROPE].rotary_dim);
    return TSR_OK;
}

/* Makes what all layers of a file have in common. */
static tsr_status take_layer(const tsr__facts *facts, tsr__config *config, tsr_model_layer *layer)
{
    const tsr__family *family = facts->family;
    const tsr_model_config *model = &config->public;
    *layer = family->layer;
    layer->struct_size = sizeof *layer;
    TSR__TRY(family->latent ? take_latent_heads(facts, config, layer)
                            : take_heads(facts, model->width, layer));
    layer->hidden = facts->hidden;
    if (layer->hidden == TSR__UNSET && family->hidden_per_width > 0)
        layer->hidden = family->hidden_per_width * model->width;
    if (tsr__any_layer_is_dense(facts, model->layers))
        TSR__TRY(
            size_within(facts, "number of hidden features", layer->hidden, TSR_MODEL_MAX_HIDDEN));
    else if (layer->hidden < 0 || layer->hidden > TSR_MODEL_MAX_HIDDEN)
        layer->hidden = 0; /* unused */
    layer->experts = NULL;
    if (facts->qk_norm == 0)
        layer->qk_norm = TSR_QK_NORM_NONE;
    layer->qkv_bias = chosen(facts->qkv_bias, family->layer.qkv_bias);
    layer->output_bias = chosen(facts->output_bias, family->layer.output_bias);
    layer->mlp_bias = chosen(facts->mlp_bias, family->layer.mlp_bias);
    layer->output_gate = chosen(facts->output_gate, family->layer.output_gate);
    if (facts->has_activation)
        layer->activation = facts->activation;
    TSR__TRY(take_scores(facts, layer));
    if (family->learned_positions)
        return TSR_OK;
    TSR__TRY(take_ropes(facts, config, layer->latent ? layer->latent->rope_dim : layer->head_dim));
    if (!layer->latent)
        return TSR_OK;
    config->ropes[ROPE].pairing = TSR_ROPE_ADJACENT;
    return tsr__latent_check(facts->file, layer);
}

/* Where the window of a model is. */
typedef struct window_rule {
    int64_t window; /* 0: no layer has one */
    int64_t first;  /* TSR__WINDOWS_SWITCHED */
    int64_t period; /* TSR__WINDOWS_PERIODIC */
} window_rule;

static tsr_status take_window(const tsr__facts *facts, window_rule *out)
{
    const tsr__windows rule = facts->family->windows;
    const bool switched = rule == TSR__WINDOWS_SWITCHED;
    *out = (window_rule){.window = 0};
    if (rule == TSR__WINDOWS_IGNORED || facts->window == TSR__UNSET || facts->window == 0 ||
        !chosen(facts->use_window, !switched))
        return TSR_OK;
    TSR__TRY(size_within(facts, "sliding window", facts->window, TSR_MODEL_MAX_CONTEXT));
    if (switched && facts->max_window_layers != TSR__UNSET) {
        out->first = facts->max_window_layers;
        TSR__REQUIRE(out->first >= 0 && out->first <= TSR_MODEL_MAX_LAYERS,
                     "%s: max_window_layers is %" PRId64 "; 0 to %d is possible", facts->file,
                     out->first, TSR_MODEL_MAX_LAYERS);
    }
    out->period =
        facts->window_period == TSR__UNSET ? facts->family->window_period : facts->window_period;
    TSR__REQUIRE(facts->window_period == TSR__UNSET ||
                     (out->period >= 1 && out->period <= TSR_MODEL_MAX_LAYERS),
                 "%s: sliding_window_pattern is %" PRId64 "; 1 to %d is possible", facts->file,
                 out->period, TSR_MODEL_MAX_LAYERS);
    out->window = facts->window;
    return TSR_OK;
}

static bool has_window(const tsr__facts *facts, const window_rule *rule, int layer)
{
    if (rule->window == 0)
        return false;
    if (facts->family->windows != TSR__WINDOWS_PERIODIC)
        return layer >= rule->first;
    if (facts->windows.count > 0)
        return facts->windows.values[layer] != 0;
    return rule->period > 0 && (layer + 1) % rule->period != 0;
}

static bool has_rope(const tsr__facts *facts, int layer)
{
    const int64_t period =
        facts->no_rope_period == TSR__UNSET ? facts->family->no_rope_period : facts->no_rope_period;
    if (facts->family->learned_positions)
        return false;
    if (facts->family->no_rope_period == 0)
        return true;
    return facts->ropes.count > 0 ? facts->ropes.values[layer] != 0
                                  : period < 1 || (layer + 1) % period != 0;
}

static tsr_status check_counts(const tsr__facts *facts, const tsr_model_config *c)
{
    TSR__REQUIRE(facts->windows.count == 0 || facts->windows.count == c->layers,
                 "%s: the list of the layers\' types has %d entries for %d layers", facts->file,
                 facts->windows.count, c->layers);
    TSR__REQUIRE(facts->delta.which.count == 0 || facts->delta.which.count == c->layers,
                 "%s: the list of layers with delta nets has %d entries for %d layers", facts->file,
                 facts->delta.which.count, c->layers);
    TSR__REQUIRE(facts->conv.which.count == 0 || facts->conv.which.count == c->layers,
                 "%s: the list of layers with short convolutions has %d entries for %d layers",
                 facts->file, facts->conv.which.count, c->layers);
    TSR__REQUIRE(facts->delta.period == TSR__UNSET ||
                     (facts->delta.period >= 1 && facts->delta.period <= TSR_MODEL_MAX_LAYERS),
                 "%s: full_attention_interval is %" PRId64 "; 1 to %d is possible", facts->file,
                 facts->delta.period, TSR_MODEL_MAX_LAYERS);
    const struct {
        const char *what;
        int count;
    } lists[] = {{"kv heads", facts->kv_sizes.count},
                 {"hidden features", facts->hidden_sizes.count}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        TSR__REQUIRE(lists[i].count == 0 || lists[i].count == c->layers,
                     "%s: the list of numbers of %s has %d entries for %d layers", facts->file,
                     lists[i].what, lists[i].count, c->layers);
    TSR__REQUIRE(facts->ropes.count == 0 || facts->ropes.count == c->layers,
                 "%s: no_rope_layers has %d entries for %d layers", facts->file, facts->ropes.count,
                 c->layers);
    return TSR_OK;
}

/* Returns whether two layers of one file are of the same kind. */
static bool same_kind(const tsr_model_layer *a, const tsr_model_layer *b)
{
    return a->window == b->window && a->rope == b->rope && a->experts == b->experts &&
           a->delta_net == b->delta_net && a->conv_taps == b->conv_taps &&
           a->head_dim == b->head_dim && a->value_dim == b->value_dim &&
           a->kv_heads == b->kv_heads && a->hidden == b->hidden &&
           a->keys_as_values == b->keys_as_values && a->shared_keys == b->shared_keys;
}

/* Gives the number of the kind that is `layer`, which it adds if there is none. */
static tsr_status kind_of(const char *file, tsr__config *config, const tsr_model_layer *layer,
                          uint16_t *out)
{
    int kind = 0;
    while (kind < config->public.kind_count && !same_kind(&config->kinds[kind], layer))
        kind++;
    TSR__REQUIRE(
        kind < TSR_MODEL_MAX_LAYER_KINDS,
        "%s: layers are of more than %d kinds, which differ in sizes, windows or what they "
        "share",
        file, TSR_MODEL_MAX_LAYER_KINDS);
    if (kind == config->public.kind_count)
        config->kinds[config->public.kind_count++] = *layer;
    *out = (uint16_t)kind;
    return TSR_OK;
}

/* Gives a layer the sizes that differ between layers, and what it shares. */
static tsr_status take_sizes_of(const tsr__facts *facts, int layers, int i, tsr_model_layer *out)
{
    const int64_t shared = facts->shared_layers == TSR__UNSET ? 0 : facts->shared_layers;
    TSR__REQUIRE(shared >= 0 && shared < layers,
                 "%s: %" PRId64 " layers share the keys of others; 0 to %d are possible",
                 facts->file, shared, layers - 1);
    out->shared_keys = i >= layers - shared;
    if (out->window == 0) {
        out->head_dim = out->value_dim = full_head_dim(facts, out->head_dim);
        if (facts->full_kv_heads != TSR__UNSET)
            out->kv_heads = facts->full_kv_heads;
        out->keys_as_values = !out->shared_keys && facts->keys_as_values == 1;
    }
    if (facts->no_values.count > 0)
        out->keys_as_values = !out->shared_keys && facts->no_values.values[i] != 0;
    if (facts->kv_sizes.count > 0)
        out->kv_heads = facts->kv_sizes.values[i];
    if (facts->hidden_sizes.count > 0)
        out->hidden = facts->hidden_sizes.values[i];
    else if (out->shared_keys && facts->double_wide == 1)
        out->hidden *= 2;
    TSR__TRY(size_within(facts, "number of kv heads", out->kv_heads, TSR_MAX_HEADS));
    TSR__REQUIRE(out->heads % out->kv_heads == 0,
                 "%s: %" PRId64 " heads do not divide over %" PRId64 " kv heads of layer %d",
                 facts->file, out->heads, out->kv_heads, i);
    TSR__TRY(size_within(facts, "size of a head", out->head_dim, TSR_MAX_HEAD_DIM));
    TSR__REQUIRE(out->heads <= TSR_MODEL_MAX_WIDTH / out->head_dim,
                 "%s: %" PRId64 " heads of %" PRId64 " features in layer %d are more than %d",
                 facts->file, out->heads, out->head_dim, i, TSR_MODEL_MAX_WIDTH);
    return size_within(facts, "number of hidden features", out->hidden, TSR_MODEL_MAX_HIDDEN);
}

tsr_status tsr__config_check_shared(const char *where, const tsr_model_config *c, int i)
{
    const tsr_model_layer *layer = tsr__config_layer(c, i),
                          *found = tsr__config_layer(c, tsr__config_keys_layer(c, i));
    TSR__REQUIRE(!layer->shared_keys ||
                     (found && found->heads == layer->heads && found->kv_heads == layer->kv_heads &&
                      found->head_dim == layer->head_dim && found->value_dim == layer->value_dim),
                 "%s: layer %d shares keys, but no layer before it has keys of %" PRId64
                 " kv heads of %" PRId64 " features with a window of %" PRId64,
                 where, i, layer->kv_heads, layer->head_dim, layer->window);
    return TSR_OK;
}

/* Returns whether any layer has a delta net. */
static bool any_delta_net(const tsr__facts *facts, int layers)
{
    for (int i = 0; i < layers; i++)
        if (tsr__layer_has_delta_net(facts, i))
            return true;
    return false;
}

/* Takes the number of layers that predict further tokens. They are like layers with attention, of
 * which there must be one. */
static tsr_status take_next_layers(const tsr__facts *facts, tsr_model_config *out)
{
    if (facts->next_layers == TSR__UNSET || facts->next_layers == 0)
        return TSR_OK;
    TSR__REQUIRE(facts->next_layers >= 0 && facts->next_layers <= TSR_MODEL_MAX_NEXT_TOKEN_LAYERS,
                 "%s: %" PRId64 " layers predict further tokens; 0 to %d are possible", facts->file,
                 facts->next_layers, TSR_MODEL_MAX_NEXT_TOKEN_LAYERS);
    TSR__REQUIRE(tsr__config_attention_layer(out),
                 "%s: %" PRId64 " layers predict further tokens, but no layer has attention",
                 facts->file, facts->next_layers);
    out->next_token_layers = (int)facts->next_layers;
    return TSR_OK;
}

static tsr_status take_layers(const tsr__facts *facts, tsr__config *config)
{
    tsr_model_layer usual;
    window_rule rule;
    int taps = 0;
    TSR__TRY(check_counts(facts, &config->public));
    TSR__TRY(take_layer(facts, config, &usual));
    TSR__TRY(take_window(facts, &rule));
    if (tsr__has_experts(facts))
        TSR__TRY(tsr__config_take_experts(facts, config->public.layers, &config->experts[0]));
    if (any_delta_net(facts, config->public.layers))
        TSR__TRY(tsr__config_take_delta_net(facts, &config->delta_nets[0]));
    if (facts->family->short_convs)
        TSR__TRY(tsr__config_take_short_conv(facts, config->public.width, &taps));
    for (int i = 0; i < config->public.layers; i++) {
        tsr_model_layer layer = usual;
        const bool windowed = has_window(facts, &rule, i),
                   own = windowed && facts->family->window_rope != TSR__WINDOW_ROPE_SAME;
        layer.window = windowed ? rule.window : 0;
        if (has_rope(facts, i))
            layer.rope = &config->ropes[own ? WINDOW_ROPE : ROPE];
        if (layer.rope == &config->ropes[ROPE] && config->ropes[ROPE_BEYOND].rotary_dim > 0)
            layer.long_rope = &config->ropes[ROPE_BEYOND];
        if (tsr__layer_has_experts(facts, i))
            layer.experts = &config->experts[0];
        if (facts->family->sizes_by_layers)
            TSR__TRY(take_sizes_of(facts, config->public.layers, i, &layer));
        if (tsr__layer_has_delta_net(facts, i)) {
            tsr__layer_without_attention(&layer);
            layer.delta_net = &config->delta_nets[0];
        }
        if (tsr__layer_has_short_conv(facts, i)) {
            tsr__layer_without_attention(&layer);
            layer.conv_taps = taps;
        }
        TSR__TRY(kind_of(facts->file, config, &layer, &config->layer_kinds[i]));
    }
    for (int i = 0; i < config->public.layers; i++)
        TSR__TRY(tsr__config_check_shared(facts->file, &config->public, i));
    return take_next_layers(facts, &config->public);
}

/* Making ------------------------------------------------------------------------------------- */

static tsr_status make(const tsr__facts *given, tsr__config *config)
{
    tsr__facts copy = *given;
    const tsr__facts *facts = &copy;
    tsr_model_config *out = &config->public;
    take_usual(&copy);
    out->architecture = facts->family->name;
    out->learned_positions = facts->family->learned_positions;
    out->tied = chosen(facts->tied, facts->family->tied);
    TSR__TRY(take_sizes(facts, out));
    TSR__TRY(take_norms(facts, out));
    take_tokens(facts, out);
    TSR__TRY(take_factors(facts, out));
    TSR__TRY(take_layer_input(facts, out));
    TSR__TRY(tsr__rope_take_proportional(&copy));
    return take_layers(facts, config);
}

tsr__config *tsr__config_create(void)
{
    tsr__config *config = tsr__calloc(1, sizeof *config);
    if (!config)
        return NULL;
    config->public.struct_size = sizeof config->public;
    config->public.kinds = config->kind_pointers;
    config->public.layer_kinds = config->layer_kinds;
    for (int i = 0; i < TSR_MODEL_MAX_LAYER_KINDS; i++)
        config->kind_pointers[i] = &config->kinds[i];
    return config;
}

tsr_status tsr__config_make(const tsr__facts *facts, tsr__config **out)
{
    tsr__config *config = tsr__config_create();
    if (!config)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = make(facts, config);
    if (status == TSR_OK)
        *out = config;
    else
        tsr__free(config);
    return status;
}

tsr_status tsr__config_read(const tsr__model_files *files, tsr__config **out)
{
    tsr__facts facts;
    tsr__facts_init(&facts);
    TSR__TRY(files->gguf ? tsr__facts_read_gguf(files, &facts)
                         : tsr__facts_read_json(files, &facts));
    return tsr__config_make(&facts, out);
}
