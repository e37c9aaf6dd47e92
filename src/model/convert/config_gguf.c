/* The metadata of GGUF files. Source of the keys: github.com/ggml-org/ggml, docs/gguf.md. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/convert/config.h"

#define KEY_SIZE 128

typedef struct put {
    tsr__gguf_writer *writer;
    const char *architecture, *family;
    char key[KEY_SIZE];
} put;

static const char *key_of(put *p, const char *key)
{
    snprintf(p->key, KEY_SIZE, "%s.%s", p->architecture, key);
    return p->key;
}

static tsr_status put_integer(put *p, const char *key, int64_t value)
{
    return tsr__gguf_put_u32(p->writer, key_of(p, key), (uint32_t)value);
}

static tsr_status put_real(put *p, const char *key, double value)
{
    return tsr__gguf_put_f32(p->writer, key_of(p, key), (float)value);
}

static tsr_status put_text(put *p, const char *key, const char *text)
{
    return tsr__gguf_put_string(p->writer, key, text, strlen(text));
}

static tsr_status put_latent(put *p, const tsr_model_latent *latent, int64_t head_dim)
{
    if (latent->q_lora_rank > 0)
        TSR__TRY(put_integer(p, "attention.q_lora_rank", latent->q_lora_rank));
    TSR__TRY(put_integer(p, "attention.kv_lora_rank", latent->kv_lora_rank));
    TSR__TRY(put_integer(p, "attention.key_length_mla", head_dim));
    return put_integer(p, "attention.value_length_mla", latent->value_dim);
}

/* The lists and sizes of a family with sizes_by_layers. */
static tsr_status put_sizes_by_layers(put *p, const tsr_model_config *c)
{
    const int64_t window_dim = tsr__config_window_layer(c)->head_dim;
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {"attention.key_length_swa", window_dim},
        {"attention.value_length_swa", window_dim},
        {"rope.dimension_count_swa", window_dim},
        {"attention.shared_kv_layers", tsr__config_shared_layers(c)},
        {"embedding_length_per_layer_input", c->layer_input},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        TSR__TRY(put_integer(p, integers[i].key, integers[i].value));
    for (int list = 0; list < 2; list++) {
        TSR__TRY(tsr__gguf_put_array(
            p->writer, key_of(p, list == 0 ? "feed_forward_length" : "attention.head_count_kv"),
            TSR__GGUF_I32, (uint64_t)c->layers));
        for (int i = 0; i < c->layers; i++) {
            const tsr_model_layer *layer = tsr__config_layer(c, i);
            TSR__TRY(tsr__gguf_put_element_bits(
                p->writer, (uint32_t)(list == 0 ? layer->hidden : layer->kv_heads)));
        }
    }
    TSR__TRY(tsr__gguf_put_array(p->writer, key_of(p, "attention.sliding_window_pattern"),
                                 TSR__GGUF_BOOL, (uint64_t)c->layers));
    for (int i = 0; i < c->layers; i++)
        TSR__TRY(tsr__gguf_put_element_bool(p->writer, tsr__config_layer(c, i)->window > 0));
    return TSR_OK;
}

/* Puts which layers have short convolutions: those without kv heads. */
static tsr_status put_short_convs(put *p, const tsr_model_config *c)
{
    int taps = 0;
    TSR__TRY(tsr__gguf_put_array(p->writer, key_of(p, "attention.head_count_kv"), TSR__GGUF_I32,
                                 (uint64_t)c->layers));
    for (int i = 0; i < c->layers; i++) {
        const tsr_model_layer *layer = tsr__config_layer(c, i);
        TSR__TRY(tsr__gguf_put_element_bits(p->writer, (uint32_t)layer->kv_heads));
        taps = layer->conv_taps > 0 ? layer->conv_taps : taps;
    }
    return taps > 0 ? put_integer(p, "shortconv.l_cache", taps) : TSR_OK;
}

static tsr_status put_sizes(put *p, const tsr_model_config *c)
{
    const bool short_convs = tsr__family_by_name(p->family)->short_convs;
    const bool by_layers = tsr__family_by_name(p->family)->sizes_by_layers;
    const tsr_model_layer *layer =
        by_layers ? tsr__config_full_layer(c) : tsr__config_usual_layer(c);
    const tsr_model_latent *latent = layer->latent;
    int64_t window;
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {"block_count", c->layers + c->next_token_layers},
        {"context_length", c->context},
        {"embedding_length", c->width},
        {by_layers ? NULL : "feed_forward_length",
         layer->hidden > 0 ? layer->hidden : layer->experts->hidden},
        {"attention.head_count", layer->heads},
        {by_layers || short_convs ? NULL : "attention.head_count_kv", latent ? 1 : layer->kv_heads},
        {"attention.key_length",
         latent ? latent->kv_lora_rank + latent->rope_dim : layer->head_dim},
        {"attention.value_length", latent ? latent->kv_lora_rank : layer->value_dim},
        {"vocab_size", c->vocabulary},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (integers[i].key)
            TSR__TRY(put_integer(p, integers[i].key, integers[i].value));
    if (latent)
        TSR__TRY(put_latent(p, latent, layer->head_dim));
    if (by_layers)
        TSR__TRY(put_sizes_by_layers(p, c));
    if (short_convs)
        TSR__TRY(put_short_convs(p, c));
    if (tsr__config_window(c, &window) >= 0)
        TSR__TRY(put_integer(p, "attention.sliding_window", window));
    return put_real(p,
                    c->norm == TSR_NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                            : "attention.layer_norm_epsilon",
                    c->norm_epsilon);
}

static tsr_status put_scaling(put *p, const tsr_model_layer *layer)
{
    const tsr_rope_params *rope = layer->rope;
    const double score_scale = tsr__yarn_score_scale(layer);
    static const char *const types[] = {[TSR_ROPE_SCALING_LINEAR] = "linear",
                                        [TSR_ROPE_SCALING_YARN] = "yarn",
                                        [TSR_ROPE_SCALING_DIVISORS] = "longrope"};
    const bool linear = rope->scaling == TSR_ROPE_SCALING_LINEAR,
               yarn = rope->scaling == TSR_ROPE_SCALING_YARN,
               divisors = rope->scaling == TSR_ROPE_SCALING_DIVISORS;
    if ((!linear && !yarn && !divisors) || tsr__rope_proportional(rope) > 0)
        return TSR_OK;
    const char *type = types[rope->scaling];
    TSR__TRY(tsr__gguf_put_string(p->writer, key_of(p, "rope.scaling.type"), type, strlen(type)));
    if (!divisors)
        TSR__TRY(put_real(p, "rope.scaling.factor", rope->factor));
    if (linear)
        return TSR_OK;
    TSR__TRY(
        put_integer(p, "rope.scaling.original_context_length", (int64_t)rope->original_length));
    if (divisors)
        return put_real(p, "rope.scaling.attn_factor", rope->attention_factor);
    if (rope->exact_range)
        TSR__TRY(tsr__gguf_put_bool(p->writer, TSR__GGUF_EXACT_RANGE, true));
    TSR__TRY(put_real(p, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    TSR__TRY(put_real(p, "rope.scaling.yarn_beta_slow", rope->beta_slow));
    if (tsr__family_by_name(p->family)->gguf_yarn_log && rope->attention_factor == 1)
        return put_real(p, "rope.scaling.yarn_log_multiplier", 1);
    if (score_scale != 0 && rope->attention_factor == 1)
        return put_real(p, "rope.scaling.yarn_log_multiplier", score_scale / 10);
    /* The factor in the file is relative to the one that YaRN computes from the scaling factor;
     * attention_factor is the product of both. */
    return put_real(p, "rope.scaling.attn_factor",
                    rope->attention_factor / tsr__yarn_attention(rope->factor));
}

/* Puts the factors that the family's files have. */
static tsr_status put_factors(put *p, const tsr_model_config *c, const tsr__family *family)
{
    const tsr_model_layer *layer = tsr__config_usual_layer(c);
    const struct {
        const char *key;
        double value;
        bool wanted;
    } reals[] = {
        {"attention.scale", layer->attention_scale,
         family->multipliers && layer->attention_scale != 0},
        {"embedding_scale", c->embedding_scale, family->multipliers},
        {"residual_scale", c->residual_scale, family->multipliers},
        {"logit_scale", 1 / c->logit_scale, family->multipliers},
        {"attention.temperature_scale", layer->temperature, layer->temperature != 0},
        {"attn_logit_softcapping", layer->softcap, layer->softcap != 0},
        {"final_logit_softcapping", c->logit_softcap, c->logit_softcap != 0},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (reals[i].wanted)
            TSR__TRY(put_real(p, reals[i].key, reals[i].value));
    return TSR_OK;
}

/* Puts the base of rotary positions in layers with a window, if it may differ. */
static tsr_status put_window_rope(put *p, const tsr_model_config *c, const tsr__family *family)
{
    int64_t window;
    const int first = tsr__config_window(c, &window);
    const tsr_model_layer *layer = tsr__config_layer(c, first);
    return family->window_rope == TSR__WINDOW_ROPE_OWN && layer && layer->rope
               ? put_real(p, "rope.freq_base_swa", layer->rope->theta)
               : TSR_OK;
}

static tsr_status put_experts(put *p, const tsr_model_config *c, const tsr__family *family)
{
    static const uint32_t gating[] = {
        [TSR_GATING_SOFTMAX] = 1, [TSR_GATING_SIGMOID] = 2, [TSR_GATING_SOFTMAX_CHOSEN] = 3};
    const tsr_model_experts *e = tsr__config_experts(c), *usual = family->layer.experts;
    const int first = tsr__config_first_experts(c);
    if (!e)
        return TSR_OK;
    const bool by_count = family->expert_keys->shared_count != NULL;
    const struct {
        const char *key;
        int64_t value;
        bool wanted;
    } integers[] = {
        {"expert_count", e->count, true},
        {"expert_used_count", e->used, true},
        {"expert_feed_forward_length", e->hidden, true},
        {"expert_shared_feed_forward_length", e->shared_hidden, e->shared_hidden > 0 && !by_count},
        {"expert_shared_count", e->shared_hidden / e->hidden, by_count},
        {"expert_group_count", e->groups, e->groups > 1},
        {"expert_group_used_count", e->groups_used, e->groups > 1},
        {"leading_dense_block_count", first, first > 0},
        {"expert_gating_func", gating[e->gating],
         e->gating != usual->gating || e->gating == TSR_GATING_SIGMOID},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (integers[i].wanted)
            TSR__TRY(put_integer(p, integers[i].key, integers[i].value));
    if (e->normalise != usual->normalise || e->gating == TSR_GATING_SIGMOID)
        TSR__TRY(tsr__gguf_put_bool(p->writer, key_of(p, "expert_weights_norm"), e->normalise));
    return e->scale != 1 ? put_real(p, "expert_weights_scale", e->scale) : TSR_OK;
}

/* Puts how many pairs turn by each of the positions of an image, which are equal in a text. Readers
 * in general use need them. */
static tsr_status put_sections(put *p, int64_t pairs)
{
    const int64_t first = (pairs + 2) / 3, second = (pairs - first + 1) / 2,
                  sections[4] = {first, second, pairs - first - second, 0};
    TSR__TRY(tsr__gguf_put_array(p->writer, key_of(p, "rope.dimension_sections"), 5, 4));
    for (int i = 0; i < 4; i++)
        TSR__TRY(tsr__gguf_put_element_bits(p->writer, (uint32_t)sections[i]));
    return TSR_OK;
}

/* Returns whether layers period − 1, 2 · period − 1, … are those without a delta net. */
static bool is_periodic(const tsr_model_config *c, int period)
{
    for (int i = 0; i < c->layers; i++)
        if ((tsr__config_layer(c, i)->delta_net != NULL) != ((i + 1) % period != 0))
            return false;
    return true;
}

static tsr_status put_recurrent_layers(put *p, const tsr_model_config *c)
{
    const int count = c->layers + c->next_token_layers; /* as block_count */
    TSR__TRY(tsr__gguf_put_array(p->writer, key_of(p, "attention.recurrent_layers"), TSR__GGUF_BOOL,
                                 (uint64_t)count));
    for (int i = 0; i < count; i++)
        TSR__TRY(tsr__gguf_put_element_bool(p->writer, tsr__config_layer(c, i)->delta_net != NULL));
    return TSR_OK;
}

/* Puts the sizes of delta nets. GGUF files have either a period or a list of the layers that have
 * them. */
static tsr_status put_delta_nets(put *p, const tsr_model_config *c, const tsr__family *family)
{
    int first, period = 1;
    const tsr_model_delta_net *net = tsr__config_delta_net(c, &first);
    if (!family->delta_keys)
        return TSR_OK;
    while (period <= c->layers && tsr__config_layer(c, period - 1)->delta_net)
        period++;
    TSR__TRY(is_periodic(c, period) ? put_integer(p, "full_attention_interval", period)
                                    : put_recurrent_layers(p, c));
    if (!net)
        return TSR_OK;
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {"ssm.conv_kernel", net->taps},
        {"ssm.state_size", net->key_dim},
        {"ssm.group_count", net->key_heads},
        {"ssm.time_step_rank", net->heads},
        {"ssm.inner_size", net->heads * net->value_dim},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        TSR__TRY(put_integer(p, integers[i].key, integers[i].value));
    return TSR_OK;
}

bool tsr__config_gelu_is_exact(const tsr_model_config *c)
{
    return c->kinds[0]->activation == TSR_ACT_GELU_ERF &&
           tsr__family_by_name(c->architecture)->layer.activation == TSR_ACT_GELU_TANH;
}

tsr_status tsr__config_put_gguf(const tsr_model_config *c, const char *name,
                                tsr__gguf_writer *writer)
{
    const tsr__family *family = tsr__family_by_name(c->architecture);
    put p = {.writer = writer, .architecture = family->gguf, .family = family->name};
    TSR__TRY(put_text(&p, "general.architecture", p.architecture));
    TSR__TRY(put_text(&p, "general.type", "model"));
    TSR__TRY(put_text(&p, "general.name", name));
    TSR__TRY(put_sizes(&p, c));
    if (tsr__config_gelu_is_exact(c))
        TSR__TRY(put_text(&p, TSR__GGUF_ACTIVATION, "gelu"));
    TSR__TRY(put_factors(&p, c, family));
    TSR__TRY(put_experts(&p, c, family));
    if (c->next_token_layers > 0)
        TSR__TRY(put_integer(&p, "nextn_predict_layers", c->next_token_layers));
    TSR__TRY(put_delta_nets(&p, c, family));
    const tsr_rope_params *rope = tsr__config_rotary_layer(c)->rope;
    if (!rope)
        return TSR_OK;
    TSR__TRY(put_window_rope(&p, c, family));
    TSR__TRY(put_integer(&p, "rope.dimension_count", rope->rotary_dim));
    if (family->gguf_sections)
        TSR__TRY(put_sections(&p, rope->rotary_dim / 2));
    TSR__TRY(put_real(&p, "rope.freq_base", rope->theta));
    return put_scaling(&p, tsr__config_rotary_layer(c));
}

int tsr__config_rope_factors(const tsr_model_config *c, tsr__rope_factors out[2])
{
    const tsr_model_layer *layer = tsr__config_rotary_layer(c);
    const tsr_rope_params *rope = layer->rope, *beyond = layer->long_rope;
    if (!rope)
        return 0;
    const int64_t count = rope->rotary_dim / 2;
    out[0] = (tsr__rope_factors){.name = "rope_freqs.weight", .count = count};
    for (int64_t i = 0; rope->scaling == TSR_ROPE_SCALING_LLAMA3 && i < count; i++)
        out[0].values[i] = (float)tsr__llama3_divisor(rope, i);
    if (rope->scaling == TSR_ROPE_SCALING_LLAMA3)
        return 1;
    if (tsr__rope_proportional(rope) > 0) {
        memcpy(out[0].values, rope->divisors, (size_t)count * sizeof(float));
        return 1;
    }
    if (rope->scaling != TSR_ROPE_SCALING_DIVISORS || !beyond)
        return 0;
    out[0].name = "rope_factors_short.weight";
    out[1] = (tsr__rope_factors){.name = "rope_factors_long.weight", .count = count};
    memcpy(out[0].values, rope->divisors, (size_t)count * sizeof(float));
    memcpy(out[1].values, beyond->divisors, (size_t)count * sizeof(float));
    return 2;
}
