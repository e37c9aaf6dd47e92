/* tessera plan FILE: computes and prints which rank keeps which part of a model's parameters. */
#include "cli/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"
#include "cli/plan/cluster/cluster.h"
#include "cli/plan/model.h"

static struct {
    const char *strategy, *partition, *format;
    bool json;     /* --json, or --format json */
    int64_t ranks; /* 0: the option was not given */
    int64_t align;
    plan_list rates, memory, gather, full, layerwise;
    plan_model model;             /* options that only the strategy inference takes */
    plan_cluster_options cluster; /* options for --cluster, which sets `hosts` */
} chosen = {.model = {.latency_us = -1}};

/* The name of the strategy for generating text, which has no value in tsr_shard_kind. */
static const char inference[] = "inference";

static bool read_dtype(void *user, const char *value, char *problem, size_t size)
{
    if (tsr_dtype_parse(value, user) == TSR_OK)
        return true;
    snprintf(problem, size, "takes a dtype such as f16 or q8_0, not '%.40s'", value);
    return false;
}

static bool read_list(void *user, const char *text, char *problem, size_t size)
{
    if (plan_list_add(user, text))
        return true;
    snprintf(problem, size, "takes values separated by commas, not '%.80s'", text);
    return false;
}

static const cli_option options[] = {
    {"strategy", "NAME",
     "full, layerwise, hybrid, weighted or inference (default: full, and inference for a "
     "folder)",
     .text = &chosen.strategy},
    {"ranks", "N",
     "number of ranks; may be omitted if --rates or --memory lists one value per rank",
     .integer = &chosen.ranks, .low = 1, .high = TSR_SHARD_MAX_RANKS},
    {"rates", "R,R,...", "speed of each rank, in any unit (layerwise, hybrid, weighted, inference)",
     .read = read_list, .user = &chosen.rates},
    {"memory", "M,M,...",
     "memory of each rank, such as 8G or 8GiB; one value applies to all ranks; 0: unlimited",
     .read = read_list, .user = &chosen.memory},
    {"gather", "PATTERN,...", "parameters to keep on every rank; !PATTERN excludes some again",
     .read = read_list, .user = &chosen.gather},
    {"partition", "KIND", "even, strict or uneven (default: even; full and hybrid)",
     .text = &chosen.partition},
    {"align", "N", "start shards at multiples of N elements (full, hybrid, weighted)",
     .integer = &chosen.align, .low = 1, .high = 1099511627776.0},
    {"full-layers", "PATTERN,...", "layers to divide over all ranks (hybrid)", .read = read_list,
     .user = &chosen.full},
    {"layerwise-layers", "PATTERN,...", "layers to keep on one rank each (hybrid)",
     .read = read_list, .user = &chosen.layerwise},
    {"dtype", "DTYPE", "how matrices are kept (default: as in the files; inference)",
     .read = read_dtype, .user = &chosen.model.dtype},
    {"context", "N", "tokens of a sequence in the cache (default: the model's; inference)",
     .integer = &chosen.model.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT},
    {"sequences", "N", "sequences in the cache (default: 1; inference)",
     .integer = &chosen.model.sequences, .low = 1, .high = 1000000},
    {"cache-dtype", "DTYPE", "f32, f16 or bf16 (default: f32; inference)", .read = read_dtype,
     .user = &chosen.model.cache_dtype},
    {"stages", "S",
     "divide the layers over S stages, the first of which is the first ranks (default: 1; "
     "inference)",
     .integer = &chosen.model.stages, .low = 1, .high = TSR_SHARD_MAX_RANKS},
    {"stage-layers", "LIST",
     "layers of each stage, such as 10,12 (default: all stages need equally long for a token, "
     "within their memory; inference)",
     .read = cli_read_layers, .user = &chosen.model.layers},
    {"bandwidth", "B,B,...",
     "bytes per second that each rank reads from its memory, such as 50G; predicts the generation "
     "of tokens (inference)",
     .read = read_list, .user = &chosen.model.bandwidth},
    {"gflops", "R,R,...",
     "10^9 operations per second of each rank; predicts the reading of prompts (inference)",
     .read = read_list, .user = &chosen.model.gflops},
    {"latency", "US", "microseconds of an all-reduce (default: 20; inference)",
     .real = &chosen.model.latency_us, .low = 0, .high = 1e9},
    {"cluster", "FILE", "find the best grid of the ranks of a cluster that this file describes",
     .text = &chosen.cluster.hosts},
    {"links", "FILE",
     "the output of bench link --json, whose links count instead of those of the description "
     "(cluster)",
     .text = &chosen.cluster.links},
    {"rank-rates", "FILE",
     "the output of bench rates --json, whose rates count instead of those of the description "
     "(cluster)",
     .text = &chosen.cluster.rates},
    {"goal", "GOAL", "generation, prompt or training (default: generation; cluster)",
     .text = &chosen.cluster.goal},
    {"batch", "N", "sequences of a micro-batch, of all ranks together (default: 1; training)",
     .integer = &chosen.cluster.batch, .low = 1, .high = 1000000},
    {"accumulate", "N", "micro-batches of a step (default: 1; training)",
     .integer = &chosen.cluster.accumulate, .low = 1, .high = 1000000},
    {"wire", "DTYPE",
     "how tensor-parallel ranks send activations: f32 (default), f16, bf16 or q8_0 (cluster)",
     .read = read_dtype, .user = &chosen.cluster.wire},
    {"format", "FORMAT", "table or json (default: table)", .text = &chosen.format},
    {"json", NULL, "the same as --format json", .flag = &chosen.json},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Computes which rank keeps which part of a model's parameters, and how many bytes each "
        "rank "
        "needs. FILE is a safetensors file, a GGUF file, a model.safetensors.index.json, or a JSON "
        "list of parameters. Only its header is read, not the weights. Tensors of an optimizer's "
        "state "
        "in a checkpoint, which are named optimizer.*, are left out.\n"
        "\n"
        "strategies:\n"
        "  full       Divide each parameter over all ranks.\n"
        "  layerwise  Give each layer to one rank, and balance the bytes.\n"
        "  hybrid     Keep the layers of --layerwise-layers on one rank each, except those of "
        "--full-layers; divide all others.\n"
        "  weighted   Divide each parameter in proportion to the ranks' rates, within their "
        "memory.\n"
        "  inference  Divide a language model (FILE may also be its folder) as generate does: by "
        "whole heads, hidden features and tokens, equally or by --rates; with the cache of keys "
        "and "
        "values. Activations, a few MiB, are not counted. With --memory, says whether it fits, and "
        "what would. With --stages, layers move from stages that have too little memory to "
        "others.\n"
        "\n"
        "Predictions of inference: a step of generating takes, on the slowest rank, the bytes of "
        "its "
        "weights and of half of its cache (sequences are half full on average) divided by "
        "--bandwidth, and with several ranks 2 all-reduces per layer and 2 more of --latency each; "
        "it gives a token per sequence. A token of a prompt takes 2 operations per element of the "
        "matrices of the slowest rank, divided by --gflops. Both are upper limits.\n"
        "\n"
        "With --cluster, which hosts, ranks and links there are comes from a JSON file "
        "(docs/models.md, "
        "\"Which grid\"). All grids of data-parallel, tensor-parallel and pipeline ranks are "
        "compared, "
        "on all hosts, on some of them and on single ranks. Prints the fastest grid that fits into "
        "memory, and why the next two are not the best.\n"
        "\n"
        "A PATTERN may use *, ? and [a-z]. A pattern without a dot, such as 'embed*', matches one "
        "component of a name; a pattern with a dot matches the whole name. If several patterns "
        "match, "
        "the last one applies.\n");
    cli_options_help(out, options);
}

/* Arrays with one value for each rank, or NULL. */
typedef struct rank_values {
    double *rates;
    uint64_t *memory;
} rank_values;

static int read_rates(rank_values *values)
{
    size_t count = chosen.rates.count;
    values->rates = count > 0 ? cli_alloc(count, sizeof *values->rates) : NULL;
    for (size_t i = 0; i < count; i++)
        if (!plan_read_rate(chosen.rates.texts[i], &values->rates[i]))
            return cli_usage_error("plan: --rates takes numbers that are not negative, not '%s'",
                                   chosen.rates.texts[i]);
    return CLI_DONE;
}

static int read_memory(int ranks, rank_values *values)
{
    size_t count = chosen.memory.count;
    values->memory = count > 0 ? cli_alloc((size_t)ranks, sizeof *values->memory) : NULL;
    for (size_t i = 0; i < count; i++)
        if (!cli_read_bytes(chosen.memory.texts[i], &values->memory[i]))
            return cli_usage_error(
                "plan: --memory takes bytes, up to 2^53 (8192T), such as 8G, 512M or 1.5TiB, "
                "not '%s'",
                chosen.memory.texts[i]);
    for (int r = 1; r < ranks && count == 1; r++)
        values->memory[r] = values->memory[0];
    return CLI_DONE;
}

/* Determines the number of ranks. All options that imply this number must agree. */
static int count_ranks(int *ranks)
{
    size_t count = (size_t)chosen.ranks, rates = chosen.rates.count, memory = chosen.memory.count;
    if (count == 0)
        count = rates > 0 ? rates : memory > 1 ? memory : 0;
    if (count == 0)
        return cli_usage_error("plan: missing --ranks N");
    if (count > TSR_SHARD_MAX_RANKS)
        return cli_usage_error("plan: %zu ranks are too many; the maximum is %d", count,
                               TSR_SHARD_MAX_RANKS);
    if (rates > 0 && rates != count)
        return cli_usage_error("plan: --rates has %zu value%s for %zu ranks", rates,
                               rates == 1 ? "" : "s", count);
    if (memory > 1 && memory != count)
        return cli_usage_error("plan: --memory has %zu values for %zu ranks", memory, count);
    *ranks = (int)count;
    return CLI_DONE;
}

static int read_partition(tsr_partition_kind *out)
{
    static const char *const names[] = {"even", "strict", "uneven"};
    for (int i = 0; i < 3; i++)
        if (chosen.partition == NULL || strcmp(chosen.partition, names[i]) == 0) {
            *out = (tsr_partition_kind)i;
            return CLI_DONE;
        }
    return cli_usage_error("plan: --partition takes even, strict or uneven, not '%s'",
                           chosen.partition);
}

static bool has_model_options(void)
{
    const plan_model *m = &chosen.model;
    return m->dtype != 0 || m->cache_dtype != 0 || m->context > 0 || m->sequences > 0 ||
           m->bandwidth.count > 0 || m->gflops.count > 0 || m->latency_us >= 0 || m->stages > 0 ||
           m->layers.count > 0;
}

/* Fails if an option was given that would have no effect. */
static int check_options(tsr_shard_kind kind)
{
    if (has_model_options())
        return cli_usage_error("plan: only the strategy inference takes --dtype, --context, "
                               "--sequences, --cache-dtype, --stages, --stage-layers, "
                               "--bandwidth, --gflops and --latency");
    const struct {
        bool given;
        unsigned kinds; /* the kinds of strategies that take the option, as bits */
        const char *name;
    } all[] = {
        {chosen.rates.count > 0,
         1u << TSR_SHARD_LAYERWISE | 1u << TSR_SHARD_HYBRID | 1u << TSR_SHARD_WEIGHTED, "rates"},
        {chosen.partition != NULL, 1u << TSR_SHARD_FULL | 1u << TSR_SHARD_HYBRID, "partition"},
        {chosen.align > 0, 1u << TSR_SHARD_FULL | 1u << TSR_SHARD_HYBRID | 1u << TSR_SHARD_WEIGHTED,
         "align"},
        {chosen.full.count > 0, 1u << TSR_SHARD_HYBRID, "full-layers"},
        {chosen.layerwise.count > 0, 1u << TSR_SHARD_HYBRID, "layerwise-layers"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].given && !(all[i].kinds & 1u << kind))
            return cli_usage_error("plan: %s does not take --%s", tsr_shard_kind_name(kind),
                                   all[i].name);
    return CLI_DONE;
}

/* Prints the library's error without its prefix "shard:". If memory is exhausted, the command has
 * failed. All other errors are caused by the arguments or the file. */
static int library_error(tsr_status status)
{
    static const char prefix[] = "shard: ";
    const char *text = tsr_last_error();
    if (strncmp(text, prefix, sizeof prefix - 1) == 0)
        text += sizeof prefix - 1;
    return status == TSR_ERR_NO_MEMORY ? cli_failed("plan: %s", text)
                                       : cli_usage_error("plan: %s", text);
}

static int print_json(const tsr_shard_plan *plan)
{
    size_t size = 0;
    tsr_status status = tsr_shard_plan_save_json(plan, 0, NULL, &size);
    char *text = status == TSR_OK ? cli_alloc(size, 1) : NULL;
    if (status == TSR_OK)
        status = tsr_shard_plan_save_json(plan, size, text, &size);
    if (status == TSR_OK)
        cli_write(text, size);
    free(text);
    return status == TSR_OK ? CLI_DONE : library_error(status);
}

/* Returns whether a tensor is optimizer state, which a checkpoint of a training run also
 * contains. */
static bool is_optimizer_state(const char *name)
{
    return strncmp(name, "optimizer.", strlen("optimizer.")) == 0;
}

/* Returns the parameters of the list, without optimizer state. Free the array with free(). The
 * strings belong to the list. */
static tsr_shard_param *model_params(const tsr_shard_list *list, uint64_t *count)
{
    const tsr_shard_param *all = tsr_shard_list_param_array(list);
    const uint64_t all_count = tsr_shard_list_param_count(list);
    tsr_shard_param *kept = cli_alloc((size_t)all_count, sizeof *kept);
    *count = 0;
    for (uint64_t i = 0; i < all_count; i++)
        if (!is_optimizer_state(all[i].name))
            kept[(*count)++] = all[i];
    return kept;
}

static int make_plan(const char *path, const tsr_shard_strategy_params *strategy_params,
                     const tsr_shard_plan_params *options_of_plan)
{
    tsr_shard_list *list = NULL;
    tsr_shard_strategy *strategy = NULL;
    tsr_shard_plan *plan = NULL;
    tsr_status status = tsr_shard_strategy_create(strategy_params, &strategy);
    if (status == TSR_OK)
        status = tsr_shard_list_open(path, &list);
    uint64_t count = 0;
    tsr_shard_param *params = status == TSR_OK ? model_params(list, &count) : NULL;
    bool empty = params != NULL && count == 0;
    if (params != NULL && !empty)
        status = tsr_shard_plan_create(strategy, count, params, options_of_plan, &plan);
    int code = CLI_DONE;
    if (empty)
        code = cli_usage_error("plan: %s: the list of parameters is empty", path);
    else if (status != TSR_OK)
        code = library_error(status);
    else if (chosen.json)
        code = print_json(plan);
    else
        plan_print(stdout, plan, path, tsr_shard_format_name(tsr_shard_list_format(list)));
    free(params);
    tsr_shard_plan_destroy(&plan);
    tsr_shard_list_destroy(&list);
    tsr_shard_strategy_destroy(&strategy);
    return code;
}

/* Fails if an option was given that neither --strategy inference nor --cluster takes. */
static int check_model_options(void)
{
    const struct {
        bool given;
        const char *name;
    } all[] = {{chosen.gather.count > 0, "gather"},
               {chosen.partition != NULL, "partition"},
               {chosen.align > 0, "align"},
               {chosen.full.count > 0, "full-layers"},
               {chosen.layerwise.count > 0, "layerwise-layers"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].given)
            return cli_usage_error("plan: %s does not take --%s",
                                   chosen.cluster.hosts ? "--cluster" : inference, all[i].name);
    return CLI_DONE;
}

static int plan_inference(const char *path)
{
    rank_values values = {0};
    int code = check_model_options();
    if (code == CLI_DONE)
        code = count_ranks(&chosen.model.ranks);
    if (code == CLI_DONE)
        code = read_rates(&values);
    if (code == CLI_DONE)
        code = read_memory(chosen.model.ranks, &values);
    chosen.model.rates = values.rates;
    chosen.model.memory = values.memory;
    chosen.model.json = chosen.json;
    if (code == CLI_DONE)
        code = plan_model_run(path, &chosen.model);
    free(values.rates);
    free(values.memory);
    return code;
}

static int check_format(void)
{
    const bool json = chosen.format != NULL && strcmp(chosen.format, "json") == 0;
    if (chosen.format != NULL && !json && strcmp(chosen.format, "table") != 0)
        return cli_usage_error("plan: --format takes table or json, not '%s'", chosen.format);
    if (chosen.json && chosen.format != NULL && !json)
        return cli_usage_error("plan: --json and --format %s are two formats", chosen.format);
    chosen.json |= json;
    return CLI_DONE;
}

/* Finds the best grid of a cluster. The description of the cluster replaces other options. */
static int plan_on_cluster(const char *path)
{
    const plan_model *m = &chosen.model;
    const struct {
        bool given;
        const char *name;
    } all[] = {{chosen.strategy != NULL, "strategy"}, {chosen.ranks > 0, "ranks"},
               {chosen.rates.count > 0, "rates"},     {chosen.memory.count > 0, "memory"},
               {m->bandwidth.count > 0, "bandwidth"}, {m->gflops.count > 0, "gflops"},
               {m->latency_us >= 0, "latency"},       {m->stages > 0, "stages"},
               {m->layers.count > 0, "stage-layers"}};
    int code = check_model_options();
    for (size_t i = 0; i < sizeof all / sizeof *all && code == CLI_DONE; i++)
        if (all[i].given)
            code = cli_usage_error("plan: --cluster does not take --%s", all[i].name);
    plan_cluster_options *o = &chosen.cluster;
    o->sequences = m->sequences;
    o->dtype = m->dtype;
    o->cache_dtype = m->cache_dtype;
    o->context = m->context;
    o->json = chosen.json;
    return code == CLI_DONE ? plan_cluster_run(path, o) : code;
}

static int check_cluster_options(void)
{
    const plan_cluster_options *o = &chosen.cluster;
    return o->links || o->rates || o->goal || o->batch > 0 || o->accumulate > 0 || o->wire
               ? cli_usage_error(
                     "plan: --links, --rank-rates, --goal, --batch, --accumulate and --wire "
                     "need --cluster FILE")
               : CLI_DONE;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int plan_file(const char *path)
{
    tsr_shard_kind kind = TSR_SHARD_FULL;
    tsr_partition_kind partition = TSR_PARTITION_EVEN;
    rank_values values = {0};
    int ranks = 0;
    if (check_format() != CLI_DONE)
        return CLI_USAGE;
    if (chosen.cluster.hosts)
        return plan_on_cluster(path);
    if (check_cluster_options() != CLI_DONE)
        return CLI_USAGE;
    if (chosen.strategy != NULL ? strcmp(chosen.strategy, inference) == 0 : is_folder(path))
        return plan_inference(path);
    if (chosen.strategy != NULL && tsr_shard_kind_parse(chosen.strategy, &kind) != TSR_OK)
        return cli_usage_error(
            "plan: --strategy takes full, layerwise, hybrid, weighted or inference, not '%s'",
            chosen.strategy);
    int code = read_partition(&partition);
    if (code == CLI_DONE)
        code = check_options(kind);
    if (code == CLI_DONE)
        code = count_ranks(&ranks);
    if (code == CLI_DONE)
        code = read_rates(&values);
    if (code == CLI_DONE)
        code = read_memory(ranks, &values);
    if (code == CLI_DONE)
        code = make_plan(
            path,
            tsr_shard_strategy_params(.kind = kind, .partition = partition,
                                      .align = (uint64_t)chosen.align,
                                      .full_layers = (const char *const *)chosen.full.texts,
                                      .layerwise_layers =
                                          (const char *const *)chosen.layerwise.texts),
            tsr_shard_plan_params(.ranks = ranks,
                                  .gather = (const char *const *)chosen.gather.texts,
                                  .rates = values.rates, .memory_bytes = values.memory));
    free(values.rates);
    free(values.memory);
    return code;
}

static int run(int argc, char **argv)
{
    const char *path = NULL;
    int words;
    int code = cli_options_read("plan", options, argc, argv, 1, &path, &words);
    if (code == CLI_DONE)
        code = words == 1 ? plan_file(path) : cli_usage_error("plan: missing FILE");
    plan_list_free(&chosen.rates);
    plan_list_free(&chosen.memory);
    plan_list_free(&chosen.gather);
    plan_list_free(&chosen.full);
    plan_list_free(&chosen.layerwise);
    plan_list_free(&chosen.model.bandwidth);
    plan_list_free(&chosen.model.gflops);
    free(chosen.model.layers.values);
    return code;
}

const cli_command cli_plan = {
    .name = "plan",
    .usage = "FILE --ranks N|--cluster FILE [options]",
    .summary = "compute which rank keeps which part of a model's parameters",
    .run = run,
    .help = help,
};
