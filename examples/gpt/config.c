#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define MAX_SIZE (1 << 20) /* of any of a model's dimensions */

const char *gpt_style_name(gpt_style style)
{
    return style == GPT_STYLE_LLAMA ? "llama" : "gpt2";
}

void gpt_config_describe(const gpt_config *c, size_t size, char *text)
{
    int used = snprintf(text, size,
                        "%s, %d blocks, %d heads, %d key/value heads, %d wide, %d inside, %d "
                        "tokens, %d characters, epsilon %g",
                        gpt_style_name(c->style), c->layers, c->heads, c->kv_heads, c->width,
                        c->inner, c->block, c->vocabulary, c->norm_eps);
    if (c->style == GPT_STYLE_LLAMA && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ", theta %g", c->rope_theta);
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
                            .rope_theta = 10000};
    return (gpt_config){.style = style,
                        .layers = 4,
                        .heads = 4,
                        .kv_heads = 4,
                        .width = 128,
                        .inner = 512,
                        .block = 64,
                        .norm_eps = 1e-5};
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
    if (config->width % config->heads != 0)
        snprintf(error, error_size, "a width of %d does not divide over %d heads", config->width,
                 config->heads);
    else if (config->heads % config->kv_heads != 0)
        snprintf(error, error_size, "%d heads do not divide over %d key/value heads", config->heads,
                 config->kv_heads);
    else if (config->style == GPT_STYLE_GPT2 && config->kv_heads != config->heads)
        snprintf(error, error_size,
                 "the style gpt2 has as many key/value heads as heads, %d, not %d", config->heads,
                 config->kv_heads);
    else if (config->style == GPT_STYLE_LLAMA && config->width / config->heads % 2 != 0)
        snprintf(error, error_size,
                 "rotary positions need an even number of features per head, not %d",
                 config->width / config->heads);
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
    read_number(r, model, "theta", &config->rope_theta);
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
    read_number(r, root, "rope_theta", &config->rope_theta);
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
            c->rope_theta, "hidden_act", "silu", "tie_word_embeddings", 0, "attention_bias", 0,
            "mlp_bias", 0, "torch_dtype", torch_dtype(dtype));
    return json_pack("{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:b, s:s}",
                     "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "n_layer", c->layers,
                     "n_head", c->heads, "n_embd", c->width, "n_inner", c->inner, "n_positions",
                     c->block, "vocab_size", c->vocabulary, "layer_norm_epsilon", c->norm_eps,
                     "activation_function", "gelu", "tie_word_embeddings", 1, "torch_dtype",
                     torch_dtype(dtype));
}

bool gpt_config_write(const char *path, const gpt_config *config, tsr_dtype dtype, char *error,
                      size_t error_size)
{
    json_t *root = config_json(config, dtype);
    int status = root ? json_dump_file(root, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : -1;
    if (status != 0)
        snprintf(error, error_size, "%s: %s", path, root ? strerror(errno) : "out of memory");
    json_decref(root);
    return status == 0;
}
