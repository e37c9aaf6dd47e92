/* The configuration of a model, from the values that its files have. */
#include "model/config/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"

void tsr__facts_init(tsr__facts *facts)
{
    *facts = (tsr__facts){
        .layers = TSR__UNSET,
        .width = TSR__UNSET,
        .heads = TSR__UNSET,
        .kv_heads = TSR__UNSET,
        .head_dim = TSR__UNSET,
        .value_dim = TSR__UNSET,
        .hidden = TSR__UNSET,
        .vocabulary = TSR__UNSET,
        .context = TSR__UNSET,
        .window = TSR__UNSET,
        .max_window_layers = TSR__UNSET,
        .rotary_dim = TSR__UNSET,
        .norm_epsilon = TSR__UNSET,
        .use_window = TSR__UNSET,
        .tied = TSR__UNSET,
        .norm_bias = TSR__UNSET,
        .qkv_bias = TSR__UNSET,
        .output_bias = TSR__UNSET,
        .mlp_bias = TSR__UNSET,
        .bos = TSR__UNSET,
        .rope = {.theta = TSR__UNSET,
                 .factor = TSR__UNSET,
                 .original_length = TSR__UNSET,
                 .low_frequency_factor = TSR__UNSET,
                 .high_frequency_factor = TSR__UNSET,
                 .beta_fast = TSR__UNSET,
                 .beta_slow = TSR__UNSET,
                 .attention_factor = TSR__UNSET,
                 .mscale = TSR__UNSET,
                 .mscale_all_dim = TSR__UNSET,
                 .partial = TSR__UNSET,
                 .truncate = TSR__UNSET},
    };
}

void tsr__facts_add_end(tsr__facts *facts, int64_t id)
{
    if (id < 0 || id > INT32_MAX || facts->end_count == TSR_MODEL_MAX_END_TOKENS)
        return;
    for (int i = 0; i < facts->end_count; i++)
        if (facts->end[i] == id)
            return;
    facts->end[facts->end_count++] = (int32_t)id;
}

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
    TSR__REQUIRE(facts->value_dim == TSR__UNSET || facts->value_dim == out->head_dim,
                 "%s: keys have %" PRId64 " features per head, but values %" PRId64, facts->file,
                 out->head_dim, facts->value_dim);
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

/* Layers ------------------------------------------------------------------------------------- */

/* Adds a kind of layer and returns it. It is a copy of kind 0, with rotary positions of its own. */
static tsr_model_layer *add_kind(tsr__config *config)
{
    const int kind = config->public.kind_count++;
    tsr_model_layer *added = &config->kinds[kind];
    *added = config->kinds[0];
    config->ropes[kind] = config->ropes[0];
    if (added->rope)
        added->rope = &config->ropes[kind];
    return added;
}

static tsr_status take_layer(const tsr__facts *facts, tsr__config *config)
{
    const tsr__family *family = facts->family;
    const tsr_model_config *model = &config->public;
    tsr_model_layer *layer = &config->kinds[0];
    *layer = family->layer;
    layer->struct_size = sizeof *layer;
    config->public.kind_count = 1;
    TSR__TRY(take_heads(facts, model->width, layer));
    layer->hidden = facts->hidden;
    if (layer->hidden == TSR__UNSET && family->hidden_per_width > 0)
        layer->hidden = family->hidden_per_width * model->width;
    TSR__TRY(size_within(facts, "number of hidden features", layer->hidden, TSR_MODEL_MAX_HIDDEN));
    layer->qkv_bias = chosen(facts->qkv_bias, family->layer.qkv_bias);
    layer->output_bias = chosen(facts->output_bias, family->layer.output_bias);
    layer->mlp_bias = chosen(facts->mlp_bias, family->layer.mlp_bias);
    if (facts->has_activation)
        layer->activation = facts->activation;
    if (family->learned_positions)
        return TSR_OK;
    layer->rope = &config->ropes[0];
    return tsr__rope_make(facts, layer->head_dim, model->context, &config->ropes[0]);
}

/* Gives layers from `first` on the window. */
static void window_from(tsr__config *config, int64_t first, int64_t window)
{
    if (first <= 0) {
        config->kinds[0].window = window;
        return;
    }
    if (first >= config->public.layers)
        return;
    add_kind(config)->window = window;
    for (int i = (int)first; i < config->public.layers; i++)
        config->layer_kinds[i] = 1;
}

static tsr_status take_window(const tsr__facts *facts, tsr__config *config)
{
    const tsr__windows rule = facts->family->windows;
    const bool switched = rule == TSR__WINDOWS_SWITCHED;
    int64_t first = 0;
    if (rule == TSR__WINDOWS_IGNORED || facts->window == TSR__UNSET || facts->window == 0 ||
        !chosen(facts->use_window, !switched))
        return TSR_OK;
    TSR__TRY(size_within(facts, "sliding window", facts->window, TSR_MODEL_MAX_CONTEXT));
    if (switched && facts->max_window_layers != TSR__UNSET) {
        first = facts->max_window_layers;
        TSR__REQUIRE(first >= 0 && first <= TSR_MODEL_MAX_LAYERS,
                     "%s: max_window_layers is %" PRId64 "; 0 to %d is possible", facts->file,
                     first, TSR_MODEL_MAX_LAYERS);
    }
    window_from(config, first, facts->window);
    return TSR_OK;
}

int tsr__config_window(const tsr_model_config *config, int64_t *window)
{
    for (int i = 0; i < config->layers; i++) {
        *window = tsr__config_layer(config, i)->window;
        if (*window > 0)
            return i;
    }
    *window = 0;
    return -1;
}

const tsr_model_layer *tsr__config_layer(const tsr_model_config *config, int layer)
{
    if (!config || layer < 0 || layer >= config->layers)
        return NULL;
    return config->kinds[config->layer_kinds ? config->layer_kinds[layer] : 0];
}

/* Making ------------------------------------------------------------------------------------- */

static tsr_status make(const tsr__facts *facts, tsr__config *config)
{
    tsr_model_config *out = &config->public;
    out->architecture = facts->family->name;
    out->learned_positions = facts->family->learned_positions;
    out->tied = chosen(facts->tied, facts->family->tied);
    TSR__TRY(take_sizes(facts, out));
    TSR__TRY(take_norms(facts, out));
    take_tokens(facts, out);
    TSR__TRY(take_layer(facts, config));
    return take_window(facts, config);
}

static tsr__config *create_config(void)
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
    tsr__config *config = create_config();
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

/* Copying ------------------------------------------------------------------------------------ */

/* Checks the sizes of one kind of layer in the way in which those of files are checked. */
static tsr_status check_kind(const tsr_model_config *c, const tsr_model_layer *layer)
{
    tsr__facts facts;
    tsr__config *checked = NULL;
    tsr__facts_init(&facts);
    facts.family = tsr__family_by_name(c->architecture);
    facts.file = "model: configuration";
    facts.layers = c->layers;
    facts.width = c->width;
    facts.heads = layer->heads;
    facts.kv_heads = layer->kv_heads;
    facts.head_dim = layer->head_dim;
    facts.hidden = layer->hidden;
    facts.vocabulary = c->vocabulary;
    facts.context = c->context;
    facts.norm_epsilon = c->norm_epsilon;
    TSR__TRY(tsr__config_make(&facts, &checked));
    tsr__free(checked);
    TSR__REQUIRE(layer->window >= 0 && layer->window <= TSR_MODEL_MAX_CONTEXT,
                 "model: configuration: a window is %" PRId64 "; 0 to %d is possible",
                 layer->window, TSR_MODEL_MAX_CONTEXT);
    return TSR_OK;
}

/* Copies the description of a kind of layer, with its rotary positions. */
static tsr_status copy_kind(const tsr_model_layer *given, int kind, tsr__config *copy)
{
    tsr_model_layer *layer = &copy->kinds[kind];
    TSR__REQUIRE(given, "model: configuration: kinds[%d] is NULL", kind);
    TSR__TRY(TSR__TAKE_PART(tsr_model_layer, given, layer));
    if (!layer->rope)
        return TSR_OK;
    TSR__TRY(TSR__TAKE_PART(tsr_rope_params, layer->rope, &copy->ropes[kind]));
    layer->rope = &copy->ropes[kind];
    return TSR_OK;
}

static tsr_status copy_config(const tsr_model_config *given, tsr__config *copy)
{
    char names[256];
    tsr_model_config *c = &copy->public;
    TSR__TRY(TSR__TAKE_PART(tsr_model_config, given, c));
    TSR__REQUIRE(c->architecture && tsr__family_by_name(c->architecture),
                 "model: architecture is %.40s; known are %s",
                 c->architecture ? c->architecture : "NULL",
                 tsr__family_names(sizeof names, names));
    c->architecture = tsr__family_by_name(c->architecture)->name;
    TSR__REQUIRE(c->end_count >= 0 && c->end_count <= TSR_MODEL_MAX_END_TOKENS,
                 "model: configuration: end_count is %d; 0 to %d is possible", c->end_count,
                 TSR_MODEL_MAX_END_TOKENS);
    TSR__REQUIRE(c->kinds && c->kind_count >= 1 && c->kind_count <= TSR_MODEL_MAX_LAYER_KINDS,
                 "model: configuration: kind_count is %d%s; 1 to %d is possible", c->kind_count,
                 c->kinds ? "" : ", and kinds is NULL", TSR_MODEL_MAX_LAYER_KINDS);
    for (int i = 0; i < c->kind_count; i++)
        TSR__TRY(copy_kind(c->kinds[i], i, copy));
    c->kinds = copy->kind_pointers;
    for (int i = 0; i < c->kind_count; i++)
        TSR__TRY(check_kind(c, c->kinds[i]));
    for (int i = 0; c->layer_kinds && i < c->layers; i++) {
        TSR__REQUIRE(c->layer_kinds[i] < c->kind_count,
                     "model: configuration: layer %d is of kind %d; there are %d kinds", i,
                     c->layer_kinds[i], c->kind_count);
        copy->layer_kinds[i] = c->layer_kinds[i];
    }
    c->layer_kinds = copy->layer_kinds;
    return TSR_OK;
}

tsr_status tsr__config_copy(const tsr_model_config *config, tsr__config **out)
{
    tsr__config *copy = create_config();
    if (!copy)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = copy_config(config, copy);
    if (status == TSR_OK)
        *out = copy;
    else
        tsr__free(copy);
    return status;
}
