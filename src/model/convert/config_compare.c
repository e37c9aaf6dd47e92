#include <inttypes.h>
#include <math.h>

#include "model/convert/config.h"

static tsr_status differs(const char *destination, const char *what, double source, double written)
{
    if (!destination)
        return tsr__fail(TSR_ERR_INVALID, "stack: %s is %g, but %g for the model's files", what,
                         source, written);
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "convert: %s cannot say that %s is %g; it would be read as %g", destination,
                     what, source, written);
}

/* Compares numbers with a tolerance, because GGUF files store them as f32. */
static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

/* An integer in the source, and as it would be read from the destination. */
typedef struct compared {
    const char *what;
    int64_t source, written;
} compared;

static tsr_status compare_rope(const tsr_rope_params *a, const tsr_rope_params *b,
                               const char *destination)
{
    const struct {
        const char *what;
        double source, written;
    } reals[] = {
        {"the frequency scaling (none, linear, llama3, yarn, longrope)", (double)a->scaling,
         (double)b->scaling},
        {"the number of rotated components", (double)a->rotary_dim, (double)b->rotary_dim},
        {"the base of rope", a->theta, b->theta},
        {"the factor of rope scaling", a->factor, b->factor},
        {"the original length of rope scaling", a->original_length, b->original_length},
        {"low_freq_factor", a->low_frequency_factor, b->low_frequency_factor},
        {"high_freq_factor", a->high_frequency_factor, b->high_frequency_factor},
        {"whether the range of YaRN is exact (truncate = false)", a->exact_range, b->exact_range},
        {"beta_fast", a->beta_fast, b->beta_fast},
        {"beta_slow", a->beta_slow, b->beta_slow},
        {"attention_factor", a->attention_factor, b->attention_factor},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!near(reals[i].source, reals[i].written))
            return differs(destination, reals[i].what, reals[i].source, reals[i].written);
    for (int64_t i = 0; a->scaling == TSR_ROPE_SCALING_DIVISORS && i < a->rotary_dim / 2; i++)
        if (!near((double)a->divisors[i], (double)b->divisors[i]))
            return differs(destination, "a factor of LongRoPE", (double)a->divisors[i],
                           (double)b->divisors[i]);
    return TSR_OK;
}

static tsr_status compare_integers(const compared *values, size_t count, const char *destination)
{
    for (size_t i = 0; i < count; i++)
        if (values[i].source != values[i].written)
            return differs(destination, values[i].what, (double)values[i].source,
                           (double)values[i].written);
    return TSR_OK;
}

/* Returns the factor of a layer's scores, also if it is the usual one. */
static double scale_of(const tsr_model_layer *layer)
{
    return layer->attention_scale != 0 ? layer->attention_scale : 1 / sqrt((double)layer->head_dim);
}

static tsr_status compare_experts(const tsr_model_experts *a, const tsr_model_experts *b,
                                  const char *destination)
{
    const compared values[] = {
        {"the number of experts", a->count, b->count},
        {"the number of experts of a token", a->used, b->used},
        {"the number of hidden features of an expert", a->hidden, b->hidden},
        {"the gating function of experts (see tsr_gating)", a->gating, b->gating},
        {"whether weights of experts are normalised", a->normalise, b->normalise},
        {"the number of groups of experts", a->groups > 1 ? a->groups : 1,
         b->groups > 1 ? b->groups : 1},
        {"the number of groups of experts of a token", a->groups > 1 ? a->groups_used : 1,
         b->groups > 1 ? b->groups_used : 1},
        {"whether the router has a bias", a->router_bias, b->router_bias},
        {"whether the choice of experts has a bias", a->choice_bias, b->choice_bias},
        {"whether experts have biases", a->bias, b->bias},
        {"the activation of experts (see tsr_expert_activation)", a->activation, b->activation},
        {"the number of hidden features of the shared expert", a->shared_hidden, b->shared_hidden},
        {"whether the shared expert has a gate", a->shared_gate, b->shared_gate},
        {"whether experts are beside an MLP", a->beside_mlp, b->beside_mlp},
        {"whether the router has a norm", a->router_norm, b->router_norm},
        {"whether experts have factors", a->expert_scale, b->expert_scale},
    };
    TSR__TRY(compare_integers(values, sizeof values / sizeof *values, destination));
    if (!near(a->scale, b->scale))
        return differs(destination, "the factor of weights of experts", a->scale, b->scale);
    return near(a->limit, b->limit)
               ? TSR_OK
               : differs(destination, "the limit of the experts' activation", a->limit, b->limit);
}

static tsr_status compare_delta_nets(const tsr_model_delta_net *a, const tsr_model_delta_net *b,
                                     const char *destination)
{
    const compared values[] = {
        {"the number of key heads of a delta net", a->key_heads, b->key_heads},
        {"the number of heads of a delta net", a->heads, b->heads},
        {"the key size of a delta net", a->key_dim, b->key_dim},
        {"the value size of a delta net", a->value_dim, b->value_dim},
        {"the number of taps of a delta net", a->taps, b->taps},
    };
    return compare_integers(values, sizeof values / sizeof *values, destination);
}

static tsr_status compare_latents(const tsr_model_latent *a, const tsr_model_latent *b,
                                  const char *destination)
{
    const compared values[] = {
        {"q_lora_rank", a->q_lora_rank, b->q_lora_rank},
        {"kv_lora_rank", a->kv_lora_rank, b->kv_lora_rank},
        {"the features of a head that are not rotated", a->nope_dim, b->nope_dim},
        {"the features of a head that are rotated", a->rope_dim, b->rope_dim},
        {"the features of a value", a->value_dim, b->value_dim},
    };
    return compare_integers(values, sizeof values / sizeof *values, destination);
}

/* Returns the size of the layer's MLP; 0: it has none. */
static int64_t mlp_size(const tsr_model_layer *layer)
{
    return layer->experts && !layer->experts->beside_mlp ? 0 : layer->hidden;
}

static tsr_status compare_layers(const tsr_model_layer *a, const tsr_model_layer *b,
                                 const char *destination)
{
    const compared values[] = {
        {"the number of heads", a->heads, b->heads},
        {"the number of kv heads", a->kv_heads, b->kv_heads},
        {"the size of a head", a->head_dim, b->head_dim},
        {"the size of a head's values", a->value_dim, b->value_dim},
        {"whether a layer has experts", a->experts != NULL, b->experts != NULL},
        {"whether attention has sinks", a->sinks, b->sinks},
        {"whether the output of attention has a gate", a->output_gate, b->output_gate},
        {"whether a layer has a delta net", a->delta_net != NULL, b->delta_net != NULL},
        {"the taps of a layer's short convolution", a->conv_taps, b->conv_taps},
        {"the number of hidden features", mlp_size(a), mlp_size(b)},
        {"whether values have a norm", a->value_norm, b->value_norm},
        {"whether values are keys", a->keys_as_values, b->keys_as_values},
        {"whether a layer uses the keys of another", a->shared_keys, b->shared_keys},
        {"whether a layer's output has a scale", a->output_scale, b->output_scale},
        {"whether q, k and v have biases", a->qkv_bias, b->qkv_bias},
        {"whether the attention's output has a bias", a->output_bias, b->output_bias},
        {"whether the MLP has biases", a->mlp_bias, b->mlp_bias},
        {"which norms q and k have (see tsr_qk_norm)", a->qk_norm, b->qk_norm},
        {"where a layer has norms (see tsr_block_norms)", a->norms, b->norms},
        {"the sliding window of a layer", a->window, b->window},
        {"the length of the temperature", a->temperature_length, b->temperature_length},
        {"whether a layer has other rotary positions for long contexts", a->long_rope != NULL,
         b->long_rope != NULL},
        {"whether the MLP has a gate", a->gated, b->gated},
        {"the activation (see tsr_activation)", a->activation, b->activation},
        {"whether a layer has rotary positions", a->rope != NULL, b->rope != NULL},
        {"whether attention is latent", a->latent != NULL, b->latent != NULL},
    };
    TSR__TRY(compare_integers(values, sizeof values / sizeof *values, destination));
    if (a->latent)
        TSR__TRY(compare_latents(a->latent, b->latent, destination));
    if (a->experts)
        TSR__TRY(compare_experts(a->experts, b->experts, destination));
    if (a->delta_net)
        return compare_delta_nets(a->delta_net, b->delta_net, destination);
    if (a->conv_taps > 0)
        return TSR_OK;
    if (!near(scale_of(a), scale_of(b)))
        return differs(destination, "the factor of scores", scale_of(a), scale_of(b));
    if (!near(a->temperature, b->temperature))
        return differs(destination, "the temperature", a->temperature, b->temperature);
    if (!near(a->softcap, b->softcap))
        return differs(destination, "the soft cap of scores", a->softcap, b->softcap);
    if (a->rope)
        TSR__TRY(compare_rope(a->rope, b->rope, destination));
    return a->long_rope ? compare_rope(a->long_rope, b->long_rope, destination) : TSR_OK;
}

static tsr_status compare_factors(const tsr_model_config *a, const tsr_model_config *b,
                                  const char *destination)
{
    const struct {
        const char *what;
        double source, written;
    } reals[] = {
        {"the norms' epsilon", a->norm_epsilon, b->norm_epsilon},
        {"the factor of the embedding", a->embedding_scale, b->embedding_scale},
        {"the factor of residual branches", a->residual_scale, b->residual_scale},
        {"the factor of logits", a->logit_scale, b->logit_scale},
        {"the soft cap of logits", a->logit_softcap, b->logit_softcap},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!near(reals[i].source, reals[i].written))
            return differs(destination, reals[i].what, reals[i].source, reals[i].written);
    return TSR_OK;
}

tsr_status tsr__config_compare(const tsr_model_config *a, const tsr_model_config *b,
                               const char *destination)
{
    int64_t a_window, b_window;
    const int a_from = tsr__config_window(a, &a_window), b_from = tsr__config_window(b, &b_window);
    const compared values[] = {
        {"the number of layers", a->layers, b->layers},
        {"the width", a->width, b->width},
        {"the vocabulary", a->vocabulary, b->vocabulary},
        {"the context", a->context, b->context},
        {"the number of features of a layer's own input", a->layer_input, b->layer_input},
        {"the kind of norm", a->norm, b->norm},
        {"whether norms have biases", a->norm_bias, b->norm_bias},
        {"whether positions are learned", a->learned_positions, b->learned_positions},
        {"the sliding window", a_window, b_window},
        {"the first layer with a sliding window", a_from, b_from},
        {"whether the head is the embedding", a->tied, b->tied},
        {"the number of layers that predict further tokens", a->next_token_layers,
         b->next_token_layers},
    };
    TSR__TRY(compare_integers(values, sizeof values / sizeof *values, destination));
    TSR__TRY(compare_factors(a, b, destination));
    for (int i = 0; i < a->layers; i++)
        TSR__TRY(compare_layers(tsr__config_layer(a, i), tsr__config_layer(b, i), destination));
    return TSR_OK;
}
