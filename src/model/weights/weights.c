#include "model/weights/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/weights/elements.h"
#include "parallel/internal.h"
#include "tensor/check.h"
#include "tensor/dtype.h"

#define NAME_SIZE TSR__WEIGHT_NAME

/* Our parameters ----------------------------------------------------------------------------- */

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
    TWO_WIDTHS,
    VALUES, /* heads times the features of their values */
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
    NEXT,      /* the first layer that predicts further tokens */
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
    {"attention.v.weight", KEYS, WIDTH, OWN_VALUES},
    {"attention.v.bias", KEYS, NO_SIZE, OWN_VALUES_BIAS},
    {"attention.gate.weight", QUERIES, WIDTH, GATE},
    {"attention.gate.bias", QUERIES, NO_SIZE, GATE_BIAS},
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
    case TWO_WIDTHS:
        return 2 * config->width;
    case VALUES:
        return layer->heads * (layer->latent ? layer->latent->value_dim : layer->head_dim);
    case Q_RANK:
        return layer->latent->q_lora_rank;
    case KV_RANK:
        return layer->latent->kv_lora_rank;
    case LATENTS:
        return layer->latent->kv_lora_rank + layer->latent->rope_dim;
    case NOPE:
        return layer->latent->nope_dim;
    case VALUE:
        return layer->latent->value_dim;
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
        return !layer->delta_net;
    case Q_DIRECT:
        return !layer->delta_net && !(layer->latent && layer->latent->q_lora_rank > 0);
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
    case NEXT:
        return config->next_token_layers > 0 && number == config->layers;
    case OUTPUT_BIAS:
        return layer->output_bias;
    case SINKS:
        return layer->sinks;
    case OWN_KEYS:
        return !layer->delta_net && !layer->latent && !layer->shared_keys;
    case OWN_KEYS_BIAS:
        return layer->qkv_bias && !layer->shared_keys;
    case OWN_VALUES:
        return !layer->delta_net && !layer->latent && !layer->shared_keys && !layer->keys_as_values;
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
           p->only_if == DELTA_F32 || p->only_if == OUTPUT_SCALE;
}

bool tsr__weights_parameter(const tsr_model_config *config, int number, int index,
                            tsr__parameter *out)
{
    const tsr_model_layer *layer = tsr__config_layer(config, number);
    const parameter *table = layer ? inside : outside;
    const size_t count = layer ? INSIDE : OUTSIDE;
    for (size_t i = 0; i < count; i++)
        if (exists(config, number, table[i].only_if) && index-- == 0) {
            *out = (tsr__parameter){
                .ours = table[i].ours,
                .ndim = table[i].columns == NO_SIZE ? 1 : 2,
                .rows = size_of(config, layer, table[i].rows),
                .columns = size_of(config, layer, table[i].columns),
                .experts = is_of_experts(&table[i]) ? matrices_of(&table[i], layer) : 0,
                .of_heads = table[i].only_if == EACH_HEAD,
                .is_f32 = is_f32(&table[i])};
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

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Names -------------------------------------------------------------------------------------- */

static const tsr__weight_name *name_of(const tsr__weights *w, int layer, const char *ours)
{
    return tsr__family_weight(w->family, layer >= 0, ours);
}

tsr__expert_tensors tsr__experts_of_family(const tsr__family *family, bool gguf)
{
    return family->hf_merged_experts && !gguf ? TSR__EXPERTS_MERGED : TSR__EXPERTS_USUAL;
}

/* Returns whether each expert has a tensor of its own. */
static bool has_asterisk(const tsr__weights *w, const tsr__weight_name *name)
{
    return w->experts == TSR__EXPERTS_APART ||
           (w->experts == TSR__EXPERTS_USUAL &&
            strchr(w->files->gguf ? name->gguf : name->hf, '*') != NULL);
}

/* Replaces `old` in a name, which has it at most once. */
static void replace(const char *old, const char *new, char text[NAME_SIZE])
{
    char after[NAME_SIZE];
    char *at = strstr(text, old);
    if (!at)
        return;
    snprintf(after, sizeof after, "%s", at + strlen(old));
    snprintf(at, NAME_SIZE - (size_t)(at - text), "%s%s", new, after);
}

/* Makes the name that a parameter has in files with this arrangement of experts. */
static void write_arrangement(const tsr__weights *w, const char *ours, const tsr__weight_name *name,
                              char text[NAME_SIZE])
{
    char *at = strchr(text, '*');
    const bool is_matrix = strstr(ours, ".weight") != NULL;
    switch (w->experts) {
    case TSR__EXPERTS_USUAL:
        break;
    case TSR__EXPERTS_MERGED:
        if (at)
            snprintf(at, NAME_SIZE - (size_t)(at - text), "%s",
                     strcmp(name->ours, "mlp.experts.down") == 0 ? "down_proj" : "gate_up_proj");
        replace("block_sparse_moe.", "mlp.", text);
        break;
    case TSR__EXPERTS_APART:
        replace("_exps.", ".*.", text);
        break;
    case TSR__EXPERTS_GATE_UP:
        if (is_matrix) {
            replace("ffn_gate_exps", "ffn_gate_up_exps", text);
            replace("ffn_up_exps", "ffn_gate_up_exps", text);
        }
        break;
    }
}

/* Replaces the asterisk of a name. */
static void write_expert(int64_t expert, char text[NAME_SIZE])
{
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, expert);
    replace("*", number, text);
}

static void write_name(const tsr__weights *w, int layer, const char *ours,
                       const tsr__weight_name *name, char text[NAME_SIZE])
{
    const char *ending = strcmp(ours, name->ours) == 0 ? "" : strrchr(ours, '.');
    if (w->files->gguf && layer < 0)
        snprintf(text, NAME_SIZE, "%s%s", name->gguf, ending);
    else if (w->files->gguf)
        snprintf(text, NAME_SIZE, "blk.%d.%s%s", layer, name->gguf, ending);
    else if (starts(ours, "next."))
        snprintf(text, NAME_SIZE, "mtp.%s%s", name->hf, ending);
    else if (tsr__config_is_next(w->config, layer))
        snprintf(text, NAME_SIZE, "mtp.layers.%d.%s%s", layer - w->config->layers, name->hf,
                 ending);
    else if (layer < 0)
        snprintf(text, NAME_SIZE, "%s%s%s", strcmp(name->ours, "head") == 0 ? "" : w->prefix,
                 name->hf, ending);
    else
        snprintf(text, NAME_SIZE, "%s%s%d.%s%s", w->prefix, w->family->hf_block, layer, name->hf,
                 ending);
    if (w->joined_delta_nets && starts(ours, "delta_net.")) {
        replace("attn_qkv.", "ssm_in.", text);
        replace("attn_gate.", "ssm_in.", text);
    }
    write_arrangement(w, ours, name, text);
}

static bool same_name(const tsr__weights *w, const tsr__weight_name *a, const tsr__weight_name *b)
{
    return a && strcmp(w->files->gguf ? a->gguf : a->hf, w->files->gguf ? b->gguf : b->hf) == 0;
}

/* Places ------------------------------------------------------------------------------------- */

static const parameter *parameter_of(int layer, const char *ours)
{
    const parameter *table = layer < 0 ? outside : inside;
    const size_t count = layer < 0 ? OUTSIDE : INSIDE;
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].ours, ours) == 0)
            return &table[i];
    return NULL;
}

static int ndim_of(int layer, const char *ours)
{
    return parameter_of(layer, ours)->columns == NO_SIZE ? 1 : 2;
}

bool tsr__weights_is_matrix(int layer, const char *ours)
{
    const parameter *p = parameter_of(layer, ours);
    return p && p->columns != NO_SIZE && !is_f32(p) && p->only_if != EACH_HEAD;
}

/* Returns whether a parameter is the weight of a norm of which some files have 1 less. */
static bool is_norm_weight(const char *ours)
{
    return strstr(ours, "norm") && strcmp(strrchr(ours, '.'), ".weight") == 0 &&
           !starts(ours, "delta_net.");
}

int64_t tsr__order_in_file(const tsr__order *o, int64_t i)
{
    if (o->run == 0)
        return i;
    const int64_t group = o->run * o->runs;
    return o->first + i / group * o->group_step + i % group / o->run * o->run_step + i % o->run;
}

bool tsr__weight_keeps_blocks(const tsr__weight *w, tsr_dtype dtype)
{
    const int64_t block = (int64_t)tsr__dtype_block(dtype);
    const tsr__order *order = &w->column_order;
    return tsr__elements_dtype(w->file) != dtype ||
           (order->run % block == 0 && order->first % block == 0 && order->group_step % block == 0);
}

/* If gate and up of experts have the same name, they are halves of the rows of one tensor, or
 * alternate rows. */
static void place_expert_rows(const tsr__weights *w, const char *ours, const tsr__weight_name *name,
                              tsr__weight *out)
{
    const bool is_gate = strncmp(ours, "mlp.experts.gate.", 17) == 0,
               is_up = strncmp(ours, "mlp.experts.up.", 15) == 0,
               is_bias = strcmp(strrchr(ours, '.'), ".bias") == 0;
    const char *const others[2][2] = {{"mlp.experts.gate.weight", "mlp.experts.up.weight"},
                                      {"mlp.experts.gate.bias", "mlp.experts.up.bias"}};
    const bool together =
        w->experts == TSR__EXPERTS_MERGED || (w->experts == TSR__EXPERTS_GATE_UP && !is_bias);
    if ((!is_gate && !is_up) ||
        !(together || same_name(w, name_of(w, 0, others[is_bias][is_gate]), name)))
        return;
    const bool alternates = w->family->hf_gate_up_alternates && !w->files->gguf;
    out->all_rows = 2 * out->rows;
    out->row_step = alternates ? 2 : 1;
    out->first_row = is_gate ? 0 : alternates ? 1 : out->rows;
}

/* Returns whether two weights of a layer are in one tensor. */
static bool together(const tsr__weights *w, const char *a, const char *b)
{
    return same_name(w, name_of(w, 0, a), name_of(w, 0, b));
}

/* Places rows of a tensor that has all rows of the first key head, then those of the second: of
 * `all` rows of a key head, `rows` from number `first` on. */
static void place_by_key_heads(const tsr_model_delta_net *net, int64_t first, int64_t rows,
                               int64_t all, tsr__weight *out)
{
    out->first_row = first;
    out->all_rows = all * net->key_heads;
    out->row_order = (tsr__order){.run = rows, .runs = 1, .group_step = all};
}

/* The order of files in which head h reads key head h % key_heads, of `unit` rows or columns for
 * each head. In ours, the heads that read the same key head follow each other. */
static tsr__order tiled_order(const tsr__weights *w, const tsr_model_delta_net *net, int64_t unit)
{
    const int64_t each = net->heads / net->key_heads;
    if (!w->files->gguf || !w->family->delta_keys->gguf_tiled || each == 1)
        return (tsr__order){0};
    return (tsr__order){
        .run = unit, .runs = each, .run_step = net->key_heads * unit, .group_step = unit};
}

/* Places a weight of a delta net. */
static void place_delta_net(const tsr__weights *w, const tsr_model_delta_net *net, const char *ours,
                            tsr__weight *out)
{
    const char *what = ours + strlen("delta_net.");
    const int64_t keys = net->key_heads * net->key_dim, values = net->heads * net->value_dim,
                  each = net->heads / net->key_heads, own = each * net->value_dim;
    const bool is_q = *what == 'q', is_k = *what == 'k', is_v = *what == 'v',
               is_z = starts(what, "z."), is_conv = strstr(what, "_conv.") != NULL,
               is_beta = starts(what, "beta."), is_alpha = starts(what, "alpha.");
    const bool joined = w->joined_delta_nets || together(w, "delta_net.q", "delta_net.z");
    if (starts(what, "o.")) {
        out->column_order = tiled_order(w, net, net->value_dim);
    } else if (joined && !is_conv && (is_q || is_k || is_v || is_z)) {
        const int64_t all = 2 * (net->key_dim + own);
        place_by_key_heads(net,
                           is_q   ? 0
                           : is_k ? net->key_dim
                           : is_v ? 2 * net->key_dim
                                  : 2 * net->key_dim + own,
                           is_q || is_k ? net->key_dim : own, all, out);
    } else if (is_q || is_k || is_v) {
        out->first_row = is_q ? 0 : is_k ? keys : 2 * keys;
        out->all_rows = 2 * keys + values;
        out->row_order = is_v ? tiled_order(w, net, net->value_dim) : (tsr__order){0};
        out->has_middle = is_conv && !w->files->gguf;
    } else if (is_z) {
        out->row_order = tiled_order(w, net, net->value_dim);
    } else if ((is_beta || is_alpha) && together(w, "delta_net.beta", "delta_net.alpha")) {
        place_by_key_heads(net, is_beta ? 0 : each, each, 2 * each, out);
    } else if (!starts(what, "norm.")) {
        out->row_order = tiled_order(w, net, 1);
        out->minus_exp = w->files->gguf && strcmp(what, "a_log") == 0;
    }
}

/* Changes the order of rows or columns *start … *start + count − 1, and *start. Of each of the
 * `runs` heads of a key head, the file has those of the rank's key heads one after another. */
static void keep_tiles(tsr__order *order, int64_t *start, int64_t count)
{
    const int64_t unit = order->run, group = unit * order->runs,
                  first = *start / (group > 0 ? group : 1) * unit;
    if (order->runs < 2 || count == 0 || *start % group != 0 || count % group != 0)
        return;
    const int64_t own = count / order->runs, all = order->run_step;
    *order = own == all ? (tsr__order){0}
                        : (tsr__order){.run = own, .runs = 1, .group_step = all, .first = first};
    *start = 0;
}

void tsr__weight_keep_tiles(tsr__weight *w, tsr__weight_part *part)
{
    keep_tiles(&w->row_order, &part->first_row, part->rows);
    keep_tiles(&w->column_order, &part->first_column, part->columns);
}

/* If q and the gate of attention's output have the same name, the rows of a head of q are followed
 * by those of its gate. */
static void place_gated(const tsr__weights *w, const tsr_model_layer *layer, const char *ours,
                        tsr__weight *out)
{
    if (!layer->output_gate || !together(w, "attention.q", "attention.gate"))
        return;
    out->first_row = starts(ours, "attention.q.") ? 0 : layer->head_dim;
    out->all_rows = 2 * out->rows;
    out->row_order =
        (tsr__order){.run = layer->head_dim, .runs = 1, .group_step = 2 * layer->head_dim};
}

/* If q, k and v have the same name, or gate and up, they are consecutive rows of one tensor. */
static void place_rows(const tsr__weights *w, const tsr_model_layer *layer, const char *ours,
                       const tsr__weight_name *name, tsr__weight *out)
{
    const bool is_q = strncmp(ours, "attention.q.", 12) == 0,
               is_k = strncmp(ours, "attention.k.", 12) == 0,
               is_v = strncmp(ours, "attention.v.", 12) == 0;
    out->all_rows = out->rows;
    out->row_step = 1;
    place_expert_rows(w, ours, name, out);
    if (strncmp(ours, "mlp.gate.", 9) == 0 && same_name(w, name_of(w, 0, "mlp.up"), name)) {
        out->all_rows = 2 * layer->hidden;
    } else if (strncmp(ours, "mlp.up.", 7) == 0 && layer->gated &&
               same_name(w, name_of(w, 0, "mlp.gate"), name)) {
        out->first_row = layer->hidden;
        out->all_rows = 2 * layer->hidden;
    }
    if (starts(ours, "delta_net."))
        place_delta_net(w, layer->delta_net, ours, out);
    if (is_q || starts(ours, "attention.gate."))
        place_gated(w, layer, ours, out);
    if (!is_q && !is_k && !is_v)
        return;
    const int64_t queries = layer->heads * layer->head_dim,
                  keys = layer->kv_heads * layer->head_dim;
    if (same_name(w, name_of(w, 0, is_q ? "attention.k" : "attention.q"), name)) {
        out->first_row = is_q ? 0 : is_k ? queries : queries + keys;
        out->all_rows = queries + 2 * keys;
    }
    if (!is_v && w->files->gguf && w->family->gguf_interleaved)
        out->interleaved_head = layer->head_dim;
}

/* Finds the matrix of a head of latent attention in a tensor that has those of keys, as columns,
 * and those of values. */
static void place_latent_rows(const tsr__weights *w, const tsr_model_latent *latent,
                              const char *ours, tsr__weight *out, char text[NAME_SIZE])
{
    const int64_t both = latent->nope_dim + latent->value_dim;
    if (w->files->gguf && !w->joint_latents)
        return;
    replace("attn_k_b", "attn_kv_b", text);
    replace("attn_v_b", "attn_kv_b", text);
    out->flat = true;
    if (strcmp(ours, "attention.k_b.weight") == 0) {
        out->transposed = true;
        out->all_columns = both;
    } else {
        out->first_row = latent->nope_dim;
        out->all_rows = both;
    }
}

/* Gives the shape of the tensor in the file that a place belongs to. `ndim` is that of our matrix.
 * Returns the number of dimensions of the tensor. */
static int shape_of(const tsr__weights *w, const tsr__weight *place, int ndim, int64_t shape[3])
{
    int count = 0;
    if (place->flat) {
        shape[0] = place->matrices * (place->transposed ? place->all_columns : place->all_rows);
        shape[1] = place->transposed ? place->all_rows : place->columns;
        return 2;
    }
    if (place->matrices > 0)
        shape[count++] = place->matrices;
    /* GGUF files have a matrix of one row as a row. */
    if (ndim == 1 || place->all_rows > 1 || !w->files->gguf)
        shape[count++] = place->transposed ? place->columns : place->all_rows;
    if (place->has_middle)
        shape[count++] = 1;
    if (ndim == 2)
        shape[count++] = place->transposed ? place->all_rows : place->columns;
    return count;
}

static bool has_shape(const tsr_shard_param *file, int ndim, const int64_t needed[3])
{
    bool same = file->ndim == ndim;
    for (int d = 0; same && d < ndim; d++)
        same = file->shape[d] == needed[d];
    return same;
}

static tsr_status check_shape(const tsr__weights *w, const tsr__weight *place, int own_ndim)
{
    const tsr_shard_param *file = place->file;
    int64_t needed[3];
    const int ndim = shape_of(w, place, own_ndim, needed);
    if (!has_shape(file, ndim, needed))
        return tsr__fail(TSR_ERR_INVALID, "model: tensor %s is %s; the sizes %s need %s",
                         file->name, TSR__SHAPE(file->ndim, file->shape),
                         !w->files->config_is_read ? "of the model"
                         : w->files->gguf          ? "in the metadata"
                                                   : "in config.json",
                         TSR__SHAPE(ndim, needed));
    TSR__TRY(tsr__elements_check(file));
    /* Everything that reads a vector sees it as rows of one element. */
    if (own_ndim == 1 && tsr__dtype_is_block(tsr__elements_dtype(file)))
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "model: tensor %s is %s, a block format; vectors must be floats",
                         file->name, file->dtype);
    return TSR_OK;
}

tsr_status tsr__weight_place(const tsr__weights *w, int layer, const char *ours, int64_t expert,
                             tsr__weight *out, char text[TSR__WEIGHT_NAME])
{
    const parameter *p = parameter_of(layer, ours);
    const tsr_model_layer *kind = tsr__config_layer(w->config, layer);
    const tsr__weight_name *name = p ? name_of(w, layer, ours) : NULL;
    TSR__REQUIRE(name, "model: architecture %s has no %s", w->family->name, ours);
    *out = (tsr__weight){.rows = size_of(w->config, kind, p->rows),
                         .columns = size_of(w->config, kind, p->columns),
                         .transposed = w->transposed && layer >= 0 && p->columns != NO_SIZE,
                         .less_one = w->family->hf_norms_less_one && !w->files->gguf &&
                                     is_norm_weight(ours)};
    write_name(w, layer, ours, name, text);
    place_rows(w, kind, ours, name, out);
    if (p->only_if == EACH_HEAD) {
        out->matrices = matrices_of(p, kind);
        out->matrix = expert;
        place_latent_rows(w, kind->latent, ours, out, text);
    } else if (is_of_experts(p) && !has_asterisk(w, name)) {
        out->matrices = matrices_of(p, kind);
        out->matrix = expert;
    }
    write_expert(expert, text);
    return TSR_OK;
}

tsr_status tsr__weight_find(const tsr__weights *w, int layer, const char *ours, tsr__weight *out)
{
    return tsr__weight_find_expert(w, layer, ours, 0, out);
}

tsr_status tsr__weight_find_expert(const tsr__weights *w, int layer, const char *ours,
                                   int64_t expert, tsr__weight *out)
{
    char text[NAME_SIZE];
    tsr__weight place;
    TSR__TRY(tsr__weight_place(w, layer, ours, expert, &place, text));
    place.file = tsr__model_files_find(w->files, text);
    if (!place.file && tsr__config_is_next(w->config, layer) && !w->files->gguf) {
        /* Experts of layers that predict further tokens may be arranged in the other way. */
        char other_text[NAME_SIZE];
        tsr__weights other = *w;
        tsr__weight found;
        other.experts =
            w->experts == TSR__EXPERTS_MERGED ? TSR__EXPERTS_USUAL : TSR__EXPERTS_MERGED;
        TSR__TRY(tsr__weight_place(&other, layer, ours, expert, &found, other_text));
        found.file = tsr__model_files_find(w->files, other_text);
        if (found.file)
            place = found;
    }
    if (!place.file && w->config->tied && strcmp(ours, "embedding.weight") == 0) {
        /* A file of a model with a tied head may have its only matrix under the head's name. */
        char head[NAME_SIZE];
        write_name(w, layer, "head.weight", name_of(w, layer, "head"), head);
        const tsr_shard_param *found = tsr__model_files_find(w->files, head);
        int64_t needed[3];
        const int ndim = shape_of(w, &place, 2, needed);
        if (found && has_shape(found, ndim, needed))
            place.file = found;
    }
    if (place.file && place.matrices > 0 && w->family->hf_mxfp4 && !w->files->gguf &&
        ndim_of(layer, ours) == 2 && !tsr__dtype_is_block(tsr__elements_dtype(place.file))) {
        tsr__weight other = place;
        int64_t needed[3];
        other.transposed = true;
        if (has_shape(place.file, shape_of(w, &other, 2, needed), needed))
            place = other;
    }
    if (!place.file)
        return tsr__fail(TSR_ERR_NOT_FOUND, "model: %s has no tensor %s", w->files->weights, text);
    TSR__TRY(check_shape(w, &place, ndim_of(layer, ours)));
    *out = place;
    return TSR_OK;
}

tsr_status tsr__weight_of(const tsr__weights *w, int layer, const char *ours,
                          const tsr_parameter *p, tsr__weight *out, tsr__weight_part *part)
{
    TSR__TRY(tsr__weight_find(w, layer, ours, out));
    *part = (tsr__weight_part){.rows = out->rows, .columns = out->columns};
    const parameter *own = parameter_of(layer, ours);
    /* the dimension of one expert's matrix; −1 with experts: the experts are divided */
    int dim = p->shard_dim;
    if (is_of_experts(own)) {
        part->of_experts = true;
        part->experts = p->global_shape[0];
        dim = p->shard_dim < 0 ? 2 : p->shard_dim - 1;
    }
    const bool in_team =
        part->of_experts && tsr__parameter_in_team(p, &part->first_expert, &part->experts);
    if (part->of_experts && dim < 0 && !in_team) {
        part->first_expert = p->offset;
        part->experts = p->length;
    } else if (dim == 0) {
        part->first_row = p->offset;
        part->rows = p->length;
    } else if (dim == 1) {
        part->first_column = p->offset;
        part->columns = p->length;
    }
    return TSR_OK;
}

int64_t tsr__weight_part_matrices(const tsr__weight_part *part)
{
    return part->of_experts ? part->experts : 1;
}

uint64_t tsr__weight_part_elements(const tsr__weight_part *part)
{
    return (uint64_t)tsr__weight_part_matrices(part) * (uint64_t)part->rows *
           (uint64_t)part->columns;
}

/* The arrangement of files ------------------------------------------------------------------- */

/* Chooses the prefix of Hugging Face's names: none, the family's, or one of a model for images and
 * text. The last norm shows it, because every file has one. */
static void find_prefix(tsr__weights *w)
{
    const char *const prefixes[] = {"", w->family->hf_prefix, "language_model.model.",
                                    "model.language_model."};
    char text[NAME_SIZE];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !w->files->gguf; i++) {
        w->prefix = prefixes[i];
        write_name(w, -1, "norm.weight", name_of(w, -1, "norm"), text);
        if (tsr__model_files_find(w->files, text))
            return;
    }
    w->prefix = w->family->hf_prefix; /* the prefix that error texts name */
}

/* Finds out whether matrices are [in, out]. Files that were not made by Transformers may have them
 * as [out, in]; a matrix that is not square shows which. */
static void find_arrangement(tsr__weights *w)
{
    char text[NAME_SIZE];
    w->transposed = w->family->hf_transposed && !w->files->gguf;
    if (!w->transposed)
        return;
    write_name(w, 0, "mlp.up.weight", name_of(w, 0, "mlp.up"), text);
    const tsr_shard_param *up = tsr__model_files_find(w->files, text);
    const int64_t hidden = tsr__config_layer(w->config, 0)->hidden, width = w->config->width;
    if (up && up->ndim == 2 && hidden != width && up->shape[0] == hidden && up->shape[1] == width)
        w->transposed = false;
}

/* Returns whether the files have a parameter of the first expert of a layer where an arrangement
 * has it. */
static bool has_arrangement(tsr__weights *w, tsr__expert_tensors experts, int layer,
                            const char *ours)
{
    char text[NAME_SIZE];
    const tsr__weight_name *name = name_of(w, layer, ours);
    if (!name)
        return false;
    w->experts = experts;
    write_name(w, layer, ours, name, text);
    write_expert(0, text);
    w->experts = TSR__EXPERTS_USUAL;
    return tsr__model_files_find(w->files, text) != NULL;
}

/* Finds out how the files arrange experts. What has neither arrangement lacks the tensors that the
 * family's names say. */
static void find_experts(tsr__weights *w)
{
    static const char down[] = "mlp.experts.down.weight", gate[] = "mlp.experts.gate.weight";
    const int layer = tsr__config_first_experts(w->config);
    const tsr__weight_name *name = name_of(w, layer, down);
    if (layer == w->config->layers || !name)
        return;
    if (!w->files->gguf) {
        if (strchr(name->hf, '*') && has_arrangement(w, TSR__EXPERTS_MERGED, layer, down))
            w->experts = TSR__EXPERTS_MERGED;
    } else if (has_arrangement(w, TSR__EXPERTS_APART, layer, down)) {
        w->experts = TSR__EXPERTS_APART;
    } else if (has_arrangement(w, TSR__EXPERTS_GATE_UP, layer, gate)) {
        w->experts = TSR__EXPERTS_GATE_UP;
    }
}

/* Finds out whether a GGUF file has q, k, v and z of delta nets in one tensor. */
static void find_delta_nets(tsr__weights *w)
{
    char text[NAME_SIZE];
    int layer;
    if (!w->files->gguf || !tsr__config_delta_net(w->config, &layer))
        return;
    w->joined_delta_nets = true;
    write_name(w, layer, "delta_net.q.weight", name_of(w, layer, "delta_net.q"), text);
    w->joined_delta_nets = tsr__model_files_find(w->files, text) != NULL;
}

/* Calls `visit` for each parameter of the model, of experts for that of each expert. */
static tsr_status each(const tsr__weights *w,
                       tsr_status (*visit)(void *user, const tsr__weights *w, int layer,
                                           const char *ours, int64_t expert),
                       void *user)
{
    tsr__parameter p;
    for (int layer = -1; layer < w->config->layers + w->config->next_token_layers; layer++)
        for (int i = 0; tsr__weights_parameter(w->config, layer, i, &p); i++)
            for (int64_t e = 0; e < (p.experts > 0 ? p.experts : 1); e++)
                TSR__TRY(visit(user, w, layer, p.ours, e));
    return TSR_OK;
}

static tsr_status check_one(void *user, const tsr__weights *w, int layer, const char *ours,
                            int64_t expert)
{
    tsr__weight place;
    (void)user;
    return tsr__weight_find_expert(w, layer, ours, expert, &place);
}

typedef struct expectation {
    tsr_status (*add)(void *user, const char *name, int ndim, const int64_t *shape);
    void *user;
} expectation;

static tsr_status expect_one(void *user, const tsr__weights *w, int layer, const char *ours,
                             int64_t expert)
{
    const expectation *to = user;
    char text[NAME_SIZE];
    tsr__weight place;
    int64_t shape[3];
    TSR__TRY(tsr__weight_place(w, layer, ours, expert, &place, text));
    /* Other parameters, such as k and v, are in a tensor that has been added. */
    if (place.first_row > 0 || place.matrix > 0)
        return TSR_OK;
    const int ndim = shape_of(w, &place, ndim_of(layer, ours), shape);
    return to->add(to->user, text, ndim, shape);
}

tsr_status tsr__weights_expected(const tsr__model_files *files, const tsr_model_config *config,
                                 tsr_status (*add)(void *user, const char *name, int ndim,
                                                   const int64_t *shape),
                                 void *user)
{
    const tsr__family *a = tsr__family_by_name(config->architecture);
    const tsr__weights w = {.files = files,
                            .config = config,
                            .family = a,
                            .prefix = a->hf_prefix,
                            .transposed = a->hf_transposed && !files->gguf,
                            .experts = tsr__experts_of_family(a, files->gguf)};
    return each(&w, expect_one, &(expectation){add, user});
}

tsr_status tsr__weights_init(const tsr__model_files *files, const tsr_model_config *config,
                             tsr__weights *out)
{
    *out = (tsr__weights){
        .files = files,
        .config = config,
        .family = tsr__family_by_name(config->architecture),
    };
    find_prefix(out);
    find_arrangement(out);
    out->joint_latents = files->gguf && tsr__model_files_find(files, "blk.0.attn_kv_b.weight");
    find_experts(out);
    find_delta_nets(out);
    return each(out, check_one, NULL);
}
