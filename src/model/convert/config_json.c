/* config.json and generation_config.json, as Hugging Face writes them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert/config.h"

/* GGUF files hold numbers as f32. Such a number is written with the fewest digits that give it
 * back, so that 1e-05 stays 1e-05. */
static double tidy(double value)
{
    char text[64];
    if ((double)(float)value != value)
        return value;
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if ((float)strtod(text, NULL) == (float)value)
            break;
    }
    return strtod(text, NULL);
}

static void print_key(tsr__json_writer *w, const char *key)
{
    tsr__json_print(w, ",\n  ");
    tsr__json_print_string(w, key);
    tsr__json_print(w, ": ");
}

static void print_integer(tsr__json_writer *w, const char *key, int64_t value)
{
    print_key(w, key);
    tsr__json_print(w, "%" PRId64, value);
}

static void print_real(tsr__json_writer *w, const char *key, double value)
{
    print_key(w, key);
    tsr__json_print_real(w, tidy(value));
}

static void print_text(tsr__json_writer *w, const char *key, const char *text)
{
    print_key(w, key);
    tsr__json_print_string(w, text);
}

static void print_null(tsr__json_writer *w, const char *key)
{
    print_key(w, key);
    tsr__json_print(w, "null");
}

static void print_bool(tsr__json_writer *w, const char *key, bool value)
{
    print_key(w, key);
    tsr__json_print(w, value ? "true" : "false");
}

static void print_tokens(tsr__json_writer *w, const tsr_model_config *c)
{
    if (c->bos >= 0)
        print_integer(w, "bos_token_id", c->bos);
    if (c->end_count == 1)
        print_integer(w, "eos_token_id", c->end[0]);
    if (c->end_count < 2)
        return;
    print_key(w, "eos_token_id");
    for (int i = 0; i < c->end_count; i++)
        tsr__json_print(w, "%s%d", i == 0 ? "[" : ", ", (int)c->end[i]);
    tsr__json_print(w, "]");
}

static void print_divisors(tsr__json_writer *w, const char *key, const tsr_rope_params *rope)
{
    tsr__json_print(w, ", \"%s\": [", key);
    for (int64_t i = 0; i < rope->rotary_dim / 2; i++) {
        tsr__json_print(w, i > 0 ? ", " : "");
        tsr__json_print_real(w, tidy((double)rope->divisors[i]));
    }
    tsr__json_print(w, "]");
}

static void print_long_rope(tsr__json_writer *w, const tsr_model_config *c,
                            const tsr_model_layer *layer)
{
    const tsr_rope_params *rope = layer->rope;
    const double usual = tsr__long_attention((double)c->context, rope->original_length);
    print_key(w, "rope_scaling");
    tsr__json_print(w, "{\"type\": \"longrope\"");
    print_divisors(w, "short_factor", rope);
    print_divisors(w, "long_factor", layer->long_rope);
    if (fabs(rope->attention_factor - usual) > 1e-6 * usual) {
        tsr__json_print(w, ", \"attention_factor\": ");
        tsr__json_print_real(w, tidy(rope->attention_factor));
    }
    tsr__json_print(w, "}");
    print_integer(w, "original_max_position_embeddings", (int64_t)rope->original_length);
}

static void print_scaling(tsr__json_writer *w, const tsr_model_layer *layer)
{
    const tsr_rope_params *rope = layer->rope;
    static const char *const types[] = {[TSR_ROPE_SCALING_LINEAR] = "linear",
                                        [TSR_ROPE_SCALING_LLAMA3] = "llama3",
                                        [TSR_ROPE_SCALING_YARN] = "yarn"};
    print_key(w, "rope_scaling");
    if (rope->scaling == TSR_ROPE_SCALING_NONE) {
        tsr__json_print(w, "null");
        return;
    }
    tsr__json_print(w, "{\"rope_type\": \"%s\", \"factor\": ", types[rope->scaling]);
    tsr__json_print_real(w, tidy(rope->factor));
    const struct {
        const char *key;
        double value;
        tsr_rope_scaling only;
    } more[] = {
        {"low_freq_factor", rope->low_frequency_factor, TSR_ROPE_SCALING_LLAMA3},
        {"high_freq_factor", rope->high_frequency_factor, TSR_ROPE_SCALING_LLAMA3},
        {"beta_fast", rope->beta_fast, TSR_ROPE_SCALING_YARN},
        {"beta_slow", rope->beta_slow, TSR_ROPE_SCALING_YARN},
        {"attention_factor", rope->attention_factor, TSR_ROPE_SCALING_YARN},
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i].only == rope->scaling) {
            tsr__json_print(w, ", \"%s\": ", more[i].key);
            tsr__json_print_real(w, tidy(more[i].value));
        }
    if (rope->scaling != TSR_ROPE_SCALING_LINEAR)
        tsr__json_print(w, ", \"original_max_position_embeddings\": %" PRId64,
                        (int64_t)rope->original_length);
    if (rope->exact_range)
        tsr__json_print(w, ", \"truncate\": false");
    const double scale = tsr__yarn_score_scale(layer);
    if (scale != 0) {
        tsr__json_print(w, ", \"mscale\": ");
        tsr__json_print_real(w, tidy(scale));
        tsr__json_print(w, ", \"mscale_all_dim\": ");
        tsr__json_print_real(w, tidy(scale));
    }
    if (layer->temperature != 0) {
        tsr__json_print(w, ", \"llama_4_scaling_beta\": ");
        tsr__json_print_real(w, tidy(layer->temperature));
    }
    tsr__json_print(w, "}");
}

static const char *activation_name(tsr_activation activation)
{
    static const char *const names[] = {[TSR_ACT_SILU] = "silu",
                                        [TSR_ACT_GELU_ERF] = "gelu",
                                        [TSR_ACT_GELU_TANH] = "gelu_new",
                                        [TSR_ACT_RELU] = "relu"};
    return names[activation];
}

/* Returns whether the layers with a window are those that the family's period gives. */
static bool is_periodic(const tsr_model_config *c, int period)
{
    for (int i = 0; i < c->layers; i++)
        if ((tsr__config_layer(c, i)->window > 0) != ((i + 1) % period != 0))
            return false;
    return true;
}

/* Older versions of Transformers read the period, newer ones the list. */
static void print_layer_types(tsr__json_writer *w, const tsr_model_config *c)
{
    const int period = tsr__family_by_name(c->architecture)->window_period;
    if (period > 0 && is_periodic(c, period))
        print_integer(w, "sliding_window_pattern", period);
    print_key(w, "layer_types");
    for (int i = 0; i < c->layers; i++)
        tsr__json_print(w, "%s\"%s\"", i == 0 ? "[" : ", ",
                        tsr__config_layer(c, i)->window > 0 ? "sliding_attention"
                                                            : "full_attention");
    tsr__json_print(w, "]");
}

static void print_no_rope(tsr__json_writer *w, const tsr_model_config *c, int period)
{
    print_key(w, "no_rope_layers");
    for (int i = 0; i < c->layers; i++)
        tsr__json_print(w, "%s%d", i == 0 ? "[" : ", ", tsr__config_layer(c, i)->rope != NULL);
    tsr__json_print(w, "]");
    print_integer(w, "no_rope_layer_interval", period);
}

/* Prints the factors that the family's files have. */
static void print_factors(tsr__json_writer *w, const tsr_model_config *c, const tsr__family *family)
{
    const tsr_model_layer *layer = tsr__config_usual_layer(c);
    const double scale = layer->attention_scale;
    const struct {
        const char *key;
        double value;
        bool wanted;
    } reals[] = {
        {"attention_multiplier", scale != 0 ? scale : 1 / sqrt((double)layer->head_dim),
         family->multipliers},
        {"embedding_multiplier", c->embedding_scale, family->multipliers},
        {"residual_multiplier", c->residual_scale, family->multipliers},
        {"logits_scaling", 1 / c->logit_scale, family->multipliers},
        {"query_pre_attn_scalar", scale != 0 ? 1 / (scale * scale) : (double)layer->head_dim,
         family->query_scalar},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (reals[i].wanted)
            print_real(w, reals[i].key, reals[i].value);
    if (family->query_scalar && layer->softcap != 0)
        print_real(w, "attn_logit_softcapping", layer->softcap);
    if (family->query_scalar && layer->softcap == 0)
        print_null(w, "attn_logit_softcapping");
    if (c->logit_softcap != 0)
        print_real(w, "final_logit_softcapping", c->logit_softcap);
    else if (family->query_scalar)
        print_null(w, "final_logit_softcapping");
}

static void print_window(tsr__json_writer *w, const tsr_model_config *c, tsr__windows rule)
{
    int64_t window;
    const int first = tsr__config_window(c, &window);
    if (rule == TSR__WINDOWS_IGNORED)
        return;
    print_key(w, "sliding_window");
    if (first >= 0)
        tsr__json_print(w, "%" PRId64, window);
    else
        tsr__json_print(w, "null");
    if (rule == TSR__WINDOWS_PERIODIC)
        print_layer_types(w, c);
    if (rule == TSR__WINDOWS_SWITCHED) {
        print_bool(w, "use_sliding_window", first >= 0);
        print_integer(w, "max_window_layers", first >= 0 ? first : c->layers);
    }
}

/* Prints the rotary positions, and the sizes that differ between layers, of a family with
 * sizes_by_layers. */
static void print_sizes_by_layers(tsr__json_writer *w, const tsr_model_config *c)
{
    const tsr_model_layer *windowed = tsr__config_window_layer(c),
                          *full = tsr__config_full_layer(c);
    const int shared = tsr__config_shared_layers(c);
    const int64_t last = tsr__config_layer(c, c->layers - 1)->hidden,
                  pairs = tsr__rope_proportional(full->rope);
    print_integer(w, "head_dim", windowed->head_dim);
    print_integer(w, "global_head_dim", full->head_dim);
    print_integer(w, "num_global_key_value_heads", full->kv_heads);
    print_bool(w, "attention_k_eq_v", full->keys_as_values);
    print_integer(w, "num_kv_shared_layers", shared);
    print_bool(w, "use_double_wide_mlp", shared > 0 && last == 2 * c->kinds[0]->hidden);
    print_integer(w, "hidden_size_per_layer_input", c->layer_input);
    print_integer(w, "vocab_size_per_layer_input", c->vocabulary);
    print_key(w, "rope_parameters");
    tsr__json_print(w, "{\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": ");
    tsr__json_print_real(w, tidy(windowed->rope->theta));
    tsr__json_print(w, "}, \"full_attention\": {\"rope_type\": \"%s\"",
                    pairs > 0 ? "proportional" : "default");
    if (pairs > 0) {
        tsr__json_print(w, ", \"partial_rotary_factor\": ");
        tsr__json_print_real(w, 2 * (double)pairs / (double)full->head_dim);
    }
    tsr__json_print(w, ", \"rope_theta\": ");
    tsr__json_print_real(w, tidy(full->rope->theta));
    tsr__json_print(w, "}}");
}

/* Prints the members that models with rotary positions have. */
static void print_rotary(tsr__json_writer *w, const tsr_model_config *c,
                         const tsr_model_layer *layer)
{
    const tsr__family *family = tsr__family_by_name(c->architecture);
    if (family->sizes_by_layers) {
        print_sizes_by_layers(w, c);
        return;
    }
    int64_t window;
    const int first = tsr__config_window(c, &window);
    if (!layer->latent)
        print_integer(w, "head_dim", layer->head_dim);
    if (!layer->latent && layer->value_dim != layer->head_dim)
        print_integer(w, "v_head_dim", layer->value_dim);
    print_real(w, "rope_theta", layer->rope->theta);
    if (layer->long_rope)
        print_long_rope(w, c, layer);
    else
        print_scaling(w, layer);
    if (family->window_rope == TSR__WINDOW_ROPE_OWN && first >= 0)
        print_real(w, "rope_local_base_freq", tsr__config_layer(c, first)->rope->theta);
    if (family->no_rope_period > 0)
        print_no_rope(w, c, family->no_rope_period);
    if (layer->rope->rotary_dim != layer->head_dim && !layer->latent)
        print_real(w, "partial_rotary_factor",
                   (double)layer->rope->rotary_dim / (double)layer->head_dim);
    if (family->hf_rotary_dim)
        print_integer(w, "rotary_dim", layer->rope->rotary_dim);
}

/* Prints the sizes of latent attention. */
static void print_latent(tsr__json_writer *w, const tsr_model_latent *latent)
{
    if (latent->q_lora_rank > 0)
        print_integer(w, "q_lora_rank", latent->q_lora_rank);
    else
        print_null(w, "q_lora_rank");
    print_integer(w, "kv_lora_rank", latent->kv_lora_rank);
    print_integer(w, "qk_nope_head_dim", latent->nope_dim);
    print_integer(w, "qk_rope_head_dim", latent->rope_dim);
    print_integer(w, "v_head_dim", latent->value_dim);
}

/* Prints the list of layers without experts. */
static void print_dense_layers(tsr__json_writer *w, const tsr_model_config *c, const char *key)
{
    int count = 0;
    print_integer(w, "decoder_sparse_step", 1);
    print_key(w, key);
    tsr__json_print(w, "[");
    for (int i = 0; i < c->layers; i++)
        if (!tsr__config_layer(c, i)->experts)
            tsr__json_print(w, "%s%d", count++ == 0 ? "" : ", ", i);
    tsr__json_print(w, "]");
}

static void print_experts(tsr__json_writer *w, const tsr_model_config *c,
                          const tsr__expert_keys *keys)
{
    const tsr_model_experts *e = tsr__config_experts(c);
    if (keys->enabled)
        print_bool(w, keys->enabled, e != NULL);
    if (!e)
        return;
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {keys->count, e->count},
        {keys->used ? keys->used : "num_experts_per_tok", e->used},
        {keys->hidden, e->hidden},
        {keys->shared_hidden, e->shared_hidden},
        {keys->shared_count, e->shared_hidden / e->hidden},
        {keys->first_dense, tsr__config_first_experts(c)},
        {e->groups > 1 ? "n_group" : NULL, e->groups},
        {e->groups > 1 ? "topk_group" : NULL, e->groups_used},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (integers[i].key)
            print_integer(w, integers[i].key, integers[i].value);
    if (keys->normalise)
        print_bool(w, keys->normalise, e->normalise);
    if (keys->choice_bias)
        print_bool(w, keys->choice_bias, e->choice_bias);
    if (keys->group_rule)
        print_text(w, keys->group_rule, e->choice_bias ? "noaux_tc" : "greedy");
    if (keys->group_rule && e->groups <= 1) {
        print_integer(w, "n_group", 1);
        print_integer(w, "topk_group", 1);
    }
    if (keys->gating)
        print_text(w, keys->gating, e->gating == TSR_GATING_SIGMOID ? "sigmoid" : "softmax");
    if (keys->dense_layers)
        print_dense_layers(w, c, keys->dense_layers);
    if (e->scale != 1)
        print_real(w, "routed_scaling_factor", e->scale);
    if (e->activation == TSR_EXPERT_SWIGLU_OAI)
        print_real(w, "swiglu_limit", e->limit);
}

/* Prints which layers have delta nets, and their sizes. */
static void print_delta_nets(tsr__json_writer *w, const tsr_model_config *c)
{
    int first;
    const tsr_model_delta_net *net = tsr__config_delta_net(c, &first);
    print_key(w, "layer_types");
    for (int i = 0; i < c->layers; i++)
        tsr__json_print(w, "%s\"%s\"", i == 0 ? "[" : ", ",
                        tsr__config_layer(c, i)->delta_net ? "linear_attention" : "full_attention");
    tsr__json_print(w, "]");
    print_bool(w, "attn_output_gate", tsr__config_usual_layer(c)->output_gate);
    if (!net)
        return;
    print_integer(w, "linear_num_key_heads", net->key_heads);
    print_integer(w, "linear_num_value_heads", net->heads);
    print_integer(w, "linear_key_head_dim", net->key_dim);
    print_integer(w, "linear_value_head_dim", net->value_dim);
    print_integer(w, "linear_conv_kernel_dim", net->taps);
}

/* Prints which layers have short convolutions, and that sizes of MLPs are not to be adjusted. */
static void print_short_convs(tsr__json_writer *w, const tsr_model_config *c,
                              const tsr__family *family)
{
    int taps = 0;
    print_key(w, "layer_types");
    for (int i = 0; i < c->layers; i++) {
        const int own = tsr__config_layer(c, i)->conv_taps;
        tsr__json_print(w, "%s\"%s\"", i == 0 ? "[" : ", ", own > 0 ? "conv" : "full_attention");
        taps = own > 0 ? own : taps;
    }
    tsr__json_print(w, "]");
    print_bool(w, "conv_bias", false);
    if (taps > 0)
        print_integer(w, "conv_L_cache", taps);
    if (!family->adjusted_hidden)
        return;
    print_integer(w, "block_ff_dim", tsr__config_usual_layer(c)->hidden);
    print_bool(w, "block_auto_adjust_ff_dim", false);
    print_integer(w, "block_multiple_of", 1);
    print_real(w, "block_ffn_dim_multiplier", 1);
}

/* Prints that experts are in MXFP4, and all else is not. */
static void print_mxfp4(tsr__json_writer *w)
{
    print_key(w, "quantization_config");
    tsr__json_print(w, "{\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": "
                       "[\"model.layers.*.self_attn\", \"model.layers.*.mlp.router\", "
                       "\"model.embed_tokens\", \"lm_head\"]}");
}

/* Prints which biases there are, as far as the family's models may differ in this. */
static void print_biases(tsr__json_writer *w, const tsr_model_config *c, const tsr__family *family)
{
    const tsr_model_layer *layer = tsr__config_usual_layer(c), *usual = &family->layer;
    if (family->keys->bias) {
        if (!c->norm_bias)
            print_bool(w, family->keys->bias, false);
        return;
    }
    if (family->attention_bias == TSR__ATTENTION_BIAS_IGNORED)
        print_bool(w, "qkv_bias", layer->qkv_bias);
    else if (layer->qkv_bias != usual->qkv_bias || layer->output_bias != usual->output_bias ||
             !usual->qkv_bias)
        print_bool(w, "attention_bias", layer->qkv_bias);
    print_bool(w, "mlp_bias", layer->mlp_bias);
}

void tsr__config_print(const tsr_model_config *c, tsr_dtype dtype, bool mxfp4, tsr__json_writer *w)
{
    const tsr__family *family = tsr__family_by_name(c->architecture);
    const tsr__config_keys *keys = family->keys;
    const tsr_model_layer *layer = tsr__config_usual_layer(c);
    const tsr_model_experts *experts = tsr__config_experts(c);
    /* Some families have the size of an expert under the key that is otherwise the MLP's. */
    const int64_t hidden = experts && (layer->hidden == 0 || !family->expert_keys->hidden)
                               ? experts->hidden
                               : layer->hidden;
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {keys->layers, c->layers}, {keys->width, c->width},     {keys->heads, layer->heads},
        {keys->hidden, hidden},    {keys->context, c->context}, {"vocab_size", c->vocabulary},
    };
    tsr__json_print(w, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"",
                    family->hf_class, family->name);
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        print_integer(w, integers[i].key, integers[i].value);
    if (strcmp(keys->kv_heads, keys->heads) != 0)
        print_integer(w, keys->kv_heads, layer->kv_heads);
    print_real(w, keys->norm_epsilon, c->norm_epsilon);
    print_text(w, keys->activation, activation_name(layer->activation));
    print_bool(w, "tie_word_embeddings", c->tied);
    if (tsr__config_rotary_layer(c)->rope)
        print_rotary(w, c, tsr__config_rotary_layer(c));
    if (layer->latent)
        print_latent(w, layer->latent);
    print_factors(w, c, family);
    print_biases(w, c, family);
    if (family->expert_keys)
        print_experts(w, c, family->expert_keys);
    if (c->next_token_layers > 0)
        print_integer(w, family->hf_next_layers, c->next_token_layers);
    if (family->delta_keys)
        print_delta_nets(w, c);
    if (family->short_convs)
        print_short_convs(w, c, family);
    if (family->qk_norm_varies)
        print_bool(w, "use_qk_norm", layer->qk_norm != TSR_QK_NORM_NONE);
    if (mxfp4)
        print_mxfp4(w);
    print_window(w, c, family->windows);
    print_tokens(w, c);
    print_text(w, "torch_dtype",
               dtype == TSR_F16    ? "float16"
               : dtype == TSR_BF16 ? "bfloat16"
                                   : "float32");
    tsr__json_print(w, "\n}\n");
}

void tsr__generation_config_print(const tsr_model_config *c, tsr__json_writer *w)
{
    tsr__json_print(w, "{\n  \"_from_model_config\": true");
    print_tokens(w, c);
    tsr__json_print(w, "\n}\n");
}
