#define _XOPEN_SOURCE 700 /* for realpath */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

#define PROGRAM "gpt"
#define MODEL_BLOCK 256 /* the block of a given model, if its context is larger */

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

tsr_status gpt_options_chunks(const gpt_options *o, int context_rank, tsr_shard_range chunks[2])
{
    const gpt_rates *rates = &o->context_rates;
    const tsr_partition_params by_rates = {
        .struct_size = sizeof by_rates, .kind = TSR_PARTITION_WEIGHTED, .rates = rates->values};
    return tsr_context_divide(o->model.block, o->context ? o->context : 1,
                              rates->count > 0 ? &by_rates : NULL, context_rank, chunks);
}

/* Checks that each context rank has tokens of a window. */
static bool check_chunks(const gpt_options *o)
{
    for (int rank = 0; rank < o->context; rank++) {
        tsr_shard_range chunks[2];
        if (gpt_options_chunks(o, rank, chunks) != TSR_OK)
            return refuse(tsr_last_error());
        if (chunks[0].count == 0) {
            fprintf(stderr, PROGRAM ": context rank %d has none of the %d tokens of --block\n",
                    rank, o->model.block);
            return false;
        }
    }
    return true;
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
    return check_chunks(out) && check_stages(&out->stages, model->model.layers);
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
