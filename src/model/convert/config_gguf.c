/* The metadata of GGUF files. Source of the keys: github.com/ggml-org/ggml, docs/gguf.md. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/convert/config.h"

#define KEY_SIZE 128

typedef struct put {
    tsr__gguf_writer *writer;
    const char *architecture;
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

static tsr_status put_sizes(put *p, const tsr_model_config *c)
{
    const tsr_model_layer *layer = c->kinds[0];
    int64_t window;
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {"block_count", c->layers},
        {"context_length", c->context},
        {"embedding_length", c->width},
        {"feed_forward_length", layer->hidden},
        {"attention.head_count", layer->heads},
        {"attention.head_count_kv", layer->kv_heads},
        {"attention.key_length", layer->head_dim},
        {"attention.value_length", layer->head_dim},
        {"vocab_size", c->vocabulary},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        TSR__TRY(put_integer(p, integers[i].key, integers[i].value));
    if (tsr__config_window(c, &window) >= 0)
        TSR__TRY(put_integer(p, "attention.sliding_window", window));
    return put_real(p,
                    c->norm == TSR_NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                            : "attention.layer_norm_epsilon",
                    c->norm_epsilon);
}

static tsr_status put_scaling(put *p, const tsr_rope_params *rope)
{
    if (rope->scaling != TSR_ROPE_SCALING_LINEAR && rope->scaling != TSR_ROPE_SCALING_YARN)
        return TSR_OK;
    const bool yarn = rope->scaling == TSR_ROPE_SCALING_YARN;
    const char *type = yarn ? "yarn" : "linear";
    TSR__TRY(tsr__gguf_put_string(p->writer, key_of(p, "rope.scaling.type"), type, strlen(type)));
    TSR__TRY(put_real(p, "rope.scaling.factor", rope->factor));
    if (!yarn)
        return TSR_OK;
    TSR__TRY(
        put_integer(p, "rope.scaling.original_context_length", (int64_t)rope->original_length));
    TSR__TRY(put_real(p, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    TSR__TRY(put_real(p, "rope.scaling.yarn_beta_slow", rope->beta_slow));
    /* The factor in the file is relative to the one that YaRN computes from the scaling factor;
     * attention_factor is the product of both. */
    return put_real(p, "rope.scaling.attn_factor",
                    rope->attention_factor / tsr__yarn_attention(rope->factor));
}

bool tsr__config_gelu_is_exact(const tsr_model_config *c)
{
    return c->kinds[0]->activation == TSR_ACT_GELU_ERF &&
           tsr__family_by_name(c->architecture)->layer.activation == TSR_ACT_GELU_TANH;
}

tsr_status tsr__config_put_gguf(const tsr_model_config *c, const char *name,
                                tsr__gguf_writer *writer)
{
    put p = {.writer = writer, .architecture = tsr__family_by_name(c->architecture)->gguf};
    TSR__TRY(put_text(&p, "general.architecture", p.architecture));
    TSR__TRY(put_text(&p, "general.type", "model"));
    TSR__TRY(put_text(&p, "general.name", name));
    TSR__TRY(put_sizes(&p, c));
    if (tsr__config_gelu_is_exact(c))
        TSR__TRY(put_text(&p, TSR__GGUF_ACTIVATION, "gelu"));
    const tsr_rope_params *rope = c->kinds[0]->rope;
    if (!rope)
        return TSR_OK;
    TSR__TRY(put_integer(&p, "rope.dimension_count", rope->rotary_dim));
    TSR__TRY(put_real(&p, "rope.freq_base", rope->theta));
    return put_scaling(&p, rope);
}

void tsr__config_rope_factors(const tsr_model_config *c, float factors[TSR_MAX_HEAD_DIM / 2],
                              int64_t *count)
{
    const tsr_rope_params *rope = c->kinds[0]->rope;
    *count = 0;
    if (!rope || rope->scaling != TSR_ROPE_SCALING_LLAMA3)
        return;
    *count = rope->rotary_dim / 2;
    for (int64_t i = 0; i < *count; i++)
        factors[i] = (float)tsr__llama3_divisor(rope, i);
}
