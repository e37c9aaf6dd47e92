#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PROGRAM "gpt"

enum {
    OPT_GIVEN = 256, /* an option of gpt_given */
    OPT_BLOCKS,
    OPT_CHARACTERS,
    OPT_CHECKPOINT,
    OPT_CHECKPOINT_EVERY,
    OPT_CONTEXT_PARALLEL,
    OPT_CONTEXT_RATES,
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
    {"context-parallel", required_argument, NULL, OPT_CONTEXT_PARALLEL},
    {"context-rates", required_argument, NULL, OPT_CONTEXT_RATES},
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

/* Parses the rates of a group's ranks, such as "3,1". */
static bool take_rates(const char *name, const char *text, gpt_rates *out)
{
    char sentence[128];
    char *end;
    out->count = 0;
    for (const char *at = text;; at = end + 1) {
        const double rate = strtod(at, &end);
        if (end == at || !(rate > 0 && rate <= 1e9) || out->count == GPT_MAX_RATES ||
            (*end != '\0' && *end != ',')) {
            snprintf(sentence, sizeof sentence,
                     "%s takes up to 64 numbers above 0 and up to 1e9, as 3,1, not ", name);
            return wrong_option(PROGRAM, sentence, text);
        }
        out->values[out->count++] = rate;
        if (*end == '\0')
            return true;
    }
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
        return take_rates("--tensor-rates", value, &out->tensor_rates);
    case OPT_CONTEXT_PARALLEL:
        return parse_int(PROGRAM, "context-parallel", value, 1, TSR_MAX_COMM_SIZE, &out->context);
    case OPT_CONTEXT_RATES:
        return take_rates("--context-rates", value, &out->context_rates);
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

static bool check_context(const gpt_options *o)
{
    const int count = o->context_rates.count, context = o->context ? o->context : 1;
    if (count > 0 && count != context)
        fprintf(stderr, PROGRAM ": --context-rates has %d number%s; --context-parallel is %d\n",
                count, count == 1 ? "" : "s", context);
    else if (o->elastic && context > 1)
        fprintf(stderr, PROGRAM ": --elastic is for data-parallel ranks, not for "
                                "--context-parallel\n");
    else
        return true;
    return false;
}

/* Checks that the grids of all stages have the ranks that will be started. */
static bool check_ranks(const gpt_options *o)
{
    const int stages = o->stages.count ? o->stages.count : 1, context = o->context ? o->context : 1;
    const long long all = (long long)o->data * o->tensor * context * stages;
    if (o->ranks == 0 || o->data == 0 || o->elastic || all == o->ranks)
        return true;
    if (context > 1)
        fprintf(stderr,
                PROGRAM ": a grid of %dx%d with --context-parallel %d and --pipeline %d has %lld "
                        "ranks, not --ranks %d\n",
                o->data, o->tensor, context, stages, all, o->ranks);
    else if (stages > 1)
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
    return check_tensor_rates(out) && check_context(out) && check_elastic(out) && check_ranks(out);
}
