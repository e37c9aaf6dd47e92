#include "config.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_SIZE (1 << 20) /* of any of a model's dimensions */

static const char *const activation_names[] = {[TSR_ACT_RELU] = "relu",
                                               [TSR_ACT_GELU_TANH] = "gelu_new",
                                               [TSR_ACT_GELU_ERF] = "gelu",
                                               [TSR_ACT_SILU] = "silu"};

const char *gpt_style_name(gpt_style style)
{
    return style == GPT_STYLE_LLAMA ? "llama" : "gpt2";
}

gpt_style gpt_config_style(const gpt_config *config)
{
    return config->model.learned_positions ? GPT_STYLE_GPT2 : GPT_STYLE_LLAMA;
}

void gpt_config_add_biases(gpt_config *config)
{
    config->model.norm_bias = true;
    config->layer.qkv_bias = config->layer.output_bias = config->layer.mlp_bias = true;
}

void gpt_config_add_experts(gpt_config *config, int count, int used, bool biased)
{
    config->experts = (tsr_model_experts){
        .struct_size = sizeof config->experts,
        .count = count,
        .used = used,
        .hidden = config->layer.hidden,
        .gating = biased ? TSR_GATING_SIGMOID : TSR_GATING_SOFTMAX,
        .normalise = true,
        .choice_bias = biased,
        .activation = TSR_EXPERT_SWIGLU,
    };
    config->layer.experts = &config->experts;
    config->layer.qk_norm = TSR_QK_NORM_HEADS;
    config->model.architecture = biased ? "glm4_moe" : "qwen3_moe";
}

/* Appends text to `text`, which has `size` bytes. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static void
append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    if (used < size)
        vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

const tsr_model_layer *gpt_config_layer(const gpt_config *c)
{
    for (int i = 0; i < c->model.kind_count; i++)
        if (c->model.kinds[i]->heads > 0)
            return c->model.kinds[i];
    return c->model.kinds[0];
}

/* Describes what models with rotary positions may have. */
static void describe_llama(const gpt_config *c, size_t size, char *text)
{
    for (int i = 0; i < c->model.kind_count; i++) {
        const tsr_model_layer *l = c->model.kinds[i];
        const tsr_model_delta_net *net = l->delta_net;
        if (net)
            append(text, size,
                   "; kind %d: delta net of %lld key heads, %lld heads, %lld by %lld, %d taps, "
                   "%lld inside",
                   i, (long long)net->key_heads, (long long)net->heads, (long long)net->key_dim,
                   (long long)net->value_dim, net->taps, (long long)l->hidden);
        else if (l->conv_taps > 0)
            append(text, size, "; kind %d: short convolution of %d taps, %lld inside", i,
                   l->conv_taps, (long long)l->hidden);
        else if (i > 0)
            append(text, size, "; kind %d: %lld heads, %lld key/value heads, %lld inside", i,
                   (long long)l->heads, (long long)l->kv_heads, (long long)l->hidden);
        if (l->rope)
            append(text, size, ", theta %g", l->rope->theta);
        if (l->rope && l->rope->scaling != TSR_ROPE_SCALING_NONE)
            append(text, size, ", scaling %d by %g", (int)l->rope->scaling, l->rope->factor);
        if (l->rope && l->rope->rotary_dim != l->head_dim)
            append(text, size, ", %lld rotated", (long long)l->rope->rotary_dim);
        if (l->heads > 0 && l->head_dim * l->heads != c->model.width)
            append(text, size, ", %lld per head", (long long)l->head_dim);
        if (l->window)
            append(text, size, ", a window of %lld", (long long)l->window);
        if (l->output_gate)
            append(text, size, ", gated");
        if (l->experts)
            append(text, size, ", %lld experts of %lld, %lld used%s", (long long)l->experts->count,
                   (long long)l->experts->hidden, (long long)l->experts->used,
                   l->experts->choice_bias ? ", chosen with biases" : "");
    }
    append(text, size, "%s", c->model.tied ? ", tied" : "");
}

static void describe_gpt2(const gpt_config *c, size_t size, char *text)
{
    if (c->model.context != c->block)
        append(text, size, ", %lld positions", (long long)c->model.context);
    append(text, size, "%s", c->model.tied ? "" : ", not tied");
}

void gpt_config_describe(const gpt_config *c, size_t size, char *text)
{
    const tsr_model_config *m = &c->model;
    const tsr_model_layer *l = gpt_config_layer(c);
    const gpt_style style = gpt_config_style(c);
    snprintf(text, size,
             "%s, %d blocks, %lld heads, %lld key/value heads, %lld wide, %lld inside, %d tokens, "
             "%lld characters, epsilon %g",
             gpt_style_name(style), m->layers, (long long)l->heads, (long long)l->kv_heads,
             (long long)m->width, (long long)l->hidden, c->block, (long long)m->vocabulary,
             m->norm_epsilon);
    if (style == GPT_STYLE_LLAMA)
        describe_llama(c, size, text);
    else
        describe_gpt2(c, size, text);
    append(text, size, "%s%s%s%s%s", l->qkv_bias ? ", biases" : "",
           l->output_bias ? ", output biases" : "", l->mlp_bias ? ", MLP biases" : "",
           m->norm_bias ? ", norm biases" : "", l->qk_norm ? ", q/k norms" : "");
    if (l->activation != (style == GPT_STYLE_LLAMA ? TSR_ACT_SILU : TSR_ACT_GELU_ERF))
        append(text, size, ", %s", activation_names[l->activation]);
}

void gpt_config_default(gpt_style style, gpt_config *out)
{
    const bool llama = style == GPT_STYLE_LLAMA;
    *out = (gpt_config){
        .model = {.struct_size = sizeof out->model,
                  .architecture = gpt_style_name(style),
                  .layers = 4,
                  .width = 128,
                  .norm_epsilon = 1e-5,
                  .norm = llama ? TSR_NORM_RMS : TSR_NORM_LAYER,
                  .learned_positions = !llama,
                  .tied = !llama,
                  .bos = -1,
                  .kind_count = 1,
                  .kinds = out->kinds},
        .layer = {.struct_size = sizeof out->layer,
                  .heads = 4,
                  .kv_heads = llama ? 2 : 4,
                  .hidden = llama ? 344 : 512,
                  .rope = llama ? &out->rope : NULL,
                  .gated = llama,
                  .activation = llama ? TSR_ACT_SILU : TSR_ACT_GELU_ERF},
        .kinds = {&out->layer},
        .rope = {.struct_size = sizeof out->rope, .theta = 10000},
        .block = 64,
    };
}

void gpt_config_finish(gpt_config *config)
{
    tsr_model_file_close(&config->file);
}

/* Returns the values with which nanoGPT trains a small model on a CPU. */
gpt_training gpt_training_default(void)
{
    return (gpt_training){.batch = 12,
                          .accumulate = 1,
                          .steps = 2000,
                          .seed = 1,
                          .learning_rate = 1e-3,
                          .min_learning_rate = 1e-4,
                          .warmup_steps = 100,
                          .decay_steps = 2000,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .clip = 1};
}

bool gpt_config_check(const gpt_config *config, char *error, size_t error_size)
{
    const tsr_model_config *m = &config->model;
    const tsr_model_layer *l = m->kinds[0];
    const bool llama = gpt_config_style(config) == GPT_STYLE_LLAMA;
    if (m->kinds != config->kinds) /* a given model has been checked */
        return true;
    if (l->head_dim == 0 && m->width % l->heads != 0)
        snprintf(error, error_size, "a width of %lld does not divide over %lld heads",
                 (long long)m->width, (long long)l->heads);
    else if (l->experts && (l->experts->used < 1 || l->experts->used > l->experts->count))
        snprintf(error, error_size, "a token cannot use %lld of %lld experts",
                 (long long)l->experts->used, (long long)l->experts->count);
    else if (l->experts && !llama)
        snprintf(error, error_size, "experts need the style llama");
    else if (l->heads % l->kv_heads != 0)
        snprintf(error, error_size, "%lld heads do not divide over %lld key/value heads",
                 (long long)l->heads, (long long)l->kv_heads);
    else if (!llama && l->kv_heads != l->heads)
        snprintf(error, error_size,
                 "the style gpt2 has as many key/value heads as heads, %lld, not %lld",
                 (long long)l->heads, (long long)l->kv_heads);
    else if (llama && (l->head_dim ? l->head_dim : m->width / l->heads) % 2 != 0)
        snprintf(error, error_size,
                 "rotary positions need an even number of features per head, not %lld",
                 (long long)(m->width / l->heads));
    else
        return true;
    return false;
}

void gpt_config_complete(gpt_config *config)
{
    tsr_model_layer *l = &config->layer;
    if (config->model.kinds != config->kinds) /* a given model is complete */
        return;
    config->experts.hidden = l->hidden;
    if (l->head_dim == 0)
        l->head_dim = config->model.width / l->heads;
    if (l->rope && config->rope.rotary_dim == 0)
        config->rope.rotary_dim = l->head_dim;
    config->model.context = config->block;
}

/* A JSON file that is being read. The first error stays in `error`. */
typedef struct reader {
    const char *path;
    char *error;
    size_t error_size;
    bool failed;
} reader;

static void fail_at(reader *r, const char *key, const char *what)
{
    if (!r->failed)
        snprintf(r->error, r->error_size, "%s: \"%s\" %s", r->path, key, what);
    r->failed = true;
}

static void read_int(reader *r, const json_t *object, const char *key, int least, int *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return;
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > MAX_SIZE)
        fail_at(r, key,
                least == 0 ? "is not a number from 0 to 1048576"
                           : "is not a number from 1 to 1048576");
    else
        *out = (int)json_integer_value(value);
}

static void read_number(reader *r, const json_t *object, const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return;
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0 && number <= 1e9))
        fail_at(r, key, "is not a number from 0 to 1e9");
    else
        *out = number;
}

static void read_size(reader *r, const json_t *object, const char *key, int64_t *out)
{
    int value = (int)*out;
    read_int(r, object, key, 1, &value);
    *out = value;
}

/* Reads the experts of a recorded run, and how their loads are balanced. */
static void read_experts(reader *r, const json_t *root, gpt_config *config, gpt_training *training)
{
    const json_t *model = json_object_get(root, "config"), *moe = json_object_get(root, "moe");
    const char *routing = json_string_value(json_object_get(moe, "routing"));
    int count = 0, used = 0;
    read_int(r, model, "n_expert", 1, &count);
    read_int(r, model, "n_expert_used", 1, &used);
    read_size(r, model, "expert_inter", &config->layer.hidden);
    read_size(r, model, "head_dim", &config->layer.head_dim);
    if (!routing || (strcmp(routing, "softmax") != 0 && strcmp(routing, "sigmoid") != 0))
        fail_at(r, "routing", "is neither softmax nor sigmoid");
    gpt_config_add_experts(config, count, used, routing && strcmp(routing, "sigmoid") == 0);
    read_number(r, moe, "route_scale", &config->experts.scale);
    read_number(r, moe, "aux_coef", &training->balance);
    read_number(r, moe, "gamma", &training->bias_rate);
}

/* Reads the members of a recorded run. */
static void read_run(reader *r, const json_t *root, gpt_config *config, gpt_training *training)
{
    const json_t *model = json_object_get(root, "config"),
                 *how = json_object_get(root, "optimizer");
    const bool has_experts = json_object_get(model, "n_expert") != NULL;
    gpt_style style =
        has_experts || json_object_get(model, "inter") ? GPT_STYLE_LLAMA : GPT_STYLE_GPT2;
    tsr_model_layer *layer = &config->layer;
    int seed = 0;
    gpt_config_default(style, config);
    read_int(r, model, "n_layer", 1, &config->model.layers);
    read_size(r, model, "n_head", &layer->heads);
    layer->kv_heads = layer->heads;
    read_size(r, model, "n_kv", &layer->kv_heads);
    read_size(r, model, "n_embd", &config->model.width);
    layer->hidden = 4 * config->model.width;
    read_size(r, model, "inter", &layer->hidden);
    if (has_experts)
        read_experts(r, root, config, training);
    read_int(r, model, "block", 1, &config->block);
    read_number(r, model, "eps", &config->model.norm_epsilon);
    read_number(r, model, "theta", &config->rope.theta);
    read_int(r, model, "batch", 1, &training->batch);
    read_int(r, model, "steps", 0, &training->steps);
    read_int(r, model, "seed", 0, &seed);
    training->seed = seed;
    read_number(r, how, "lr", &training->learning_rate);
    read_number(r, how, "min_lr", &training->min_learning_rate);
    read_int(r, how, "warmup", 0, &training->warmup_steps);
    read_int(r, how, "decay_iters", 0, &training->decay_steps);
    read_number(r, how, "beta1", &training->beta1);
    read_number(r, how, "beta2", &training->beta2);
    read_number(r, how, "eps", &training->eps);
    read_number(r, how, "wd", &training->weight_decay);
    read_number(r, how, "clip", &training->clip);
}

static json_t *load(const char *path, char *error, size_t error_size)
{
    json_error_t problem;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (root && !json_is_object(root)) {
        snprintf(error, error_size, "%s: this is no JSON object", path);
        json_decref(root);
        return NULL;
    }
    if (!root && problem.line < 0)
        snprintf(error, error_size, "%s: %s", path, problem.text);
    else if (!root)
        snprintf(error, error_size, "%s:%d: %s", path, problem.line, problem.text);
    return root;
}

/* Takes the sizes of a model's config.json for a new model. */
static bool read_model(const char *path, gpt_config *config, char *error, size_t error_size)
{
    tsr_model_file *file = NULL;
    if (tsr_model_file_open(path, &file) != TSR_OK) {
        snprintf(error, error_size, "%s: %s", path, tsr_last_error());
        return false;
    }
    const tsr_model_config *model = tsr_model_file_config(file);
    const bool good = model->context <= MAX_SIZE;
    if (good && (model->kind_count > 1 || model->kinds[0]->heads == 0)) {
        /* its layers are described in the file */
        *config = (gpt_config){.model = *model, .block = (int)model->context, .file = file};
        config->layer = *gpt_config_layer(config);
        return true;
    }
    if (good) {
        *config = (gpt_config){.model = *model,
                               .layer = *model->kinds[0],
                               .kinds = {&config->layer},
                               .block = (int)model->context};
        if (config->layer.experts) {
            config->experts = *config->layer.experts;
            config->layer.experts = &config->experts;
        }
        if (config->layer.rope) {
            config->rope = *config->layer.rope;
            config->layer.rope = &config->rope;
        }
        config->model.kinds = config->kinds;
        config->model.layer_kinds = NULL;
    } else {
        snprintf(error, error_size,
                 "%s: a model with such a long context needs --model instead of --config", path);
    }
    tsr_model_file_close(&file);
    return good;
}

bool gpt_config_read(const char *path, gpt_config *config, gpt_training *training, char *error,
                     size_t error_size)
{
    json_t *root = load(path, error, error_size);
    if (!root)
        return false;
    reader r = {path, error, error_size, false};
    gpt_training how = *training;
    const bool is_run = json_is_object(json_object_get(root, "config"));
    if (is_run)
        read_run(&r, root, config, &how);
    json_decref(root);
    if (!is_run)
        return read_model(path, config, error, error_size);
    if (!r.failed)
        *training = how;
    return !r.failed;
}

bool gpt_config_open(const char *folder, int most_block, gpt_config *config, char *error,
                     size_t error_size)
{
    if (tsr_model_file_open(folder, &config->file) != TSR_OK) {
        snprintf(error, error_size, "%s", tsr_last_error());
        return false;
    }
    config->model = *tsr_model_file_config(config->file);
    config->block = config->model.context < most_block ? (int)config->model.context : most_block;
    return true;
}

static bool read_offsets(reader *r, const json_t *rows, gpt_offsets *out)
{
    size_t steps = json_array_size(rows), batch = json_array_size(json_array_get(rows, 0));
    if (steps == 0 || steps > MAX_SIZE || batch == 0 || batch > MAX_SIZE) {
        fail_at(r, "offsets", "is no list of equally long lists of numbers");
        return false;
    }
    out->steps = (int64_t)steps;
    out->batch = (int)batch;
    out->values = json_is_array(rows) ? calloc(steps * batch, sizeof *out->values) : NULL;
    if (!out->values) {
        fail_at(r, "offsets", "needs more memory than there is");
        return false;
    }
    for (size_t i = 0; i < steps; i++) {
        const json_t *row = json_array_get(rows, i);
        if (json_array_size(row) != batch)
            fail_at(r, "offsets", "is no list of equally long lists of numbers");
        for (size_t j = 0; j < batch && !r->failed; j++) {
            const json_t *value = json_array_get(row, j);
            if (!json_is_integer(value) || json_integer_value(value) < 0)
                fail_at(r, "offsets", "has something that is no number from 0 on");
            out->values[i * batch + j] = json_integer_value(value);
        }
    }
    return !r->failed;
}

bool gpt_offsets_read(const char *path, gpt_offsets *out, char *error, size_t error_size)
{
    json_t *root = load(path, error, error_size);
    if (!root)
        return false;
    reader r = {path, error, error_size, false};
    gpt_offsets read = {0};
    bool good = read_offsets(&r, json_object_get(root, "offsets"), &read);
    json_decref(root);
    if (good)
        *out = read;
    else
        gpt_offsets_free(&read);
    return good;
}

void gpt_offsets_free(gpt_offsets *offsets)
{
    free(offsets->values);
    *offsets = (gpt_offsets){0};
}
