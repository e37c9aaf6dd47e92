/* Members of config.json about parts of layers: types of layers, rotary positions, experts, delta
 * nets and short convolutions. */
#include "model/config/json.h"

#include <inttypes.h>
#include <string.h>

/* Lists of layers ---------------------------------------------------------------------------- */

static tsr_status add_layer_fact(tsr__config_reader *r, tsr__layer_facts *facts, bool value)
{
    if (facts->count == TSR_MODEL_MAX_LAYERS)
        return tsr__json_fail(&r->json, r->json.at, "%s has more than %d entries", r->key,
                              TSR_MODEL_MAX_LAYERS);
    facts->values[facts->count++] = value;
    return TSR_OK;
}

/* Reads the list of the layers' types: attention with and without a window, and delta nets or short
 * convolutions in families that have them. */
static tsr_status read_layer_types(tsr__config_reader *r)
{
    char type[64];
    bool more = false;
    if (tsr__config_is_null(r))
        return TSR_OK;
    r->facts->windows.count = r->facts->delta.which.count = r->facts->conv.which.count = 0;
    TSR__TRY(tsr__json_enter(&r->json, '['));
    for (;;) {
        TSR__TRY(tsr__json_element(&r->json, &more));
        if (!more)
            return TSR_OK;
        const size_t at = r->json.at;
        TSR__TRY(tsr__json_string(&r->json, sizeof type, type));
        const bool windowed = strcmp(type, "sliding_attention") == 0,
                   is_delta = r->facts->family->delta_keys && strcmp(type, "linear_attention") == 0,
                   is_conv = r->facts->family->short_convs && strcmp(type, "conv") == 0;
        if (!windowed && !is_delta && !is_conv && strcmp(type, "full_attention") != 0) {
            const bool clean = !tsr__name_problem(type, strlen(type));
            (void)tsr__json_fail(&r->json, at, "layers of type '%s' are not supported",
                                 clean ? type : "?");
            return TSR_ERR_UNSUPPORTED;
        }
        TSR__TRY(add_layer_fact(r, &r->facts->windows, windowed));
        if (r->facts->family->delta_keys)
            TSR__TRY(add_layer_fact(r, &r->facts->delta.which, is_delta));
        if (r->facts->family->short_convs)
            TSR__TRY(add_layer_fact(r, &r->facts->conv.which, is_conv));
    }
}

/* Reads the list that says with 0 which layers have no rotary positions. */
static tsr_status read_no_rope(tsr__config_reader *r)
{
    bool more = false;
    if (tsr__config_is_null(r))
        return TSR_OK;
    r->facts->ropes.count = 0;
    TSR__TRY(tsr__json_enter(&r->json, '['));
    for (;;) {
        int64_t value = 0;
        TSR__TRY(tsr__json_element(&r->json, &more));
        if (!more)
            return TSR_OK;
        const size_t at = r->json.at;
        TSR__TRY(tsr__json_signed(&r->json, &value));
        if (value != 0 && value != 1)
            return tsr__json_fail(&r->json, at,
                                  "an entry of no_rope_layers is %" PRId64 "; 0 or 1 is possible",
                                  value);
        TSR__TRY(add_layer_fact(r, &r->facts->ropes, value == 1));
    }
}

/* Reads a list of the numbers of the layers for which something is so. */
static tsr_status read_layer_numbers(tsr__config_reader *r, tsr__layer_facts *out)
{
    bool more = false;
    if (tsr__config_is_null(r))
        return TSR_OK;
    TSR__TRY(tsr__json_enter(&r->json, '['));
    for (;;) {
        int64_t layer = 0;
        TSR__TRY(tsr__json_element(&r->json, &more));
        if (!more)
            return TSR_OK;
        const size_t at = r->json.at;
        TSR__TRY(tsr__json_signed(&r->json, &layer));
        if (layer < 0 || layer >= TSR_MODEL_MAX_LAYERS)
            return tsr__json_fail(&r->json, at,
                                  "an entry of %s is %" PRId64 "; 0 to %d is possible", r->key,
                                  layer, TSR_MODEL_MAX_LAYERS - 1);
        out->count = TSR_MODEL_MAX_LAYERS;
        out->values[layer] = 1;
    }
}

/* Rotary positions --------------------------------------------------------------------------- */

static tsr_status read_divisors(tsr__config_reader *r, float *values, int *count)
{
    bool more = false;
    if (tsr__config_is_null(r))
        return TSR_OK;
    *count = 0;
    TSR__TRY(tsr__json_enter(&r->json, '['));
    for (;;) {
        double value = 0;
        TSR__TRY(tsr__json_element(&r->json, &more));
        if (!more)
            return TSR_OK;
        if (*count == TSR__MOST_PAIRS)
            return tsr__json_fail(&r->json, r->json.at, "%s has more than %d numbers", r->key,
                                  TSR__MOST_PAIRS);
        TSR__TRY(tsr__json_real(&r->json, &value));
        values[(*count)++] = (float)value;
    }
}

static tsr_status read_rope(tsr__config_reader *r);
static tsr_status read_window_rope(tsr__config_reader *r);

static tsr_status read_rope_member(tsr__config_reader *r)
{
    tsr__rope_facts *rope = &r->facts->rope;
    const struct {
        const char *name;
        double *value;
    } reals[] = {
        {"rope_theta", &rope->theta},
        {"factor", &rope->factor},
        {"original_max_position_embeddings", &rope->original_length},
        {"low_freq_factor", &rope->low_frequency_factor},
        {"high_freq_factor", &rope->high_frequency_factor},
        {"beta_fast", &rope->beta_fast},
        {"beta_slow", &rope->beta_slow},
        {"attention_factor", &rope->attention_factor},
        {"mscale", &rope->mscale},
        {"mscale_all_dim", &rope->mscale_all_dim},
        {"partial_rotary_factor", &rope->partial},
        {"llama_4_scaling_beta", &r->facts->temperature},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (strcmp(reals[i].name, r->key) == 0)
            return tsr__config_read_real(r, reals[i].value);
    if (strcmp(r->key, "rope_type") == 0 || strcmp(r->key, "type") == 0)
        return tsr__config_is_null(r) ? TSR_OK
                                      : tsr__json_string(&r->json, sizeof rope->type, rope->type);
    if (strcmp(r->key, "truncate") == 0)
        return tsr__config_read_bool(r, &rope->truncate);
    if (strcmp(r->key, "short_factor") == 0)
        return read_divisors(r, rope->short_divisors, &rope->short_count);
    if (strcmp(r->key, "long_factor") == 0)
        return read_divisors(r, rope->long_divisors, &rope->long_count);
    if (strcmp(r->key, "full_attention") == 0 && tsr__json_peek(&r->json) == '{')
        return read_rope(r);
    if (strcmp(r->key, "sliding_attention") == 0 && tsr__json_peek(&r->json) == '{')
        return read_window_rope(r);
    return tsr__json_skip(&r->json);
}

static tsr_status read_window_member(tsr__config_reader *r)
{
    return strcmp(r->key, "rope_theta") == 0 ? tsr__config_read_real(r, &r->facts->window_theta)
                                             : tsr__json_skip(&r->json);
}

/* Reads the rotary positions of layers with a window, of which only the base may differ. */
static tsr_status read_window_rope(tsr__config_reader *r)
{
    return tsr__config_read_members(r, read_window_member);
}

static tsr_status read_rope(tsr__config_reader *r)
{
    return tsr__config_is_null(r) ? TSR_OK : tsr__config_read_members(r, read_rope_member);
}

/* Reads the name of the function that gives experts their scores. */
static tsr_status read_gating(tsr__config_reader *r)
{
    char name[64];
    const size_t at = r->json.at;
    if (tsr__config_is_null(r))
        return TSR_OK;
    TSR__TRY(tsr__json_string(&r->json, sizeof name, name));
    if (strcmp(name, "sigmoid") == 0 || strcmp(name, "softmax") == 0) {
        r->facts->experts.gating =
            *name == 's' && name[1] == 'i' ? TSR_GATING_SIGMOID : TSR_GATING_SOFTMAX;
        return TSR_OK;
    }
    const bool clean = !tsr__name_problem(name, strlen(name));
    (void)tsr__json_fail(
        &r->json, at, "gating function '%s' of experts is not supported; softmax and sigmoid are",
        clean ? name : "?");
    return TSR_ERR_UNSUPPORTED;
}

/* Reads how groups of experts are chosen. */
static tsr_status read_group_rule(tsr__config_reader *r)
{
    char name[64];
    if (tsr__config_is_null(r))
        return TSR_OK;
    TSR__TRY(tsr__json_string(&r->json, sizeof name, name));
    r->facts->experts.groups_by_largest = strcmp(name, "group_limited_greedy") == 0;
    return TSR_OK;
}

static tsr_status read_experts(tsr__config_reader *r, bool *known)
{
    tsr__expert_facts *e = &r->facts->experts;
    const tsr__expert_keys *keys = r->facts->family->expert_keys;
    *known = keys != NULL;
    if (!keys)
        return TSR_OK;
    const struct {
        const char *name;
        int64_t *value;
    } integers[] = {
        {keys->count, &e->count},
        {keys->hidden, &e->hidden},
        {keys->shared_hidden, &e->shared_hidden},
        {keys->shared_count, &e->shared_count},
        {keys->used ? keys->used : "num_experts_per_tok", &e->used},
        {"n_group", &e->groups},
        {"topk_group", &e->groups_used},
        {keys->first_dense, &e->first_dense},
        {keys->dense_layers ? "decoder_sparse_step" : NULL, &e->period},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (tsr__config_is_key(r, integers[i].name))
            return tsr__config_read_integer(r, integers[i].value);
    if (tsr__config_is_key(r, "routed_scaling_factor"))
        return tsr__config_read_real(r, &e->scale);
    if (tsr__config_is_key(r, "swiglu_limit"))
        return tsr__config_read_real(r, &e->limit);
    if (tsr__config_is_key(r, keys->normalise))
        return tsr__config_read_bool(r, &e->normalise);
    if (tsr__config_is_key(r, keys->enabled))
        return tsr__config_read_bool(r, &e->enabled);
    if (tsr__config_is_key(r, keys->choice_bias))
        return tsr__config_read_bool(r, &e->choice_bias);
    if (tsr__config_is_key(r, keys->dense_layers))
        return read_layer_numbers(r, &e->dense);
    if (tsr__config_is_key(r, keys->gating))
        return read_gating(r);
    if (tsr__config_is_key(r, keys->group_rule))
        return read_group_rule(r);
    *known = false;
    return TSR_OK;
}

static tsr_status read_delta_net(tsr__config_reader *r, bool *known)
{
    tsr__delta_facts *d = &r->facts->delta;
    const struct {
        const char *name;
        int64_t *value;
    } integers[] = {
        {"linear_num_key_heads", &d->key_heads}, {"linear_num_value_heads", &d->heads},
        {"linear_key_head_dim", &d->key_dim},    {"linear_value_head_dim", &d->value_dim},
        {"linear_conv_kernel_dim", &d->taps},    {"full_attention_interval", &d->period},
    };
    *known = r->facts->family->delta_keys != NULL;
    for (size_t i = 0; *known && i < sizeof integers / sizeof *integers; i++)
        if (tsr__config_is_key(r, integers[i].name))
            return tsr__config_read_integer(r, integers[i].value);
    if (*known && tsr__config_is_key(r, "attn_output_gate"))
        return tsr__config_read_bool(r, &r->facts->output_gate);
    *known = false;
    return TSR_OK;
}

/* Reads what describes short convolutions, and the size of MLPs beside them. */
static tsr_status read_short_convs(tsr__config_reader *r, bool *known)
{
    tsr__conv_facts *c = &r->facts->conv;
    const struct {
        const char *name;
        int64_t *value;
    } integers[] = {{"conv_L_cache", &c->taps},
                    {"conv_dim", &c->features},
                    {"block_ff_dim", &c->hidden},
                    {"block_multiple_of", &c->multiple}};
    *known = r->facts->family->short_convs;
    for (size_t i = 0; *known && i < sizeof integers / sizeof *integers; i++)
        if (tsr__config_is_key(r, integers[i].name))
            return tsr__config_read_integer(r, integers[i].value);
    if (*known && tsr__config_is_key(r, "block_ffn_dim_multiplier"))
        return tsr__config_read_real(r, &c->factor);
    if (*known && tsr__config_is_key(r, "block_auto_adjust_ff_dim"))
        return tsr__config_read_bool(r, &c->adjusts);
    if (*known && tsr__config_is_key(r, "conv_bias"))
        return tsr__config_refuse_if_set(r);
    if (*known && tsr__config_is_key(r, "theta"))
        return tsr__config_read_real(r, &r->facts->rope.theta);
    if (*known && tsr__config_is_key(r, "tie_embedding"))
        return tsr__config_read_bool(r, &r->facts->tied);
    if (*known && tsr__config_is_key(r, "full_attn_idxs")) {
        c->lists_attention = tsr__json_peek(&r->json) == '[';
        return read_layer_numbers(r, &c->attention);
    }
    *known = false;
    return TSR_OK;
}

tsr_status tsr__config_read_part(tsr__config_reader *r, bool *known)
{
    tsr_status (*const readers[])(tsr__config_reader * r,
                                  bool *known) = {read_experts, read_delta_net, read_short_convs};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        TSR__TRY(readers[i](r, known));
        if (*known)
            return TSR_OK;
    }
    *known = true;
    if (tsr__config_is_key(r, r->facts->family->hf_next_layers))
        return tsr__config_read_integer(r, &r->facts->next_layers);
    if (tsr__config_is_key(r, "rope_scaling") || tsr__config_is_key(r, "rope_parameters"))
        return read_rope(r);
    if (tsr__config_is_key(r, "layer_types"))
        return read_layer_types(r);
    if (tsr__config_is_key(r, "no_rope_layers"))
        return read_no_rope(r);
    *known = false;
    return TSR_OK;
}
