#include "options.h"

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "gpt"
#define UNSET (-1) /* a number that was not given */
#define MAX_SIZE (1 << 20)

/* The command line ----------------------------------------------------------------------------- */

typedef enum value_kind {
    COUNT,
    REAL,
    TEXT,
    FLAG,
    SEED,
    DTYPE,
    STYLE,
    GRID,
    RATES,
    OVER
} value_kind;

static gpt_options chosen;

static const struct {
    const char *name;
    value_kind kind;
    void *value;
    int least, most; /* of COUNT */
    const char *help;
} table[] = {
    {"text", TEXT, &chosen.text, 0, 0, "UTF-8; its last tenth is held out (Shakespeare's plays)"},
    {"style", STYLE, &chosen.is_llama, 0, 0, "gpt2 (default): learned positions, GELU; or llama"},
    {"layers", COUNT, &chosen.layers, 1, 1000, "blocks (4)"},
    {"heads", COUNT, &chosen.heads, 1, 4096, "attention heads (4)"},
    {"kv-heads", COUNT, &chosen.kv_heads, 1, 4096, "key/value heads (llama: 2)"},
    {"width", COUNT, &chosen.width, 1, MAX_SIZE, "features of a token (128)"},
    {"inner", COUNT, &chosen.inner, 1, MAX_SIZE, "features inside the MLP (4 or 8/3 times width)"},
    {"experts", COUNT, &chosen.experts, 1, 1024, "mixtures of N experts in place of MLPs (llama)"},
    {"experts-used", COUNT, &chosen.experts_used, 1, 32, "experts that a token uses (2)"},
    {"block", COUNT, &chosen.block, 1, MAX_SIZE, "tokens of a window (64)"},
    {"dtype", DTYPE, &chosen.dtype, 0, 0, "of parameters: f32, f16 or bf16 (f32)"},
    {"recompute", FLAG, &chosen.recompute, 0, 0, "keep only the inputs of blocks"},
    {"batch", COUNT, &chosen.batch, 1, 1 << 16, "windows of a micro-batch, over all ranks (12)"},
    {"accumulate", COUNT, &chosen.accumulate, 1, 1 << 12, "micro-batches of a step (1)"},
    {"steps", COUNT, &chosen.steps, 0, 1 << 30, "(2000)"},
    {"learning-rate", REAL, &chosen.learning_rate, 0, 0, "the highest (0.001)"},
    {"min-learning-rate", REAL, &chosen.min_learning_rate, 0, 0, "the last (a tenth)"},
    {"warmup", COUNT, &chosen.warmup, 0, 1 << 30, "steps before the highest learning rate (100)"},
    {"decay", COUNT, &chosen.decay, 0, 1 << 30, "the step with the last learning rate (the last)"},
    {"weight-decay", REAL, &chosen.weight_decay, 0, 0, "of matrices (0.1)"},
    {"clip", REAL, &chosen.clip, 0, 0, "largest norm of the gradient; 0: none (1)"},
    {"balance", REAL, &chosen.balance, 0, 0, "factor of the auxiliary loss of experts (0)"},
    {"bias-rate", REAL, &chosen.bias_rate, 0, 0, "change of experts' biases in a step (0)"},
    {"seed", SEED, &chosen.seed, 0, 0, "(1)"},
    {"eval-every", COUNT, &chosen.eval_every, 0, 1 << 30,
     "steps between evaluations; 0: none (250)"},
    {"config", TEXT, &chosen.config, 0, 0, "repeat this recorded run: its model and training"},
    {"init", TEXT, &chosen.init, 0, 0, "its first weights"},
    {"offsets", TEXT, &chosen.offsets, 0, 0, "its windows"},
    {"log", TEXT, &chosen.log, 0, 0, "write a line of JSON for each step"},
    {"save", TEXT, &chosen.save, 0, 0, "write the weights and config.json beside them"},
    {"ranks", COUNT, &chosen.ranks, 1, TSR_MAX_COMM_SIZE, "start N processes of this host"},
    {"grid", GRID, NULL, 0, 0, "DxT: D data-parallel by T tensor-parallel ranks (1xN)"},
    {"tensor-rates", RATES, &chosen.tensor_rates, 0, 0, "proportions of the T ranks, as 3,1"},
    {"context-parallel", COUNT, &chosen.context, 1, TSR_MAX_COMM_SIZE,
     "N ranks, or rows of T ranks, divide the tokens of each window"},
    {"context-rates", RATES, &chosen.context_rates, 0, 0, "in these proportions"},
    {"pipeline", COUNT, &chosen.stages, 1, TSR_MAX_COMM_SIZE, "N stages, one such grid each"},
    {"strategy", TEXT, &chosen.strategy, 0, 0,
     "how data-parallel ranks share parameters: none (default), full, layerwise, hybrid, weighted"},
    {"experts-over", OVER, &chosen.experts_over_data, 0, 0,
     "tensor (default), or data: each data-parallel rank has some experts, and tokens travel"},
    {"device", TEXT, &chosen.device, 0, 0, "number, name or UUID (the best one)"},
    {"timeout", REAL, &chosen.timeout, 0, 0, "seconds for each communication (600)"},
};
#define OPTIONS (sizeof table / sizeof *table)

static void print_help(void)
{
    printf(
        "usage: gpt [options]\n\nTrains a small language model on the characters of a text, over "
        "any number of processes.\n\n");
    for (size_t i = 0; i < OPTIONS; i++)
        printf("  --%-18s %s\n", table[i].name, table[i].help);
    printf("\n'tessera train' has more: tokenizers, checkpoints, elastic jobs, given models.\n");
}

/* Parses the rates of a group's ranks, such as "3,1". */
static bool parse_rates(const char *text, gpt_rates *out)
{
    char *end;
    out->count = 0;
    for (const char *at = text;; at = end + 1) {
        const double rate = strtod(at, &end);
        if (end == at || !(rate > 0 && rate <= 1e9) || out->count == GPT_MAX_RATES ||
            (*end != '\0' && *end != ','))
            return wrong_option(PROGRAM, "rates are up to 64 numbers above 0, as 3,1, not ", text);
        out->values[out->count++] = rate;
        if (*end == '\0')
            return true;
    }
}

/* Sets *out to whether `text` is `yes`; otherwise it must be `no`. */
static bool parse_choice(const char *text, const char *yes, const char *no, bool *out)
{
    char problem[64];
    *out = strcmp(text, yes) == 0;
    snprintf(problem, sizeof problem, "a choice of %s and %s, not ", no, yes);
    return *out || strcmp(text, no) == 0 || wrong_option(PROGRAM, problem, text);
}

static bool take(size_t index, const char *text)
{
    void *value = table[index].value;
    const char *name = table[index].name;
    switch (table[index].kind) {
    case COUNT:
        return parse_int(PROGRAM, name, text, table[index].least, table[index].most, value);
    case REAL:
        return parse_number(PROGRAM, name, text, 0, value);
    case TEXT:
        *(const char **)value = text;
        return true;
    case FLAG:
        *(bool *)value = true;
        return true;
    case SEED:
        return parse_seed(PROGRAM, text, value);
    case DTYPE:
        return parse_dtype(PROGRAM, text, value);
    case STYLE:
        return parse_choice(text, "llama", "gpt2", value);
    case GRID:
        return parse_grid(PROGRAM, text, &chosen.data, &chosen.tensor);
    case RATES:
        return parse_rates(text, value);
    case OVER:
        return parse_choice(text, "data", "tensor", value);
    }
    return false;
}

/* Returns an exit status, or −1 to go on. */
static int read_arguments(int argc, char **argv)
{
    struct option known[OPTIONS + 2] = {{0}};
    int option, index = 0;
    for (size_t i = 0; i < OPTIONS; i++)
        known[i] = (struct option){
            table[i].name, table[i].kind == FLAG ? no_argument : required_argument, NULL, 1};
    known[OPTIONS] = (struct option){"help", no_argument, NULL, 'h'};
    optind = 1;
    while ((option = getopt_long(argc, argv, "h", known, &index)) != -1) {
        if (option == 'h') {
            print_help();
            return checked_output(PROGRAM, 0);
        }
        if (option != 1 || !take((size_t)index, optarg))
            return 2;
    }
    if (optind < argc) {
        wrong_option(PROGRAM, "unexpected argument ", argv[optind]);
        return 2;
    }
    return -1;
}

/* Recorded runs -------------------------------------------------------------------------------- */

static json_t *load(const char *path)
{
    json_error_t problem;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (!root && problem.line < 0)
        fprintf(stderr, PROGRAM ": %s: %s\n", path, problem.text);
    else if (!root)
        fprintf(stderr, PROGRAM ": %s:%d: %s\n", path, problem.line, problem.text);
    return root;
}

/* Replaces *out by a member of the object `group`, a number from 0 to `most`, if there is one. */
static bool read_real(const json_t *root, const char *group, const char *name, double most,
                      double *out)
{
    const json_t *value = json_object_get(json_object_get(root, group), name);
    const double number = json_number_value(value);
    if (!value || json_is_null(value))
        return true;
    *out = number;
    if (json_is_number(value) && number >= 0 && number <= most)
        return true;
    fprintf(stderr, PROGRAM ": %s: \"%s\" is not a number from 0 to %g\n", chosen.config, name,
            most);
    return false;
}

static bool read_count(const json_t *root, const char *group, const char *name, int *out)
{
    double number = *out;
    if (!read_real(root, group, name, MAX_SIZE, &number))
        return false;
    *out = (int)number;
    if (number == floor(number))
        return true;
    fprintf(stderr, PROGRAM ": %s: \"%s\" is no integer\n", chosen.config, name);
    return false;
}

/* Takes the model and the training that a recorded run describes. */
static bool take_run(const json_t *root)
{
    gpt_options *o = &chosen;
    const char *routing =
        json_string_value(json_object_get(json_object_get(root, "moe"), "routing"));
    double seed = 0;
    int inner = 0;
    bool good = read_count(root, "config", "inter", &inner) &&
                read_count(root, "config", "n_expert", &o->experts);
    o->is_llama = inner > 0 || o->experts > 0;
    o->inner = inner;
    good = good && read_count(root, "config", "n_layer", &o->layers) &&
           read_count(root, "config", "n_head", &o->heads) &&
           read_count(root, "config", "n_kv", &o->kv_heads) &&
           read_count(root, "config", "head_dim", &o->head_dim) &&
           read_count(root, "config", "n_embd", &o->width) &&
           read_count(root, "config", "n_expert_used", &o->experts_used) &&
           read_count(root, "config", "expert_inter", &o->inner) &&
           read_count(root, "config", "block", &o->block) &&
           read_count(root, "config", "batch", &o->batch) &&
           read_count(root, "config", "steps", &o->steps) &&
           read_real(root, "config", "seed", 9e15, &seed) &&
           read_real(root, "config", "eps", 1, &o->epsilon) &&
           read_real(root, "config", "theta", 1e9, &o->theta) &&
           read_real(root, "moe", "route_scale", 1e6, &o->route_scale) &&
           read_real(root, "moe", "aux_coef", 1e6, &o->balance) &&
           read_real(root, "moe", "gamma", 1, &o->bias_rate) &&
           read_real(root, "optimizer", "lr", 1e9, &o->learning_rate) &&
           read_real(root, "optimizer", "min_lr", 1e9, &o->min_learning_rate) &&
           read_count(root, "optimizer", "warmup", &o->warmup) &&
           read_count(root, "optimizer", "decay_iters", &o->decay) &&
           read_real(root, "optimizer", "beta1", 1, &o->beta1) &&
           read_real(root, "optimizer", "beta2", 1, &o->beta2) &&
           read_real(root, "optimizer", "eps", 1, &o->adam_epsilon) &&
           read_real(root, "optimizer", "wd", 1e9, &o->weight_decay) &&
           read_real(root, "optimizer", "clip", 1e9, &o->clip);
    o->seed = (int64_t)seed;
    if (o->kv_heads == 0)
        o->kv_heads = o->heads;
    o->sigmoid = routing && strcmp(routing, "sigmoid") == 0;
    if (good && (!json_is_object(json_object_get(root, "config")) || o->layers < 1 ||
                 o->heads < 1 || o->width < 1 || o->block < 1 || o->batch < 1)) {
        fprintf(stderr, PROGRAM ": %s is no recorded run: \"config\" lacks sizes\n", o->config);
        return false;
    }
    return good;
}

bool gpt_offsets_read(const char *path, int steps, int windows, int64_t last, int64_t **out)
{
    json_t *root = load(path), *rows = json_object_get(root, "offsets");
    const size_t count = (size_t)steps * (size_t)windows;
    int64_t *all = calloc(count + 1, sizeof *all);
    bool good = root && all;
    if (good && json_array_size(rows) < (size_t)steps) {
        fprintf(stderr, PROGRAM ": %s has %zu steps, not %d\n", path, json_array_size(rows), steps);
        good = false;
    }
    for (size_t i = 0; good && i < count; i++) {
        const json_t *row = json_array_get(rows, i / (size_t)windows),
                     *value = json_array_get(row, i % (size_t)windows);
        all[i] = json_integer_value(value);
        good = json_array_size(row) == (size_t)windows && json_is_integer(value) && all[i] >= 0 &&
               all[i] <= last;
        if (!good)
            fprintf(stderr,
                    PROGRAM
                    ": %s: step %zu of \"offsets\" is no list of %d numbers from 0 to %lld\n",
                    path, i / (size_t)windows, windows, (long long)last);
    }
    json_decref(root);
    *out = good ? all : NULL;
    if (!good)
        free(all);
    return good;
}

/* Defaults ------------------------------------------------------------------------------------- */

/* The values with which nanoGPT trains a small model on a CPU. */
static const gpt_options usual = {
    .text = GPT_TEXT,
    .layers = 4,
    .heads = 4,
    .width = 128,
    .block = 64,
    .epsilon = 1e-5,
    .theta = 10000,
    .dtype = TSR_F32,
    .batch = 12,
    .accumulate = 1,
    .steps = 2000,
    .warmup = UNSET,
    .decay = UNSET,
    .eval_every = 250,
    .seed = 1,
    .learning_rate = 1e-3,
    .min_learning_rate = UNSET,
    .beta1 = 0.9,
    .beta2 = 0.99,
    .adam_epsilon = 1e-8,
    .weight_decay = 0.1,
    .clip = 1,
    .strategy = "none",
    .timeout = 600,
};

/* Sets what follows from other options. */
static void complete(gpt_options *o)
{
    if (o->experts > 0) {
        o->is_llama = true;
        o->experts_used = o->experts_used ? o->experts_used : 2;
        o->sigmoid = o->sigmoid || o->bias_rate > 0;
    }
    if (o->kv_heads == 0)
        o->kv_heads = o->is_llama && o->heads % 2 == 0 ? o->heads / 2 : o->heads;
    if (o->inner == 0) /* llama: 8/3 of the width, rounded up to a multiple of 8 */
        o->inner = o->is_llama ? (o->width + 2) / 3 * 8 : 4 * o->width;
    if (o->min_learning_rate < 0)
        o->min_learning_rate = o->learning_rate / 10;
    if (o->decay < 0)
        o->decay = o->steps;
    if (o->warmup < 0)
        o->warmup = o->decay / 10 < 100 ? o->decay / 10 : 100;
}

static bool check(const gpt_options *o)
{
    const int head = o->head_dim ? o->head_dim : o->width / o->heads;
    tsr_shard_kind kind;
    const char *strategy;
    if (strcmp(o->strategy, "none") != 0 && tsr_shard_kind_parse(o->strategy, &kind) != TSR_OK)
        return parse_strategy(PROGRAM, o->strategy, &strategy);
    if (o->head_dim == 0 && o->width % o->heads != 0)
        fprintf(stderr, PROGRAM ": a width of %d does not divide over %d heads\n", o->width,
                o->heads);
    else if (o->heads % o->kv_heads != 0)
        fprintf(stderr, PROGRAM ": %d heads do not divide over %d key/value heads\n", o->heads,
                o->kv_heads);
    else if (!o->is_llama && o->kv_heads != o->heads)
        fprintf(stderr, PROGRAM ": --kv-heads is for the style llama\n");
    else if (o->is_llama && head % 2 != 0)
        fprintf(stderr,
                PROGRAM ": rotary positions need an even number of features per head, not "
                        "%d\n",
                head);
    else if (o->experts_used > o->experts)
        fprintf(stderr, PROGRAM ": a token cannot use %d of %d experts\n", o->experts_used,
                o->experts);
    else if (o->experts == 0 && (o->balance > 0 || o->bias_rate > 0 || o->experts_over_data))
        fprintf(stderr, PROGRAM ": --balance, --bias-rate and --experts-over need --experts\n");
    else if (o->stages > o->layers)
        fprintf(stderr, PROGRAM ": --pipeline %d has more stages than the model has blocks, %d\n",
                o->stages, o->layers);
    else if (o->tensor_rates.count > 0 && o->tensor_rates.count != o->tensor)
        fprintf(stderr,
                PROGRAM ": --tensor-rates has %d numbers, but --grid has %d tensor-parallel "
                        "ranks\n",
                o->tensor_rates.count, o->tensor);
    else if (o->context_rates.count > 0 && o->context_rates.count != o->context)
        fprintf(stderr, PROGRAM ": --context-rates has %d numbers; --context-parallel is %d\n",
                o->context_rates.count, o->context);
    else if (o->decay > 0 && o->warmup >= o->decay)
        fprintf(stderr, PROGRAM ": --warmup %d is not less than --decay %d\n", o->warmup, o->decay);
    else if (o->offsets && !o->config)
        fprintf(stderr, PROGRAM ": --offsets needs --config\n");
    else
        return true;
    return false;
}

int gpt_options_read(int argc, char **argv, gpt_options *out)
{
    chosen = usual;
    int status = read_arguments(argc, argv);
    if (status >= 0)
        return status;
    if (chosen.config) { /* the options of the command line replace what it says */
        json_t *root = load(chosen.config);
        const bool good = root && take_run(root);
        json_decref(root);
        status = good ? read_arguments(argc, argv) : 1;
    }
    if (status >= 0)
        return status;
    complete(&chosen);
    if (!check(&chosen))
        return 2;
    *out = chosen;
    return -1;
}
