#define _XOPEN_SOURCE 700 /* for realpath */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRAM "gpt"
#define MODEL_BLOCK 256 /* the block of a given model, if its context is larger */

enum {
    OPT_GIVEN = 256, /* an option of gpt_given */
    OPT_BLOCKS,
    OPT_CHARACTERS,
    OPT_CHECKPOINT,
    OPT_CHECKPOINT_EVERY,
    OPT_CURVE,
    OPT_DEVICE,
    OPT_ELASTIC,
    OPT_EVAL_BATCHES,
    OPT_EVAL_EVERY,
    OPT_EXPERTS_OVER,
    OPT_GRID,
    OPT_INIT,
    OPT_LOAD,
    OPT_LOG,
    OPT_PARTS,
    OPT_PIPELINE,
    OPT_PROMPT,
    OPT_RANKS,
    OPT_RECOMPUTE,
    OPT_SAVE,
    OPT_STRATEGY,
    OPT_TEMPERATURE,
    OPT_TENSOR_RATES,
    OPT_TIMEOUT,
    OPT_TOP_K,
    OPT_WIRE,
    OPT_WORKERS
};

static const struct option known[] = {
    {"accumulate", required_argument, NULL, OPT_GIVEN},
    {"balance", required_argument, NULL, OPT_GIVEN},
    {"batch", required_argument, NULL, OPT_GIVEN},
    {"bias", no_argument, NULL, OPT_GIVEN},
    {"bias-rate", required_argument, NULL, OPT_GIVEN},
    {"block", required_argument, NULL, OPT_GIVEN},
    {"blocks", required_argument, NULL, OPT_BLOCKS},
    {"characters", required_argument, NULL, OPT_CHARACTERS},
    {"checkpoint", required_argument, NULL, OPT_CHECKPOINT},
    {"checkpoint-every", required_argument, NULL, OPT_CHECKPOINT_EVERY},
    {"clip", required_argument, NULL, OPT_GIVEN},
    {"config", required_argument, NULL, OPT_GIVEN},
    {"curve", required_argument, NULL, OPT_CURVE},
    {"decay", required_argument, NULL, OPT_GIVEN},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"dropout", required_argument, NULL, OPT_GIVEN},
    {"dtype", required_argument, NULL, OPT_GIVEN},
    {"elastic", no_argument, NULL, OPT_ELASTIC},
    {"eval-batches", required_argument, NULL, OPT_EVAL_BATCHES},
    {"eval-every", required_argument, NULL, OPT_EVAL_EVERY},
    {"experts", required_argument, NULL, OPT_GIVEN},
    {"experts-over", required_argument, NULL, OPT_EXPERTS_OVER},
    {"experts-used", required_argument, NULL, OPT_GIVEN},
    {"grid", required_argument, NULL, OPT_GRID},
    {"heads", required_argument, NULL, OPT_GIVEN},
    {"help", no_argument, NULL, 'h'},
    {"init", required_argument, NULL, OPT_INIT},
    {"inner", required_argument, NULL, OPT_GIVEN},
    {"kv-heads", required_argument, NULL, OPT_GIVEN},
    {"layers", required_argument, NULL, OPT_GIVEN},
    {"learning-rate", required_argument, NULL, OPT_GIVEN},
    {"load", required_argument, NULL, OPT_LOAD},
    {"log", required_argument, NULL, OPT_LOG},
    {"min-learning-rate", required_argument, NULL, OPT_GIVEN},
    {"model", required_argument, NULL, OPT_GIVEN},
    {"offsets", required_argument, NULL, OPT_GIVEN},
    {"parts", no_argument, NULL, OPT_PARTS},
    {"pipeline", required_argument, NULL, OPT_PIPELINE},
    {"prompt", required_argument, NULL, OPT_PROMPT},
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"recompute", no_argument, NULL, OPT_RECOMPUTE},
    {"save", required_argument, NULL, OPT_SAVE},
    {"seed", required_argument, NULL, OPT_GIVEN},
    {"separator", required_argument, NULL, OPT_GIVEN},
    {"steps", required_argument, NULL, OPT_GIVEN},
    {"strategy", required_argument, NULL, OPT_STRATEGY},
    {"style", required_argument, NULL, OPT_GIVEN},
    {"temperature", required_argument, NULL, OPT_TEMPERATURE},
    {"tensor-rates", required_argument, NULL, OPT_TENSOR_RATES},
    {"text", required_argument, NULL, OPT_GIVEN},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"tokenizer", required_argument, NULL, OPT_GIVEN},
    {"top-k", required_argument, NULL, OPT_TOP_K},
    {"warmup", required_argument, NULL, OPT_GIVEN},
    {"weight-decay", required_argument, NULL, OPT_GIVEN},
    {"width", required_argument, NULL, OPT_GIVEN},
    {"wire", required_argument, NULL, OPT_WIRE},
    {"workers", required_argument, NULL, OPT_WORKERS},
    {0}};

static bool take_wire(const char *text, tsr_dtype *out)
{
    tsr_dtype dtype;
    if (tsr_dtype_parse(text, &dtype) != TSR_OK ||
        (dtype != TSR_F32 && dtype != TSR_F16 && dtype != TSR_BF16 && dtype != TSR_Q8_0))
        return wrong_option(PROGRAM, "--wire takes f32, f16, bf16 or q8_0, not ", text);
    *out = dtype;
    return true;
}

/* Parses "even", "rates", or the numbers of blocks of all stages, such as "3,1". */
static bool take_blocks(const char *text, gpt_stages *out)
{
    int count = 0;
    char *end;
    out->kind = strcmp(text, "rates") == 0  ? GPT_STAGES_RATES
                : strcmp(text, "even") == 0 ? GPT_STAGES_EVEN
                                            : GPT_STAGES_GIVEN;
    for (const char *at = text; out->kind == GPT_STAGES_GIVEN; at = end + 1) {
        const long blocks = strtol(at, &end, 10);
        if (end == at || blocks < 1 || blocks > 1000 || count == GPT_MAX_STAGES ||
            (*end != '\0' && *end != ','))
            return wrong_option(PROGRAM, "--blocks takes even, rates or numbers, as 3,1, not ",
                                text);
        out->blocks[count++] = (int)blocks;
        if (*end == '\0')
            break;
    }
    out->given = count;
    return true;
}

/* Parses the rates of tensor-parallel ranks, such as "3,1". */
static bool take_tensor_rates(const char *text, gpt_tensor_rates *out)
{
    char *end;
    out->count = 0;
    for (const char *at = text;; at = end + 1) {
        const double rate = strtod(at, &end);
        if (end == at || !(rate > 0 && rate <= 1e9) || out->count == GPT_MAX_TENSOR ||
            (*end != '\0' && *end != ','))
            return wrong_option(PROGRAM,
                                "--tensor-rates takes up to 64 numbers above 0 and up to 1e9, as "
                                "3,1, not ",
                                text);
        out->values[out->count++] = rate;
        if (*end == '\0')
            return true;
    }
}

/* Checks that the model can be divided into these stages. */
static bool check_stages(const gpt_stages *stages, int layers)
{
    int count = stages->count ? stages->count : 1, sum = 0;
    for (int s = 0; s < stages->given; s++)
        sum += stages->blocks[s];
    if (count > layers)
        fprintf(stderr, PROGRAM ": --pipeline %d has more stages than the model has blocks, %d\n",
                count, layers);
    else if (stages->kind == GPT_STAGES_GIVEN && stages->given != count)
        fprintf(stderr, PROGRAM ": --blocks has %d numbers; there are %d stages\n", stages->given,
                count);
    else if (stages->kind == GPT_STAGES_GIVEN && sum != layers)
        fprintf(stderr, PROGRAM ": --blocks has %d blocks together; the model has %d\n", sum,
                layers);
    else
        return true;
    return false;
}

static bool take(int option, const char *name, const char *value, gpt_options *out)
{
    const struct {
        int option;
        const char **out;
    } texts[] = {
        {OPT_CHECKPOINT, &out->checkpoint},
        {OPT_CURVE, &out->curve},
        {OPT_DEVICE, &out->device},
        {OPT_INIT, &out->init},
        {OPT_LOAD, &out->load},
        {OPT_LOG, &out->log},
        {OPT_PROMPT, &out->prompt},
        {OPT_SAVE, &out->save},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].option == option) {
            *texts[i].out = value;
            return true;
        }
    }
    switch (option) {
    case OPT_GIVEN:
        return gpt_given_parse(gpt_given_find(name), value, &out->given);
    case OPT_CHARACTERS:
        return parse_int(PROGRAM, "characters", value, 0, 1 << 30, &out->characters);
    case OPT_CHECKPOINT_EVERY:
        return parse_int(PROGRAM, "checkpoint-every", value, 0, 1 << 30, &out->checkpoint_every);
    case OPT_ELASTIC:
        out->elastic = true;
        return true;
    case OPT_EVAL_BATCHES:
        return parse_int(PROGRAM, "eval-batches", value, 1, 1 << 20, &out->eval_batches);
    case OPT_EVAL_EVERY:
        return parse_int(PROGRAM, "eval-every", value, 0, 1 << 30, &out->eval_every);
    case OPT_GRID:
        return parse_grid(PROGRAM, value, &out->data, &out->tensor);
    case OPT_BLOCKS:
        return take_blocks(value, &out->stages);
    case OPT_PIPELINE:
        return parse_int(PROGRAM, "pipeline", value, 1, GPT_MAX_STAGES, &out->stages.count);
    case OPT_RANKS:
        return parse_int(PROGRAM, "ranks", value, 1, TSR_MAX_COMM_SIZE, &out->ranks);
    case OPT_PARTS:
        out->parts = true;
        return true;
    case OPT_RECOMPUTE:
        out->recompute = true;
        return true;
    case OPT_EXPERTS_OVER:
        out->experts_over_data = strcmp(value, "data") == 0;
        return out->experts_over_data || strcmp(value, "tensor") == 0 ||
               wrong_option(PROGRAM, "--experts-over takes data or tensor, not ", value);
    case OPT_STRATEGY:
        return parse_strategy(PROGRAM, value, &out->strategy);
    case OPT_TEMPERATURE:
        return parse_number(PROGRAM, "temperature", value, 0, &out->temperature);
    case OPT_TENSOR_RATES:
        return take_tensor_rates(value, &out->tensor_rates);
    case OPT_TIMEOUT:
        /* 0 would select the library's default. */
        return parse_number(PROGRAM, "timeout", value, 0.001, &out->timeout_seconds);
    case OPT_TOP_K:
        return parse_int(PROGRAM, "top-k", value, 0, 1 << 20, &out->top_k);
    case OPT_WIRE:
        return take_wire(value, &out->wire);
    case OPT_WORKERS:
        return parse_int(PROGRAM, "workers", value, 0, 64, &out->workers);
    case 'h':
        out->help = true;
        return true;
    case '?':
    case ':':
        return wrong_option(PROGRAM, "invalid command line", "");
    }
    return false;
}

static void replace_int(int given, int none, int *out)
{
    if (given != none)
        *out = given;
}

static void replace_number(double given, double *out)
{
    if (given >= 0)
        *out = given;
}

static void replace_size(int given, int64_t *out)
{
    if (given != 0)
        *out = given;
}

/* Replaces the sizes of a model by those that are given. */
static void replace_sizes(const gpt_given *given, gpt_config *c)
{
    const bool as_many = c->layer.kv_heads == c->layer.heads;
    const bool is_resized = (given->width && given->width != c->model.width) ||
                            (given->heads && given->heads != c->layer.heads);
    replace_int(given->layers, 0, &c->model.layers);
    replace_size(given->heads, &c->layer.heads);
    replace_size(as_many ? given->heads : 0, &c->layer.kv_heads);
    replace_size(given->kv_heads, &c->layer.kv_heads);
    if (given->width && !given->inner)
        c->layer.hidden = gpt_config_style(c) == GPT_STYLE_GPT2 ? 4 * (int64_t)given->width
                                                                : (int64_t)given->width * 8 / 3;
    replace_size(given->width, &c->model.width);
    replace_size(given->inner, &c->layer.hidden);
    replace_int(given->block, 0, &c->block);
    if (given->experts && !c->layer.experts)
        gpt_config_add_experts(c, given->experts, 2, given->bias_rate > 0);
    replace_size(given->experts, &c->experts.count);
    replace_size(given->experts_used, &c->experts.used);
    if (is_resized) /* those of --config follow from the new sizes */
        c->layer.head_dim = c->rope.rotary_dim = 0;
}

/* Returns whether a model whose layers are described in its file has the sizes that are given. Such
 * a model has no others. */
static bool has_sizes(const gpt_given *given, const gpt_config *c)
{
    gpt_config wanted = *c;
    gpt_given sizes = *given;
    if (sizes.width == c->model.width)
        sizes.width = 0;
    replace_sizes(&sizes, &wanted);
    const tsr_model_layer *is = gpt_config_layer(c), *l = &wanted.layer;
    return wanted.model.layers == c->model.layers && wanted.model.width == c->model.width &&
           l->heads == is->heads && l->kv_heads == is->kv_heads && l->hidden == is->hidden;
}

/* Returns whether a file is one of GGUF, which --model cannot read. */
static bool is_gguf(const char *path)
{
    char magic[4] = {0};
    FILE *file = fopen(path, "rb");
    const bool is = file && fread(magic, 1, sizeof magic, file) == sizeof magic &&
                    memcmp(magic, "GGUF", sizeof magic) == 0;
    if (file)
        fclose(file);
    return is;
}

/* Returns the file that --save writes: a name without a suffix, or of a folder, is that of a
 * folder. */
static const char *saved_file(const char *path, size_t size, char *out)
{
    const char *slash = strrchr(path, '/');
    struct stat info;
    const bool is_folder =
        !strchr(slash ? slash : path, '.') || (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    if (!is_folder)
        return path;
    snprintf(out, size, "%s%smodel.safetensors", path, slash && slash[1] == '\0' ? "" : "/");
    return out;
}

/* Reports an error that gpt_options_complete() has found. Always returns false. */
static bool refuse(const char *error)
{
    fprintf(stderr, PROGRAM ": %s\n", error);
    return false;
}

/* The same for an error of a file. */
static bool refuse_file(gpt_options *out, const char *error)
{
    out->has_bad_file = true;
    return refuse(error);
}

/* Takes a model's sizes, weights and tokenizer from the folder of --model. */
static bool take_model(gpt_options *out)
{
    char error[512];
    const char *folder = out->given_model;
    const gpt_given *given = &out->given;
    if (given->model && (given->config || out->init || given->style >= 0 || given->layers ||
                         given->heads || given->kv_heads || given->width || given->inner ||
                         given->bias || given->experts || given->experts_used))
        return wrong_option(PROGRAM,
                            "--model excludes --config, --init, --style, --layers, --heads, "
                            "--kv-heads, --width, --inner, --bias, --experts and --experts-used",
                            "");
    if (is_gguf(folder)) {
        out->has_bad_file = true;
        fprintf(stderr,
                PROGRAM ": %s is a GGUF file, but --model takes a Hugging Face folder: convert it "
                        "first, with 'tessera convert %s FOLDER'\n",
                folder, folder);
        return false;
    }
    if (!gpt_config_open(folder, MODEL_BLOCK, &out->model, error, sizeof error))
        return refuse_file(out, error);
    if (given->block > out->model.model.context) {
        fprintf(stderr, PROGRAM ": --block %d is above the context of %s, %lld\n", given->block,
                folder, (long long)out->model.model.context);
        return false;
    }
    if (!out->load)
        out->init = folder;
    if (!out->tokenizer)
        out->tokenizer = folder;
    out->training.learning_rate = 5e-5;
    out->training.min_learning_rate = 5e-6;
    return true;
}

/* Takes the sizes of a new model from --style or --config. */
static bool take_new_model(gpt_options *out, const gpt_given *sizes)
{
    char error[512];
    gpt_config *model = &out->model;
    const bool is_llama = sizes->style < 0 ? sizes->experts > 0 : sizes->style == GPT_STYLE_LLAMA;
    const gpt_style style = is_llama ? GPT_STYLE_LLAMA : GPT_STYLE_GPT2;
    gpt_config_default(style, model);
    if (out->config && !gpt_config_read(out->config, model, &out->training, error, sizeof error))
        return refuse_file(out, error);
    if (out->config && sizes->style >= 0 && gpt_config_style(model) != style) {
        fprintf(stderr, PROGRAM ": --style %s, but %s describes a model of style %s\n",
                gpt_style_name(style), out->config, gpt_style_name(gpt_config_style(model)));
        return false;
    }
    if (sizes->bias && gpt_config_style(model) != GPT_STYLE_GPT2) {
        fprintf(stderr, PROGRAM ": --bias is for the style gpt2, not for %s\n",
                gpt_style_name(gpt_config_style(model)));
        return false;
    }
    if (sizes->bias)
        gpt_config_add_biases(model);
    return true;
}

/* Checks the options for experts against the model. */
static bool check_experts(const gpt_options *o)
{
    const gpt_given *given = &o->given;
    const gpt_config *c = &o->model;
    const gpt_training *training = &o->training;
    bool any = false, biased = false;
    for (int i = 0; i < c->model.kind_count; i++) {
        const tsr_model_experts *experts = c->model.kinds[i]->experts;
        any = any || experts;
        biased = biased || (experts && experts->choice_bias);
    }
    if (!any && (given->experts_used || training->balance > 0 || training->bias_rate > 0 ||
                 o->experts_over_data))
        return refuse("--experts-used, --experts-over, --balance and --bias-rate need a model with "
                      "experts");
    if (!biased && training->bias_rate > 0)
        return refuse("--bias-rate needs experts that are chosen with biases; new ones are if "
                      "--bias-rate is given");
    return true;
}

static void replace_training(const gpt_given *given, bool has_config, gpt_training *training)
{
    replace_int(given->batch, -1, &training->batch);
    replace_int(given->accumulate, -1, &training->accumulate);
    if (given->steps >= 0 && given->decay < 0 && !has_config)
        training->decay_steps = given->steps;
    replace_int(given->steps, -1, &training->steps);
    replace_int(given->warmup, -1, &training->warmup_steps);
    replace_int(given->decay, -1, &training->decay_steps);
    if (given->warmup < 0 && training->warmup_steps > training->decay_steps / 10)
        training->warmup_steps = training->decay_steps / 10;
    replace_number(given->learning_rate, &training->learning_rate);
    replace_number(given->min_learning_rate, &training->min_learning_rate);
    replace_number(given->weight_decay, &training->weight_decay);
    replace_number(given->clip, &training->clip);
    replace_number(given->dropout, &training->dropout);
    replace_number(given->balance, &training->balance);
    replace_number(given->bias_rate, &training->bias_rate);
    if (given->is_seed_given)
        training->seed = given->seed;
}

/* Checks that a file can be read that the checkpoint names, if the command line does not name
 * another one. */
static bool check_saved_file(gpt_options *o, const char *option, const char *given,
                             const char *path)
{
    if (given || !path || access(path, R_OK) == 0)
        return true;
    o->has_bad_file = true;
    fprintf(stderr, PROGRAM ": %s was saved with --%s %s: %s; say where it is with --%s\n", o->load,
            option, path, strerror(errno), option);
    return false;
}

/* Chooses the files and the dtype. --model and --config of the command line replace both files that
 * the checkpoint names, and --model also replaces its tokenizer. */
static bool take_files(gpt_options *out, const gpt_given *saved)
{
    const gpt_given *given = &out->given;
    gpt_given all = *given;
    if (!all.model && !all.config)
        gpt_given_add(&all, saved, GPT_GIVEN_FILES);
    gpt_given_add(&all, saved, GPT_GIVEN_TOKENS);
    out->given_model = all.model;
    out->config = all.config;
    out->text = all.text ? all.text : GPT_TEXT;
    out->tokenizer = given->model ? given->tokenizer : all.tokenizer;
    out->separator = all.separator;
    out->offsets = all.offsets ? all.offsets : saved->offsets;
    out->dtype = (tsr_dtype)(all.dtype ? all.dtype : saved->dtype ? saved->dtype : TSR_F32);
    if (out->offsets && !out->config)
        return wrong_option(PROGRAM, "--offsets needs --config", "");
    if (out->separator && !out->tokenizer && !out->given_model)
        return wrong_option(PROGRAM, "--separator needs --tokenizer or --model", "");
    return !saved->text ||
           (check_saved_file(out, "model", given->model, out->given_model) &&
            check_saved_file(out, "config", given->config, out->config) &&
            check_saved_file(out, "offsets", given->offsets, out->offsets) &&
            check_saved_file(out, "text", given->text, out->text) &&
            check_saved_file(out, "tokenizer", given->model ? given->model : given->tokenizer,
                             out->tokenizer));
}

/* Reads the options that a checkpoint has saved. */
static bool take_saved(gpt_options *options, const char *text, gpt_given *out)
{
    char error[512], sentence[1024];
    *out = gpt_given_none();
    if (text && !gpt_given_read(text, out, &options->saved_owner, error, sizeof error)) {
        snprintf(sentence, sizeof sentence, "%s: %s", options->load, error);
        return refuse_file(options, sentence);
    }
    return !text ||
           gpt_given_agree(&options->given, out, options->load, sentence, sizeof sentence) ||
           refuse(sentence);
}

bool gpt_options_complete(gpt_options *out, const char *saved_text)
{
    char error[512];
    gpt_config *model = &out->model;
    gpt_training *training = &out->training;
    gpt_given saved;
    if (!take_saved(out, saved_text, &saved) || !take_files(out, &saved))
        return false;
    gpt_given sizes = out->given; /* of the model */
    if (!out->given.config)
        gpt_given_add(&sizes, &saved, GPT_GIVEN_SHAPE);
    *training = gpt_training_default();
    if (out->given.config)
        replace_training(&saved, false, training);
    if (out->given_model ? !take_model(out) : !take_new_model(out, &sizes))
        return false;
    if (!out->given.config)
        replace_training(&saved, out->config != NULL, training);
    replace_training(&out->given, out->config != NULL, training);
    sizes.bias_rate = training->bias_rate;
    if (out->given_model)
        replace_int(sizes.block, 0, &model->block);
    else if (model->file && !has_sizes(&sizes, model))
        return refuse("a model with layers of several kinds has the sizes of its --config only");
    else
        replace_sizes(&sizes, model);
    if (training->steps > 0 && training->warmup_steps >= training->decay_steps) {
        fprintf(stderr, PROGRAM ": --warmup %d is not less than --decay %d\n",
                training->warmup_steps, training->decay_steps);
        return false;
    }
    if (!check_experts(out))
        return false;
    if (!gpt_config_check(model, error, sizeof error))
        return refuse(error);
    gpt_config_complete(model);
    return check_stages(&out->stages, model->model.layers);
}

/* Returns the absolute path of a file, in memory of malloc. A path that does not exist stays as it
 * is. */
static char *absolute_path(const char *path)
{
    char *resolved = path ? realpath(path, NULL) : NULL;
    return resolved || !path ? resolved : strdup(path);
}

char *gpt_options_print(const gpt_options *o, char *error, size_t error_size)
{
    const tsr_model_config *model = &o->model.model;
    const tsr_model_layer *layer = gpt_config_layer(&o->model);
    const gpt_training *training = &o->training;
    char *paths[] = {absolute_path(o->given_model), absolute_path(o->config),
                     absolute_path(o->offsets), absolute_path(o->text),
                     absolute_path(o->tokenizer)};
    const gpt_given all = {
        .style = (int)gpt_config_style(&o->model),
        .bias = model->norm_bias && layer->qkv_bias && layer->output_bias && layer->mlp_bias,
        .dtype = (int)o->dtype,
        .layers = model->layers,
        .heads = (int)layer->heads,
        .kv_heads = (int)layer->kv_heads,
        .width = (int)model->width,
        .inner = (int)layer->hidden,
        .block = o->model.block,
        .batch = training->batch,
        .accumulate = training->accumulate,
        .steps = training->steps,
        .warmup = training->warmup_steps,
        .decay = training->decay_steps,
        .learning_rate = training->learning_rate,
        .min_learning_rate = training->min_learning_rate,
        .weight_decay = training->weight_decay,
        .clip = training->clip,
        .dropout = training->dropout,
        .balance = training->balance,
        .bias_rate = training->bias_rate,
        .experts = layer->experts ? (int)layer->experts->count : 0,
        .experts_used = layer->experts ? (int)layer->experts->used : 0,
        .is_seed_given = true,
        .seed = training->seed,
        .model = paths[0],
        .config = paths[1],
        .offsets = paths[2],
        .text = paths[3],
        .tokenizer = paths[4],
        .separator = o->separator,
    };
    char *text = gpt_given_print(&all, error, error_size);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        free(paths[i]);
    return text;
}

void gpt_options_free(gpt_options *options)
{
    gpt_config_finish(&options->model);
    gpt_given_free(&options->saved_owner);
}

static bool check_tensor_rates(const gpt_options *o)
{
    const int count = o->tensor_rates.count;
    if (count == 0 || count == o->tensor)
        return true;
    if (o->tensor == 0)
        fprintf(stderr, PROGRAM ": --tensor-rates needs --grid\n");
    else
        fprintf(stderr,
                PROGRAM ": --tensor-rates has %d number%s; the groups of --grid %dx%d "
                        "have %d ranks\n",
                count, count == 1 ? "" : "s", o->data, o->tensor, o->tensor);
    return false;
}

/* Checks that the grids of all stages have the ranks that will be started. */
static bool check_ranks(const gpt_options *o)
{
    const int stages = o->stages.count ? o->stages.count : 1;
    const long long all = (long long)o->data * o->tensor * stages;
    if (o->ranks == 0 || o->data == 0 || o->elastic || all == o->ranks)
        return true;
    if (stages > 1)
        fprintf(stderr,
                PROGRAM ": a grid of %dx%d in each of %d stages has %lld ranks, not --ranks %d\n",
                o->data, o->tensor, stages, all, o->ranks);
    else
        fprintf(stderr, PROGRAM ": --grid %dx%d has %lld rank%s, not --ranks %d\n", o->data,
                o->tensor, all, all == 1 ? "" : "s", o->ranks);
    return false;
}

static bool check_elastic(const gpt_options *o)
{
    if (o->elastic && o->tensor > 1)
        fprintf(stderr,
                PROGRAM ": --elastic is for data-parallel ranks, but --grid %dx%d has %d "
                        "tensor-parallel ones\n",
                o->data, o->tensor, o->tensor);
    else if (o->elastic && o->data > 0 && o->ranks > 0 && o->data != o->ranks)
        fprintf(stderr, PROGRAM ": --grid %dx%d has %d ranks, not --ranks %d\n", o->data, o->tensor,
                o->data, o->ranks);
    else if (o->elastic && o->stages.count > 1)
        fprintf(stderr,
                PROGRAM ": --elastic is for data-parallel ranks, but --pipeline has %d stages\n",
                o->stages.count);
    else
        return true;
    return false;
}

bool gpt_options_parse(int argc, char **argv, gpt_options *out)
{
    *out = (gpt_options){.strategy = "none",
                         .eval_every = 250,
                         .eval_batches = 20,
                         .characters = 400,
                         .temperature = 0.8,
                         .workers = 1,
                         .timeout_seconds = 600,
                         .given = gpt_given_none()};
    int option, index = 0;
    opterr = 1;
    while ((option = getopt_long(argc, argv, "h", known, &index)) != -1)
        if (!take(option, known[index].name, optarg, out))
            return false;
    if (optind < argc)
        return wrong_option(PROGRAM, "unexpected argument ", argv[optind]);
    if (out->given.dropout >= 1)
        return wrong_option(PROGRAM, "--dropout takes a number from 0 to below 1", "");
    if (out->load && out->init)
        return wrong_option(PROGRAM, "--load and --init exclude each other", "");
    if (out->given.separator && !*out->given.separator)
        return wrong_option(PROGRAM, "--separator is empty", "");
    if (out->save)
        out->save = saved_file(out->save, sizeof out->save_file, out->save_file);
    return check_tensor_rates(out) && check_elastic(out) && check_ranks(out);
}

void gpt_options_help(void)
{
    printf(
        "usage: gpt [options]\n"
        "\n"
        "Trains a small language model on the characters of a text, or continues the training of "
        "a\n"
        "given model on its tokens, over any number of processes, and then writes a text.\n"
        "\n"
        "the model:\n"
        "  --model FOLDER         continue with this model of Hugging Face's format: Llama, "
        "Mistral,\n"
        "                         Qwen2, Qwen3 or GPT-2, with its tokenizer; tessera convert "
        "makes\n"
        "                         such a folder from a GGUF file\n"
        "  --style STYLE          gpt2 (default): learned positions, layer norm, GELU;\n"
        "                         llama: rotary positions, RMS norm, SwiGLU, grouped queries\n"
        "  --bias                 gpt2: norms and linear layers have biases, as GPT-2's do\n"
        "  --layers N             blocks (4)\n"
        "  --heads N              attention heads (4)\n"
        "  --kv-heads N           key/value heads (llama: 2)\n"
        "  --width N              features of a token (128)\n"
        "  --inner N              hidden features of the MLP (4 times the width; llama: 8/3)\n"
        "  --experts N            mixtures of N experts in place of MLPs (llama), each with "
        "--inner\n"
        "                         features; a token uses --experts-used N (2) of them\n"
        "  --block N              tokens that attention sees at most (64; with --model its "
        "context,\n"
        "                         but at most 256)\n"
        "  --dropout P            probability (0)\n"
        "  --dtype TYPE           of the parameters: f32, f16 or bf16 (f32)\n"
        "\n"
        "the training:\n"
        "  --text FILE            UTF-8; the last tenth is held out (Shakespeare's plays)\n"
        "  --tokenizer PATH       tokens of this tokenizer instead of characters: a folder or a "
        "file\n"
        "                         (that of --model)\n"
        "  --separator TEXT       documents of the text are separated by this, as "
        "'<|endoftext|>';\n"
        "                         a token that ends a text follows each document\n"
        "  --steps N              (2000)\n"
        "  --batch N              windows in a step, over all ranks (12)\n"
        "  --accumulate N         a step adds the gradients of N such batches (1)\n"
        "  --learning-rate X      highest (0.001; with --model 0.00005); with --warmup N (100) "
        "steps\n"
        "                         before, and a cosine\n"
        "  --min-learning-rate X  down to this one (a tenth) at step --decay N (the last)\n"
        "  --weight-decay X       of matrices (0.1)\n"
        "  --clip X               largest norm of the gradient; 0: none (1)\n"
        "  --balance X            factor of a loss that balances the loads of experts (0)\n"
        "  --bias-rate X          instead, change biases for their choice by this in each step "
        "(0)\n"
        "  --seed N               (1)\n"
        "  --recompute            keep only the inputs of blocks, and compute the rest twice\n"
        "  --eval-every N         steps between evaluations (250); --eval-batches N each (20)\n"
        "\n");
    printf(
        "processes and devices:\n"
        "  --ranks N              start N processes of this host\n"
        "  --grid DxT             D data-parallel by T tensor-parallel ranks (1xN)\n"
        "  --tensor-rates LIST    with --grid: the T ranks divide heads, MLP and vocabulary in "
        "these\n"
        "                         proportions, as 3,1 (evenly)\n"
        "  --pipeline P           P stages, one such grid each, with the blocks divided over "
        "them;\n"
        "                         --accumulate batches pass through them one after the other\n"
        "  --blocks HOW           of each stage: even (default), rates (measured), or as 3,1\n"
        "  --wire TYPE            round activations that tensor-parallel ranks send to f16, bf16 "
        "or\n"
        "                         q8_0 (8-bit blocks), for slow connections; the losses change\n"
        "  --strategy NAME        how data-parallel ranks share parameters: none (default), full,\n"
        "                         layerwise, hybrid or weighted\n"
        "  --experts-over data    each data-parallel rank has some of the experts; tokens travel\n"
        "                         (tensor: all have all, which tensor-parallel ranks divide)\n"
        "  --elastic              all ranks are data-parallel; if some are lost, the others go on\n"
        "                         with the same batches, and take in those that\n"
        "                         tessera launch --respawn starts in their place; with\n"
        "                         --checkpoint, that also starts all again if too many are lost\n"
        "  --device NAME          number, name or UUID of the device (the best one)\n"
        "  --workers N            threads that prepare batches (1)\n"
        "  --timeout SECONDS      for each communication (600: a rank may have to wait until\n"
        "                         another has compiled its kernels)\n"
        "\n"
        "files:\n"
        "  --checkpoint FILE      save the training at the end, after Ctrl-C, and every\n"
        "                         --checkpoint-every N steps\n"
        "  --load FILE            go on with a training that --checkpoint has saved; the file "
        "says\n"
        "                         what the model, the text and the training are, so that only "
        "other\n"
        "                         values need options\n"
        "  --parts                --checkpoint and --load: each rank has a file of its own, on "
        "its\n"
        "                         host; no file system needs to be shared\n"
        "  --save FILE or FOLDER  save the model with Hugging Face's names, config.json and the\n"
        "                         tokenizer, for tessera generate\n"
        "  --log FILE             a line of JSON for each step\n"
        "  --curve FILE           plot the losses as SVG\n"
        "  --config FILE, --init FILE, --offsets FILE\n"
        "                         repeat a recorded run: its sizes, first weights and windows\n"
        "\n"
        "at the end:\n"
        "  --prompt TEXT          where the text begins (a line break, or as the tokenizer "
        "begins)\n"
        "  --characters N         to write, or tokens (400)\n"
        "  --temperature X        0: always the most likely character (0.8)\n"
        "  --top-k N              only the N most likely ones; 0: all (0)\n");
}
