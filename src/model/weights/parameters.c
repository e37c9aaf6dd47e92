/* The parameters of our layers: which there are, and their sizes. */
#include <string.h>

#include "base/alloc.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

typedef enum size_name {
    NO_SIZE,
    WIDTH,
    QUERIES,
    KEYS,
    Q_NORM, /* the weights of the norm of q, and of k */
    K_NORM,
    HIDDEN,
    VOCABULARY,
    CONTEXT,
    HEADS,
    EXPERTS,
    EXPERT_HIDDEN,
    SHARED_HIDDEN,
    DELTA_KEYS, /* of delta nets: key_heads · key_dim, heads · value_dim, … */
    DELTA_VALUES,
    DELTA_HEADS,
    DELTA_VALUE,
    TAPS,
    CONV_TAPS,
    TWO_WIDTHS,
    VALUES, /* heads times the features of their values */
    KV_VALUES,
    Q_RANK, /* of latent attention */
    KV_RANK,
    LATENTS, /* kv_lora_rank + rope_dim */
    NOPE,
    VALUE,
    LAYER_INPUT, /* of a layer, and of all layers */
    LAYER_INPUTS,
    ONE
} size_name;

typedef enum condition {
    ALWAYS,
    NORM_BIAS,
    BEFORE, /* norms before attention and MLP, and their biases */
    BEFORE_BIAS,
    AFTER,
    AFTER_BIAS,
    ATTENTION,
    Q_DIRECT, /* attention whose queries are not compressed */
    Q_LATENT, /* compressed queries */
    LATENT,
    EACH_HEAD, /* of each head of latent attention */
    QKV_BIAS,
    GATE, /* of the output of attention */
    GATE_BIAS,
    OUTPUT_BIAS,
    SINKS,
    OWN_KEYS, /* keys, values and their norms */
    OWN_KEYS_BIAS,
    OWN_VALUES,
    OWN_VALUES_BIAS,
    QK_NORM,
    DELTA,     /* layers with a delta net */
    DELTA_F32, /* what a delta net needs in f32 */
    CONV,      /* layers with a short convolution, and what that needs in f32 */
    CONV_F32,
    NEXT, /* the first layer that predicts further tokens */
    K_NORM_TOO,
    DENSE, /* an MLP, its gate and biases */
    MLP_BIAS,
    GATED,
    GATED_BIAS,
    ROUTER, /* layers with experts, and what they may have */
    ROUTER_BIAS,
    CHOICE_BIAS,
    EACH, /* of each expert */
    EACH_BIAS,
    SHARED,
    SHARED_GATE,
    BESIDE, /* experts beside an MLP, and what these may have */
    ROUTER_NORM,
    EXPERT_SCALE,
    INPUT, /* what a layer's own input needs */
    OUTPUT_SCALE,
    LEARNED_POSITIONS,
    OWN_HEAD
} condition;

typedef struct parameter {
    const char *ours;
    size_name rows, columns; /* if `columns` is NO_SIZE, there is one dimension */
    condition only_if;
} parameter;

static const parameter outside[] = {
    {"embedding.weight", VOCABULARY, WIDTH, ALWAYS},
    {"positions.weight", CONTEXT, WIDTH, LEARNED_POSITIONS},
    {"input_table.weight", VOCABULARY, LAYER_INPUTS, INPUT},
    {"input_projection.weight", LAYER_INPUTS, WIDTH, INPUT},
    {"input_norm.weight", LAYER_INPUT, NO_SIZE, INPUT},
    {"norm.weight", WIDTH, NO_SIZE, ALWAYS},
    {"norm.bias", WIDTH, NO_SIZE, NORM_BIAS},
    {"head.weight", VOCABULARY, WIDTH, OWN_HEAD},
};
static const parameter inside[] = {
    {"next.embedding_norm.weight", WIDTH, NO_SIZE, NEXT},
    {"next.hidden_norm.weight", WIDTH, NO_SIZE, NEXT},
    {"next.join.weight", WIDTH, TWO_WIDTHS, NEXT},
    {"end.scale", ONE, NO_SIZE, OUTPUT_SCALE},
    {"norm1.weight", WIDTH, NO_SIZE, BEFORE},
    {"norm1.bias", WIDTH, NO_SIZE, BEFORE_BIAS},
    {"attention.q_a.weight", Q_RANK, WIDTH, Q_LATENT},
    {"attention.q_a_norm.weight", Q_RANK, NO_SIZE, Q_LATENT},
    {"attention.q_b.weight", QUERIES, Q_RANK, Q_LATENT},
    {"attention.q.weight", QUERIES, WIDTH, Q_DIRECT},
    {"attention.q.bias", QUERIES, NO_SIZE, QKV_BIAS},
    {"attention.k.weight", KEYS, WIDTH, OWN_KEYS},
    {"attention.k.bias", KEYS, NO_SIZE, OWN_KEYS_BIAS},
    {"attention.v.weight", KV_VALUES, WIDTH, OWN_VALUES},
    {"attention.v.bias", KV_VALUES, NO_SIZE, OWN_VALUES_BIAS},
    {"attention.gate.weight", VALUES, WIDTH, GATE},
    {"attention.gate.bias", VALUES, NO_SIZE, GATE_BIAS},
    {"attention.q_norm.weight", Q_NORM, NO_SIZE, QK_NORM},
    {"attention.k_norm.weight", K_NORM, NO_SIZE, K_NORM_TOO},
    {"attention.kv_a.weight", LATENTS, WIDTH, LATENT},
    {"attention.kv_a_norm.weight", KV_RANK, NO_SIZE, LATENT},
    {"attention.k_b.weight", KV_RANK, NOPE, EACH_HEAD},
    {"attention.v_b.weight", VALUE, KV_RANK, EACH_HEAD},
    {"attention.o.weight", WIDTH, VALUES, ATTENTION},
    {"attention.o.bias", WIDTH, NO_SIZE, OUTPUT_BIAS},
    {"attention.sinks", HEADS, NO_SIZE, SINKS},
    {"delta_net.q.weight", DELTA_KEYS, WIDTH, DELTA},
    {"delta_net.k.weight", DELTA_KEYS, WIDTH, DELTA},
    {"delta_net.v.weight", DELTA_VALUES, WIDTH, DELTA},
    {"delta_net.z.weight", DELTA_VALUES, WIDTH, DELTA},
    {"delta_net.beta.weight", DELTA_HEADS, WIDTH, DELTA},
    {"delta_net.alpha.weight", DELTA_HEADS, WIDTH, DELTA},
    {"delta_net.q_conv.weight", DELTA_KEYS, TAPS, DELTA_F32},
    {"delta_net.k_conv.weight", DELTA_KEYS, TAPS, DELTA_F32},
    {"delta_net.v_conv.weight", DELTA_VALUES, TAPS, DELTA_F32},
    {"delta_net.a_log", DELTA_HEADS, NO_SIZE, DELTA_F32},
    {"delta_net.dt_bias", DELTA_HEADS, NO_SIZE, DELTA_F32},
    {"delta_net.norm.weight", DELTA_VALUE, NO_SIZE, DELTA_F32},
    {"delta_net.o.weight", WIDTH, DELTA_VALUES, DELTA},
    {"short_conv.b.weight", WIDTH, WIDTH, CONV},
    {"short_conv.c.weight", WIDTH, WIDTH, CONV},
    {"short_conv.x.weight", WIDTH, WIDTH, CONV},
    {"short_conv.conv.weight", WIDTH, CONV_TAPS, CONV_F32},
    {"short_conv.o.weight", WIDTH, WIDTH, CONV},
    {"post_norm1.weight", WIDTH, NO_SIZE, AFTER},
    {"post_norm1.bias", WIDTH, NO_SIZE, AFTER_BIAS},
    {"norm2.weight", WIDTH, NO_SIZE, BEFORE},
    {"norm2.bias", WIDTH, NO_SIZE, BEFORE_BIAS},
    {"mlp.gate.weight", HIDDEN, WIDTH, GATED},
    {"mlp.gate.bias", HIDDEN, NO_SIZE, GATED_BIAS},
    {"mlp.up.weight", HIDDEN, WIDTH, DENSE},
    {"mlp.up.bias", HIDDEN, NO_SIZE, MLP_BIAS},
    {"mlp.down.weight", WIDTH, HIDDEN, DENSE},
    {"mlp.down.bias", WIDTH, NO_SIZE, MLP_BIAS},
    {"mlp_norm.weight", WIDTH, NO_SIZE, BESIDE},
    {"mlp.norm.weight", WIDTH, NO_SIZE, BESIDE},
    {"mlp.router.weight", EXPERTS, WIDTH, ROUTER},
    {"mlp.router.bias", EXPERTS, NO_SIZE, ROUTER_BIAS},
    {"mlp.router.choice_bias", EXPERTS, NO_SIZE, CHOICE_BIAS},
    {"mlp.router.scale", WIDTH, NO_SIZE, ROUTER_NORM},
    {"mlp.router.expert_scale", EXPERTS, NO_SIZE, EXPERT_SCALE},
    {"mlp.experts.gate.weight", EXPERT_HIDDEN, WIDTH, EACH},
    {"mlp.experts.gate.bias", EXPERT_HIDDEN, NO_SIZE, EACH_BIAS},
    {"mlp.experts.up.weight", EXPERT_HIDDEN, WIDTH, EACH},
    {"mlp.experts.up.bias", EXPERT_HIDDEN, NO_SIZE, EACH_BIAS},
    {"mlp.experts.down.weight", WIDTH, EXPERT_HIDDEN, EACH},
    {"mlp.experts.down.bias", WIDTH, NO_SIZE, EACH_BIAS},
    {"mlp.shared.gate.weight", SHARED_HIDDEN, WIDTH, SHARED},
    {"mlp.shared.up.weight", SHARED_HIDDEN, WIDTH, SHARED},
    {"mlp.shared.down.weight", WIDTH, SHARED_HIDDEN, SHARED},
    {"mlp.shared.router.weight", ONE, WIDTH, SHARED_GATE},
    {"experts_norm.weight", WIDTH, NO_SIZE, BESIDE},
    {"post_norm2.weight", WIDTH, NO_SIZE, AFTER},
    {"post_norm2.bias", WIDTH, NO_SIZE, AFTER_BIAS},
    {"next.norm.weight", WIDTH, NO_SIZE, NEXT},
    {"end.gate.weight", LAYER_INPUT, WIDTH, INPUT},
    {"end.out.weight", WIDTH, LAYER_INPUT, INPUT},
    {"end.norm.weight", WIDTH, NO_SIZE, INPUT},
};
#define OUTSIDE (sizeof outside / sizeof *outside)
#define INSIDE (sizeof inside / sizeof *inside)

/* Returns a size of a layer, or of the model outside its layers. */
static int64_t size_of(const tsr_model_config *config, const tsr_model_layer *layer, size_name name)
{
    switch (name) {
    case WIDTH:
        return config->width;
    case QUERIES:
        return layer->heads * layer->head_dim;
    case KEYS:
        return layer->kv_heads * layer->head_dim;
    case Q_NORM:
        return (layer->qk_norm == TSR_QK_NORM_WHOLE ? layer->heads : 1) * layer->head_dim;
    case K_NORM:
        return (layer->qk_norm == TSR_QK_NORM_WHOLE ? layer->kv_heads : 1) * layer->head_dim;
    case HIDDEN:
        return layer->hidden;
    case VOCABULARY:
        return config->vocabulary;
    case CONTEXT:
        return config->context;
    case HEADS:
        return layer->heads;
    case EXPERTS:
        return layer->experts->count;
    case EXPERT_HIDDEN:
        return layer->experts->hidden;
    case SHARED_HIDDEN:
        return layer->experts->shared_hidden;
    case DELTA_KEYS:
        return layer->delta_net->key_heads * layer->delta_net->key_dim;
    case DELTA_VALUES:
        return layer->delta_net->heads * layer->delta_net->value_dim;
    case DELTA_HEADS:
        return layer->delta_net->heads;
    case DELTA_VALUE:
        return layer->delta_net->value_dim;
    case TAPS:
        return layer->delta_net->taps;
    case CONV_TAPS:
        return layer->conv_taps;
    case TWO_WIDTHS:
        return 2 * config->width;
    case VALUES:
        return layer->heads * layer->value_dim;
    case KV_VALUES:
        return layer->kv_heads * layer->value_dim;
    case Q_RANK:
        return layer->latent->q_lora_rank;
    case KV_RANK:
        return layer->latent->kv_lora_rank;
    case LATENTS:
        return layer->latent->kv_lora_rank + layer->latent->rope_dim;
    case NOPE:
        return layer->latent->nope_dim;
    case VALUE:
        return layer->value_dim;
    case LAYER_INPUT:
        return config->layer_input;
    case LAYER_INPUTS:
        return config->layer_input * config->layers;
    case ONE:
    case NO_SIZE:
        break;
    }
    return 1;
}

/* Returns whether a layer has an MLP. */
static bool has_mlp(const tsr_model_layer *layer)
{
    return !layer->experts || layer->experts->beside_mlp;
}

/* Returns whether a layer has keys of each head of its own. */
static bool has_own_keys(const tsr_model_layer *layer)
{
    return !tsr__layer_has_state(layer) && !layer->latent && !layer->shared_keys;
}

static bool exists(const tsr_model_config *config, int number, condition only_if)
{
    const tsr_model_layer *layer = tsr__config_layer(config, number);
    const tsr_model_experts *experts = layer ? layer->experts : NULL;
    switch (only_if) {
    case NORM_BIAS:
        return config->norm_bias;
    case BEFORE:
        return layer->norms != TSR_BLOCK_NORMS_AFTER;
    case BEFORE_BIAS:
        return layer->norms != TSR_BLOCK_NORMS_AFTER && config->norm_bias;
    case AFTER:
        return layer->norms != TSR_BLOCK_NORMS_BEFORE;
    case AFTER_BIAS:
        return layer->norms != TSR_BLOCK_NORMS_BEFORE && config->norm_bias;
    case ATTENTION:
        return !tsr__layer_has_state(layer);
    case Q_DIRECT:
        return !tsr__layer_has_state(layer) && !(layer->latent && layer->latent->q_lora_rank > 0);
    case Q_LATENT:
        return layer->latent && layer->latent->q_lora_rank > 0;
    case LATENT:
    case EACH_HEAD:
        return layer->latent != NULL;
    case QKV_BIAS:
        return layer->qkv_bias;
    case GATE:
        return layer->output_gate;
    case GATE_BIAS:
        return layer->output_gate && layer->qkv_bias;
    case DELTA:
    case DELTA_F32:
        return layer->delta_net != NULL;
    case CONV:
    case CONV_F32:
        return layer->conv_taps > 0;
    case NEXT:
        return config->next_token_layers > 0 && number == config->layers;
    case OUTPUT_BIAS:
        return layer->output_bias;
    case SINKS:
        return layer->sinks;
    case OWN_KEYS:
        return has_own_keys(layer);
    case OWN_KEYS_BIAS:
        return layer->qkv_bias && !layer->shared_keys;
    case OWN_VALUES:
        return has_own_keys(layer) && !layer->keys_as_values;
    case OWN_VALUES_BIAS:
        return layer->qkv_bias && !layer->shared_keys && !layer->keys_as_values;
    case DENSE:
        return has_mlp(layer);
    case MLP_BIAS:
        return has_mlp(layer) && layer->mlp_bias;
    case QK_NORM:
        return layer->qk_norm != TSR_QK_NORM_NONE;
    case K_NORM_TOO:
        return layer->qk_norm != TSR_QK_NORM_NONE && !layer->shared_keys;
    case GATED:
        return has_mlp(layer) && layer->gated;
    case GATED_BIAS:
        return has_mlp(layer) && layer->gated && layer->mlp_bias;
    case ROUTER:
    case EACH:
        return experts != NULL;
    case ROUTER_BIAS:
        return experts && experts->router_bias;
    case CHOICE_BIAS:
        return experts && experts->choice_bias;
    case EACH_BIAS:
        return experts && experts->bias;
    case SHARED:
        return experts && experts->shared_hidden > 0;
    case SHARED_GATE:
        return experts && experts->shared_gate;
    case BESIDE:
        return experts && experts->beside_mlp;
    case ROUTER_NORM:
        return experts && experts->router_norm;
    case EXPERT_SCALE:
        return experts && experts->expert_scale;
    case INPUT:
        return config->layer_input > 0;
    case OUTPUT_SCALE:
        return layer->output_scale;
    case LEARNED_POSITIONS:
        return config->learned_positions;
    case OWN_HEAD:
        return !config->tied;
    case ALWAYS:
        break;
    }
    return true;
}

static bool is_of_experts(const parameter *p)
{
    return p->only_if == EACH || p->only_if == EACH_BIAS || p->only_if == EACH_HEAD;
}

/* Returns the number of matrices of a parameter of experts or of heads. */
static int64_t matrices_of(const parameter *p, const tsr_model_layer *layer)
{
    return p->only_if == EACH_HEAD ? layer->heads : layer->experts->count;
}

static bool is_f32(const parameter *p)
{
    return strstr(p->ours, "norm") || strstr(p->ours, "router") || p->only_if == SINKS ||
           p->only_if == DELTA_F32 || p->only_if == CONV_F32 || p->only_if == OUTPUT_SCALE;
}

static tsr__parameter described(const tsr_model_config *config, int number, const parameter *p)
{
    const tsr_model_layer *layer = tsr__config_layer(config, number);
    return (tsr__parameter){.ours = p->ours,
                            .ndim = p->columns == NO_SIZE ? 1 : 2,
                            .rows = size_of(config, layer, p->rows),
                            .columns = size_of(config, layer, p->columns),
                            .experts = is_of_experts(p) ? matrices_of(p, layer) : 0,
                            .of_heads = p->only_if == EACH_HEAD,
                            .is_f32 = is_f32(p)};
}

bool tsr__weights_parameter(const tsr_model_config *config, int number, int index,
                            tsr__parameter *out)
{
    const bool in_layer = tsr__config_layer(config, number) != NULL;
    const parameter *table = in_layer ? inside : outside;
    const size_t count = in_layer ? INSIDE : OUTSIDE;
    for (size_t i = 0; i < count; i++)
        if (exists(config, number, table[i].only_if) && index-- == 0) {
            *out = described(config, number, &table[i]);
            return true;
        }
    return false;
}

uint64_t tsr_model_config_parameters(const tsr_model_config *given, int layer)
{
    uint64_t sum = 0;
    tsr__config *config = NULL;
    tsr__parameter p;
    if (!given || tsr__config_copy(given, &config) != TSR_OK)
        return 0;
    const int layers = config->public.layers, first = layer < 0 ? -1 : layer,
              end = layer < 0                                           ? layers
                    : layer < layers + config->public.next_token_layers ? layer + 1
                                                                        : first;
    for (int i = first; i < end; i++)
        for (int j = 0; tsr__weights_parameter(&config->public, i, j, &p); j++)
            sum +=
                (uint64_t)p.rows * (uint64_t)p.columns * (uint64_t)(p.experts > 0 ? p.experts : 1);
    tsr__free(config);
    return sum;
}

static const parameter *parameter_of(int layer, const char *ours)
{
    const parameter *table = layer < 0 ? outside : inside;
    const size_t count = layer < 0 ? OUTSIDE : INSIDE;
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].ours, ours) == 0)
            return &table[i];
    return NULL;
}

int tsr__weights_ndim(int layer, const char *ours)
{
    const parameter *p = parameter_of(layer, ours);
    return !p ? 0 : p->columns == NO_SIZE ? 1 : 2;
}

tsr__parameter tsr__weights_parameter_of(const tsr_model_config *config, int layer,
                                         const char *ours)
{
    return described(config, layer, parameter_of(layer, ours));
}

bool tsr__weights_is_matrix(int layer, const char *ours)
{
    const parameter *p = parameter_of(layer, ours);
    return p && p->columns != NO_SIZE && !is_f32(p);
}
