/* config.json and generation_config.json, as Hugging Face writes them. */
#include <inttypes.h>
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

static void print_scaling(tsr__json_writer *w, const tsr_rope_params *rope)
{
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
    if (rule == TSR__WINDOWS_SWITCHED) {
        print_bool(w, "use_sliding_window", first >= 0);
        print_integer(w, "max_window_layers", first >= 0 ? first : c->layers);
    }
}

/* Prints the members that models with rotary positions have. */
static void print_rotary(tsr__json_writer *w, const tsr_model_layer *layer)
{
    print_integer(w, "head_dim", layer->head_dim);
    print_real(w, "rope_theta", layer->rope->theta);
    print_scaling(w, layer->rope);
    if (layer->rope->rotary_dim != layer->head_dim)
        print_real(w, "partial_rotary_factor",
                   (double)layer->rope->rotary_dim / (double)layer->head_dim);
}

/* Prints which biases there are, as far as the family's models may differ in this. */
static void print_biases(tsr__json_writer *w, const tsr_model_config *c, const tsr__family *family)
{
    const tsr_model_layer *layer = c->kinds[0], *usual = &family->layer;
    if (family->keys->bias) {
        if (!c->norm_bias)
            print_bool(w, family->keys->bias, false);
        return;
    }
    if (layer->qkv_bias != usual->qkv_bias || layer->output_bias != usual->output_bias ||
        !usual->qkv_bias)
        print_bool(w, "attention_bias", layer->qkv_bias);
    print_bool(w, "mlp_bias", layer->mlp_bias);
}

void tsr__config_print(const tsr_model_config *c, tsr_dtype dtype, tsr__json_writer *w)
{
    const tsr__family *family = tsr__family_by_name(c->architecture);
    const tsr__config_keys *keys = family->keys;
    const tsr_model_layer *layer = c->kinds[0];
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {keys->layers, c->layers},     {keys->width, c->width},     {keys->heads, layer->heads},
        {keys->hidden, layer->hidden}, {keys->context, c->context}, {"vocab_size", c->vocabulary},
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
    if (layer->rope)
        print_rotary(w, layer);
    print_biases(w, c, family);
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
