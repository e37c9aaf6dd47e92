#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_SIZE (1 << 20) /* of any of a model's dimensions */

/* Hugging Face's names of activations. */
static const char *const activation_names[] = {[TSR_ACT_RELU] = "relu",
                                               [TSR_ACT_GELU_TANH] = "gelu_new",
                                               [TSR_ACT_GELU_ERF] = "gelu",
                                               [TSR_ACT_SILU] = "silu"};
#define ACTIVATIONS (sizeof activation_names / sizeof *activation_names)

/* A member of config.json that only gpt writes and reads, true for a GPT-2 with biases. Files of
 * one without biases have biases of 0, because other programs expect them. */
#define BIAS_KEY "bias"

const char *gpt_style_name(gpt_style style)
{
    return style == GPT_STYLE_LLAMA ? "llama" : "gpt2";
}

int gpt_config_head_dim(const gpt_config *config)
{
    return config->head_dim ? config->head_dim : config->width / config->heads;
}

int gpt_config_positions(const gpt_config *config)
{
    return config->context ? config->context : config->block;
}

void gpt_config_add_biases(gpt_config *config)
{
    config->norm_bias = config->qkv_bias = config->output_bias = config->mlp_bias = true;
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

static void describe_llama(const gpt_config *c, size_t size, char *text)
{
    append(text, size, ", theta %g", c->rope.theta);
    if (c->rope.scaling != TSR_ROPE_SCALING_NONE)
        append(text, size, ", scaling %d by %g", (int)c->rope.scaling, c->rope.factor);
    if (gpt_config_head_dim(c) * c->heads != c->width)
        append(text, size, ", %d per head", c->head_dim);
    if (c->window)
        append(text, size, ", a window of %lld", (long long)c->window);
    append(text, size, "%s", c->tied ? ", tied" : "");
}

static void describe_gpt2(const gpt_config *c, size_t size, char *text)
{
    if (gpt_config_positions(c) != c->block)
        append(text, size, ", %d positions", gpt_config_positions(c));
    append(text, size, "%s", c->tied ? "" : ", not tied");
}

void gpt_config_describe(const gpt_config *c, size_t size, char *text)
{
    const gpt_config usual = gpt_config_default(c->style);
    snprintf(text, size,
             "%s, %d blocks, %d heads, %d key/value heads, %d wide, %d inside, %d tokens, %d "
             "characters, epsilon %g",
             gpt_style_name(c->style), c->layers, c->heads, c->kv_heads, c->width, c->inner,
             c->block, c->vocabulary, c->norm_eps);
    if (c->style == GPT_STYLE_LLAMA)
        describe_llama(c, size, text);
    else
        describe_gpt2(c, size, text);
    append(text, size, "%s%s%s%s%s", c->qkv_bias ? ", biases" : "",
           c->output_bias ? ", output biases" : "", c->mlp_bias ? ", MLP biases" : "",
           c->norm_bias ? ", norm biases" : "", c->qk_norm ? ", q/k norms" : "");
    if (c->activation != usual.activation)
        append(text, size, ", %s", activation_names[c->activation]);
}

gpt_config gpt_config_default(gpt_style style)
{
    if (style == GPT_STYLE_LLAMA)
        return (gpt_config){.style = style,
                            .layers = 4,
                            .heads = 4,
                            .kv_heads = 2,
                            .width = 128,
                            .inner = 344,
                            .block = 64,
                            .norm_eps = 1e-5,
                            .activation = TSR_ACT_SILU,
                            .rope = {.theta = 10000}};
    return (gpt_config){.style = style,
                        .layers = 4,
                        .heads = 4,
                        .kv_heads = 4,
                        .width = 128,
                        .inner = 512,
                        .block = 64,
                        .norm_eps = 1e-5,
                        .activation = TSR_ACT_GELU_ERF,
                        .tied = true};
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
    if (config->head_dim == 0 && config->width % config->heads != 0)
        snprintf(error, error_size, "a width of %d does not divide over %d heads", config->width,
                 config->heads);
    else if (config->heads % config->kv_heads != 0)
        snprintf(error, error_size, "%d heads do not divide over %d key/value heads", config->heads,
                 config->kv_heads);
    else if (config->style == GPT_STYLE_GPT2 && config->kv_heads != config->heads)
        snprintf(error, error_size,
                 "the style gpt2 has as many key/value heads as heads, %d, not %d", config->heads,
                 config->kv_heads);
    else if (config->style == GPT_STYLE_LLAMA && gpt_config_head_dim(config) % 2 != 0)
        snprintf(error, error_size,
                 "rotary positions need an even number of features per head, not %d",
                 gpt_config_head_dim(config));
    else
        return true;
    return false;
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

static void read_activation(reader *r, const json_t *object, const char *key, tsr_activation *out)
{
    const json_t *value = json_object_get(object, key);
    const char *name = json_string_value(value);
    if (!value || json_is_null(value))
        return;
    for (size_t i = 0; name && i < ACTIVATIONS; i++) {
        if (activation_names[i] && strcmp(activation_names[i], name) == 0) {
            *out = (tsr_activation)i;
            return;
        }
    }
    fail_at(r, key, "is none of relu, gelu, gelu_new and silu");
}

/* Reads the members of a recorded run. */
static void read_run(reader *r, const json_t *root, gpt_config *config, gpt_training *training)
{
    const json_t *model = json_object_get(root, "config"),
                 *how = json_object_get(root, "optimizer");
    gpt_style style = json_object_get(model, "inter") ? GPT_STYLE_LLAMA : GPT_STYLE_GPT2;
    int seed = 0;
    *config = gpt_config_default(style);
    read_int(r, model, "n_layer", 1, &config->layers);
    read_int(r, model, "n_head", 1, &config->heads);
    config->kv_heads = config->heads;
    read_int(r, model, "n_kv", 1, &config->kv_heads);
    read_int(r, model, "n_embd", 1, &config->width);
    config->inner = 4 * config->width;
    read_int(r, model, "inter", 1, &config->inner);
    read_int(r, model, "block", 1, &config->block);
    read_number(r, model, "eps", &config->norm_eps);
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

/* Refuses what only gpt_config_read_model() reads. */
static void refuse_unread(reader *r, const json_t *root, bool llama)
{
    static const char *const switches[] = {"tie_word_embeddings", "attention_bias", "mlp_bias"};
    const json_t *scaling = json_object_get(root, "rope_scaling");
    if (!llama) {
        if (json_is_false(json_object_get(root, switches[0])))
            fail_at(r, switches[0], "is false, which needs --model instead of --config");
        return;
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (json_is_true(json_object_get(root, switches[i])))
            fail_at(r, switches[i], "is true, which needs --model instead of --config");
    if (scaling && !json_is_null(scaling))
        fail_at(r, "rope_scaling", "is given, which needs --model instead of --config");
}

/* Reads the members of Hugging Face's config.json. */
static void read_model(reader *r, const json_t *root, gpt_config *config)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (!type || (strcmp(type, "gpt2") != 0 && strcmp(type, "llama") != 0)) {
        fail_at(r, "model_type", "is neither gpt2 nor llama");
        return;
    }
    bool llama = strcmp(type, "llama") == 0;
    *config = gpt_config_default(llama ? GPT_STYLE_LLAMA : GPT_STYLE_GPT2);
    read_int(r, root, llama ? "num_hidden_layers" : "n_layer", 1, &config->layers);
    read_int(r, root, llama ? "num_attention_heads" : "n_head", 1, &config->heads);
    config->kv_heads = config->heads;
    read_int(r, root, llama ? "num_key_value_heads" : "n_head", 1, &config->kv_heads);
    read_int(r, root, llama ? "hidden_size" : "n_embd", 1, &config->width);
    config->inner = 4 * config->width;
    read_int(r, root, llama ? "intermediate_size" : "n_inner", 1, &config->inner);
    read_int(r, root, llama ? "max_position_embeddings" : "n_positions", 1, &config->block);
    read_int(r, root, "vocab_size", 1, &config->vocabulary);
    read_number(r, root, llama ? "rms_norm_eps" : "layer_norm_epsilon", &config->norm_eps);
    read_number(r, root, "rope_theta", &config->rope.theta);
    read_activation(r, root, llama ? "hidden_act" : "activation_function", &config->activation);
    if (!llama && json_is_true(json_object_get(root, BIAS_KEY)))
        gpt_config_add_biases(config);
    refuse_unread(r, root, llama);
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

bool gpt_config_read(const char *path, gpt_config *config, gpt_training *training, char *error,
                     size_t error_size)
{
    json_t *root = load(path, error, error_size);
    if (!root)
        return false;
    reader r = {path, error, error_size, false};
    gpt_config read = *config;
    gpt_training how = *training;
    if (json_is_object(json_object_get(root, "config")))
        read_run(&r, root, &read, &how);
    else
        read_model(&r, root, &read);
    json_decref(root);
    if (r.failed)
        return false;
    *config = read;
    *training = how;
    return true;
}

/* Returns what of a model gpt cannot train, or NULL. */
static const char *unsupported(const tsr_model_config *m)
{
    const tsr_model_layer *l = &m->kinds[0];
    const bool llama =
                   m->norm == TSR_NORM_RMS && !m->norm_bias && !m->learned_positions && l->gated,
               gpt2 = m->norm == TSR_NORM_LAYER && m->learned_positions && !l->gated;
    if (!llama && !gpt2)
        return "another kind of block than Llama's and GPT-2's";
    if (m->kind_count > 1)
        return "layers with and without a window";
    if (llama && l->rope->rotary_dim != 0 && l->rope->rotary_dim != l->head_dim)
        return "heads of which only a part is rotated";
    return NULL;
}

static bool take_model(const tsr_model_config *m, const char *folder, int most_block,
                       gpt_config *config, char *error, size_t error_size)
{
    const tsr_model_layer *l = &m->kinds[0];
    const char *what = unsupported(m);
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"width", m->width},           {"hidden features", l->hidden},
                 {"heads", l->heads},           {"head size", l->head_dim},
                 {"vocabulary", m->vocabulary}, {"context", m->context}};
    if (what)
        snprintf(error, error_size, "%s: a model of %s has %s, which gpt cannot train", folder,
                 m->architecture, what);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !what; i++) {
        if (sizes[i].value > MAX_SIZE) {
            what = sizes[i].name;
            snprintf(error, error_size, "%s: the model's %s, %lld, is above %d", folder, what,
                     (long long)sizes[i].value, MAX_SIZE);
        }
    }
    if (what)
        return false;
    *config = (gpt_config){.style = m->learned_positions ? GPT_STYLE_GPT2 : GPT_STYLE_LLAMA,
                           .layers = m->layers,
                           .heads = (int)l->heads,
                           .kv_heads = (int)l->kv_heads,
                           .width = (int)m->width,
                           .inner = (int)l->hidden,
                           .block = m->context < most_block ? (int)m->context : most_block,
                           .context = (int)m->context,
                           .vocabulary = (int)m->vocabulary,
                           .norm_eps = m->norm_epsilon,
                           .activation = l->activation,
                           .tied = m->tied,
                           .qkv_bias = l->qkv_bias,
                           .output_bias = l->output_bias,
                           .mlp_bias = l->mlp_bias,
                           .norm_bias = m->norm_bias,
                           .head_dim = (int)l->head_dim,
                           .qk_norm = l->qk_norm,
                           .window = l->window,
                           .rope = l->rope ? *l->rope : (tsr_rope_params){0}};
    return true;
}

bool gpt_config_read_model(const char *folder, int most_block, gpt_config *config, char *error,
                           size_t error_size)
{
    tsr_model_file *file = NULL;
    if (tsr_model_file_open(folder, &file) != TSR_OK) {
        snprintf(error, error_size, "%s", tsr_last_error());
        return false;
    }
    const bool good =
        take_model(tsr_model_file_config(file), folder, most_block, config, error, error_size);
    tsr_model_file_close(&file);
    return good;
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

static const char *torch_dtype(tsr_dtype dtype)
{
    return dtype == TSR_F16 ? "float16" : dtype == TSR_BF16 ? "bfloat16" : "float32";
}

static json_t *config_json(const gpt_config *c, tsr_dtype dtype)
{
    if (c->style == GPT_STYLE_LLAMA)
        return json_pack(
            "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:s, s:b, s:b, s:b, s:s}",
            "architectures", "LlamaForCausalLM", "model_type", "llama", "num_hidden_layers",
            c->layers, "num_attention_heads", c->heads, "num_key_value_heads", c->kv_heads,
            "hidden_size", c->width, "intermediate_size", c->inner, "max_position_embeddings",
            c->block, "vocab_size", c->vocabulary, "rms_norm_eps", c->norm_eps, "rope_theta",
            c->rope.theta, "hidden_act", activation_names[c->activation], "tie_word_embeddings", 0,
            "attention_bias", 0, "mlp_bias", 0, "torch_dtype", torch_dtype(dtype));
    json_t *root = json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:b, s:s}", "architectures",
        "GPT2LMHeadModel", "model_type", "gpt2", "n_layer", c->layers, "n_head", c->heads, "n_embd",
        c->width, "n_inner", c->inner, "n_positions", c->block, "vocab_size", c->vocabulary,
        "layer_norm_epsilon", c->norm_eps, "activation_function", activation_names[c->activation],
        "tie_word_embeddings", 1, "torch_dtype", torch_dtype(dtype));
    if (c->norm_bias)
        json_object_set_new(root, BIAS_KEY, json_true());
    return root;
}

static bool dump(json_t *root, const char *path, char *error, size_t error_size)
{
    int status = root ? json_dump_file(root, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : -1;
    if (status != 0)
        snprintf(error, error_size, "%s: %s", path, root ? strerror(errno) : "out of memory");
    json_decref(root);
    return status == 0;
}

bool gpt_config_write(const char *path, const gpt_config *config, tsr_dtype dtype, char *error,
                      size_t error_size)
{
    return dump(config_json(config, dtype), path, error, error_size);
}

bool gpt_config_copy(const char *from, const char *to, tsr_dtype dtype, char *error,
                     size_t error_size)
{
    /* Hugging Face's name of the member was torch_dtype until 2025. */
    static const char *const names[] = {"dtype", "torch_dtype"};
    json_t *root = load(from, error, error_size);
    if (!root)
        return false;
    const bool is_new = json_object_get(root, names[0]) != NULL;
    for (int i = 0; i < 2; i++)
        if (json_object_get(root, names[i]) || (i == 1 && !is_new))
            json_object_set_new(root, names[i], json_string(torch_dtype(dtype)));
    return dump(root, to, error, error_size);
}
