/* The options of tessera train. */
#include <stdio.h>
#include <string.h>

#include "cli/train/train.h"
#include "cli/training/options.h"

#define USUAL_BATCH 12
#define USUAL_STEPS 2000

/* Reads gpt2 or llama into the const char * at `user`. */
static bool read_style(void *user, const char *value, char *problem, size_t size)
{
    if (strcmp(value, "llama") != 0 && strcmp(value, "gpt2") != 0) {
        snprintf(problem, size, "takes llama or gpt2, not '%.40s'", value);
        return false;
    }
    *(const char **)user = value;
    return true;
}

static bool read_experts_over(void *user, const char *value, char *problem, size_t size)
{
    *(bool *)user = strcmp(value, "data") == 0;
    if (*(bool *)user || strcmp(value, "tensor") == 0)
        return true;
    snprintf(problem, size, "takes tensor or data, not '%.40s'", value);
    return false;
}

static bool read_strategy(void *user, const char *value, char *problem, size_t size)
{
    (void)user;
    if (tsr_shard_kind_parse(value, &training_chosen.strategy) == TSR_OK) {
        training_chosen.fsdp = true;
        return true;
    }
    snprintf(problem, size, "takes full, layerwise, hybrid or weighted, not '%.40s'", value);
    return false;
}

static const cli_option train_option_table[] = {
    {"data", "FILE",
     "UTF-8 text; or the ids of tokens if the name ends in .u16, .bin (16-bit numbers) or .u32. "
     "May be repeated",
     .read = training_read_file, .user = &training_chosen.data},
    {"held-out", "PART",
     "part of the tokens for evaluation, the last ones, or a file (default: 0.1)",
     .read = training_read_held_out},
    {"tokenizer", "PATH",
     "a folder or a file whose tokenizer is used (default: that of MODEL; for a new model, "
     "characters are tokens)",
     .text = &training_chosen.tokenizer},
    {"separator", "TEXT",
     "what separates documents in texts, such as '<|endoftext|>'; the token that ends a text "
     "follows each of them",
     .text = &training_chosen.separator},
    {"output", "FOLDER", "the trained model, with its tokenizer, for tessera generate",
     .text = &training_chosen.output, .letter = 'o'},
    {"config", "PATH",
     "a config.json, or a folder with one, that has the sizes of the new model; or a recorded run, "
     "which also has its optimizer and its learning rates",
     .text = &training_chosen.shape.config},
    {"init", "PATH", "the first weights of the new model (default: random ones)",
     .text = &training_chosen.shape.init},
    {"offsets", "FILE", "take the rows that this recorded run had, to compare losses with it",
     .text = &training_chosen.offsets},
    {"style", "NAME",
     "llama: rotary positions, RMS norm, SwiGLU; gpt2: learned positions, layer norm, GELU "
     "(default: llama)",
     .read = read_style, .user = (void *)&training_chosen.shape.style},
    {"bias", NULL, "of gpt2: norms and linear layers have biases",
     .flag = &training_chosen.shape.bias},
    {"layers", "N", "layers (default: 4)", .integer = &training_chosen.shape.layers, .low = 1,
     .high = TSR_MODEL_MAX_LAYERS},
    {"heads", "N", "heads of attention (default: 4)", .integer = &training_chosen.shape.heads,
     .low = 1, .high = 1 << 16},
    {"kv-heads", "N", "of llama: heads of keys and values (default: as many as heads)",
     .integer = &training_chosen.shape.kv_heads, .low = 1, .high = 1 << 16},
    {"width", "N", "features of a token (default: 128)", .integer = &training_chosen.shape.width,
     .low = 1, .high = 1 << 20},
    {"inner", "N",
     "features inside the MLP, or inside an expert (default: 4 times the width; llama: 8/3)",
     .integer = &training_chosen.shape.inner, .low = 1, .high = 1 << 20},
    {"experts", "N", "of llama: mixtures of N experts in place of MLPs",
     .integer = &training_chosen.shape.experts, .low = 2, .high = 1 << 12},
    {"experts-used", "N", "experts that a token uses (default: 2)",
     .integer = &training_chosen.shape.experts_used, .low = 1, .high = 1 << 12},
    {"experts-over", "WHO",
     "which ranks divide experts: tensor, or data: each data-parallel rank has some of them, and "
     "tokens travel (default: tensor)",
     .read = read_experts_over, .user = &training_chosen.experts_over_data},
    {"balance", "X", "factor of a loss that balances the loads of experts (default: 0)",
     .real = &training_chosen.balance, .low = 0, .high = 1e6},
    {"bias-rate", "X",
     "instead, change biases for the choice of experts by this in each step (default: 0)",
     .real = &training_chosen.bias_rate, .low = 0, .high = 1},
    {"dtype", "TYPE", "of parameters and activations: f32, f16 or bf16 (default: f32)",
     .read = cli_read_float_dtype, .user = &training_chosen.dtype},
    {"batch", "N", "rows of a step (default: 12)", .integer = &training_chosen.batch, .low = 1,
     .high = 1 << 20},
    {"context", "N",
     "tokens of a row, and of a new model's context (default: 64; with MODEL or --config what that "
     "was made for, at most 1024)",
     .integer = &training_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT},
    {"accumulate", "N",
     "divide the rows of a step into N passes, which need less memory and, with stages, overlap "
     "(default: 1)",
     .integer = &training_chosen.accumulate, .low = 1, .high = TSR_MAX_PIPELINE_BATCHES},
    {"steps", "N", "the number of steps (default: 2000)", .integer = &training_chosen.steps,
     .low = 1, .high = TRAINING_MOST},
    {"epochs", "N", "how often to learn from all tokens, instead of --steps",
     .integer = &training_chosen.epochs, .low = 1, .high = 1e6},
    {"learning-rate", "R", "the highest learning rate (default: 1e-3; with MODEL 5e-5)",
     .real = &training_chosen.learning_rate, .low = 0, .high = TRAINING_MOST},
    TRAINING_SCHEDULE_OPTIONS,
    {"decay", "N", "the step that has the final rate (default: the last one)",
     .integer = &training_chosen.decay_steps, .low = 1, .high = TRAINING_MOST},
    {"weight-decay", "R", "of AdamW, for matrices (default: 0.1)",
     .real = &training_chosen.weight_decay, .low = 0, .high = 1e6},
    {"beta1", "R", "of AdamW (default: 0.9)", .real = &training_chosen.beta1, .low = 0,
     .high = 0.999999},
    {"beta2", "R", "of AdamW (default: 0.99)", .real = &training_chosen.beta2, .low = 0,
     .high = 0.999999},
    {"clip", "R", "the largest norm of the gradient; 0: no limit (default: 1)",
     .real = &training_chosen.clip, .low = 0, .high = TRAINING_MOST},
    {"dropout", "P", "while training, drop this part of the layers' outputs (default: 0)",
     .real = &training_chosen.layer_dropout, .low = 0, .high = 0.999},
    {"seed", "N", "of first weights, of the order of rows and of dropout (default: 0)",
     .integer = &training_chosen.seed, .low = 0, .high = 9e15},
    TRAINING_PASS_OPTIONS,
    TRAINING_REPORT_OPTIONS,
    {"evaluate-rows", "N",
     "rows of held-out tokens that are evaluated, spread evenly (default: "
     "240)",
     .integer = &training_chosen.evaluate_rows, .low = 1, .high = TRAINING_MOST},
    TRAINING_RANK_OPTIONS,
    {"strategy", "NAME",
     "how --fsdp divides parameters: full, layerwise, hybrid or weighted (default: full)",
     .read = read_strategy},
    {0},
};

void train_options_help(FILE *out)
{
    cli_options_help(out, train_option_table);
}

/* Returns an option of a new model's sizes that was given, or NULL. */
static const char *given_size(void)
{
    const training_shape *s = &training_chosen.shape;
    return s->style != NULL      ? "style"
           : s->bias             ? "bias"
           : s->layers > 0       ? "layers"
           : s->heads > 0        ? "heads"
           : s->kv_heads > 0     ? "kv-heads"
           : s->width > 0        ? "width"
           : s->inner > 0        ? "inner"
           : s->experts > 0      ? "experts"
           : s->experts_used > 0 ? "experts-used"
                                 : NULL;
}

int train_options_check(void)
{
    const training_options *o = &training_chosen;
    const training_shape *s = &o->shape;
    const bool is_gpt2 = s->style != NULL && strcmp(s->style, "gpt2") == 0;
    const char *size = given_size();
    if (o->data.count == 0 && o->resume == NULL)
        return cli_usage_error("train: missing --data FILE");
    if (o->model != NULL && s->config != NULL)
        return cli_usage_error("train: %s has a configuration, so --config cannot be given",
                               o->model);
    if ((o->model != NULL || s->config != NULL) && size != NULL && o->resume == NULL)
        return cli_usage_error("train: %s has the sizes of the model, so --%s cannot be given",
                               o->model != NULL ? o->model : s->config, size);
    if (s->init != NULL && (o->model != NULL || o->resume != NULL))
        return cli_usage_error("train: %s has the weights, so --init cannot be given",
                               o->model != NULL ? o->model : o->resume);
    if (s->bias && !is_gpt2 && o->resume == NULL)
        return cli_usage_error("train: --bias is for --style gpt2");
    if (is_gpt2 && o->resume == NULL && (s->kv_heads > 0 || s->experts > 0))
        return cli_usage_error("train: --%s is for --style llama",
                               s->experts > 0 ? "experts" : "kv-heads");
    if (o->balance > 0 && o->bias_rate > 0)
        return cli_usage_error("train: --balance and --bias-rate contradict each other");
    if (o->separator != NULL && o->separator[0] == '\0')
        return cli_usage_error("train: --separator is empty");
    if (training_is_gguf(o->output))
        return cli_usage_error("train: --output is a folder, so it cannot be %s", o->output);
    return training_options_check();
}

int train_options_read(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    training_chosen.full = true;
    training_chosen.held_out = TRAINING_UNSET;
    int code = cli_options_read("train", train_option_table, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count > 0 && words[0][0] != '\0')
        training_chosen.model = words[0];
    training_strip_slashes();
    return train_options_check();
}

void train_options_complete(void)
{
    training_options *o = &training_chosen;
    if (o->batch == 0)
        o->batch = USUAL_BATCH;
    if (o->steps == 0 && o->epochs == 0)
        o->steps = USUAL_STEPS;
    if (o->learning_rate < 0)
        o->learning_rate = o->model != NULL ? 5e-5 : 1e-3;
    if (o->weight_decay < 0)
        o->weight_decay = 0.1;
    if (o->beta2 < 0)
        o->beta2 = 0.99;
    if (o->evaluate_rows == 0)
        o->evaluate_rows = 240;
}

const training_saved_option train_saved_options[] = {
    {"held_out_file", TRAINING_TEXT, &training_chosen.held_out_file, 0, NULL, false},
    {"held_out", TRAINING_REAL, &training_chosen.held_out, TRAINING_UNSET, NULL, false},
    {"tokenizer", TRAINING_TEXT, &training_chosen.tokenizer, 0, NULL, false},
    {"separator", TRAINING_TEXT, &training_chosen.separator, 0, NULL, false},
    {"characters", TRAINING_TEXT, &training_chosen.characters, 0, NULL, true},
    {"config", TRAINING_TEXT, &training_chosen.shape.config, 0, "config", false},
    {"style", TRAINING_TEXT, &training_chosen.shape.style, 0, "style", false},
    {"bias", TRAINING_FLAG, &training_chosen.shape.bias, 0, "bias", false},
    {"layers", TRAINING_INTEGER, &training_chosen.shape.layers, 0, "layers", false},
    {"heads", TRAINING_INTEGER, &training_chosen.shape.heads, 0, "heads", false},
    {"kv_heads", TRAINING_INTEGER, &training_chosen.shape.kv_heads, 0, "kv-heads", false},
    {"width", TRAINING_INTEGER, &training_chosen.shape.width, 0, "width", false},
    {"inner", TRAINING_INTEGER, &training_chosen.shape.inner, 0, "inner", false},
    {"experts", TRAINING_INTEGER, &training_chosen.shape.experts, 0, "experts", false},
    {"experts_used", TRAINING_INTEGER, &training_chosen.shape.experts_used, 0, "experts-used",
     false},
    {"balance", TRAINING_REAL, &training_chosen.balance, 0, NULL, false},
    {"bias_rate", TRAINING_REAL, &training_chosen.bias_rate, 0, NULL, false},
    {"dropout", TRAINING_REAL, &training_chosen.layer_dropout, TRAINING_UNSET, NULL, false},
    {"offsets", TRAINING_TEXT, &training_chosen.offsets, 0, NULL, true},
    {"evaluate_rows", TRAINING_INTEGER, &training_chosen.evaluate_rows, 0, NULL, false},
    {0},
};
