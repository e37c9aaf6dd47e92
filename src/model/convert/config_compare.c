#include <inttypes.h>
#include <math.h>

#include "model/convert/config.h"

static tsr_status differs(const char *destination, const char *what, double source, double written)
{
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
        {"the frequency scaling (none, linear, llama3, yarn)", (double)a->scaling,
         (double)b->scaling},
        {"the number of rotated components", (double)a->rotary_dim, (double)b->rotary_dim},
        {"the base of rope", a->theta, b->theta},
        {"the factor of rope scaling", a->factor, b->factor},
        {"the original length of rope scaling", a->original_length, b->original_length},
        {"low_freq_factor", a->low_frequency_factor, b->low_frequency_factor},
        {"high_freq_factor", a->high_frequency_factor, b->high_frequency_factor},
        {"beta_fast", a->beta_fast, b->beta_fast},
        {"beta_slow", a->beta_slow, b->beta_slow},
        {"attention_factor", a->attention_factor, b->attention_factor},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!near(reals[i].source, reals[i].written))
            return differs(destination, reals[i].what, reals[i].source, reals[i].written);
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

static tsr_status compare_layers(const tsr_model_layer *a, const tsr_model_layer *b,
                                 const char *destination)
{
    const compared values[] = {
        {"the number of heads", a->heads, b->heads},
        {"the number of kv heads", a->kv_heads, b->kv_heads},
        {"the size of a head", a->head_dim, b->head_dim},
        {"the number of hidden features", a->hidden, b->hidden},
        {"whether q, k and v have biases", a->qkv_bias, b->qkv_bias},
        {"whether the attention's output has a bias", a->output_bias, b->output_bias},
        {"whether the MLP has biases", a->mlp_bias, b->mlp_bias},
        {"whether q and k have norms", a->qk_norm, b->qk_norm},
        {"whether the MLP has a gate", a->gated, b->gated},
        {"the activation (see tsr_activation)", a->activation, b->activation},
        {"whether a layer has rotary positions", a->rope != NULL, b->rope != NULL},
    };
    TSR__TRY(compare_integers(values, sizeof values / sizeof *values, destination));
    return a->rope ? compare_rope(a->rope, b->rope, destination) : TSR_OK;
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
        {"the kind of norm", a->norm, b->norm},
        {"whether norms have biases", a->norm_bias, b->norm_bias},
        {"whether positions are learned", a->learned_positions, b->learned_positions},
        {"the sliding window", a_window, b_window},
        {"the first layer with a sliding window", a_from, b_from},
        {"whether the head is the embedding", a->tied, b->tied},
    };
    TSR__TRY(compare_integers(values, sizeof values / sizeof *values, destination));
    if (!near(a->norm_epsilon, b->norm_epsilon))
        return differs(destination, "the norms' epsilon", a->norm_epsilon, b->norm_epsilon);
    for (int i = 0; i < a->layers; i++)
        TSR__TRY(compare_layers(tsr__config_layer(a, i), tsr__config_layer(b, i), destination));
    return TSR_OK;
}
