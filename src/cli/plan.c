/* tessera plan FILE: which rank keeps which part of a model's parameters. */
#include "cli/plan.h"

#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/memory.h"
#include "cli/options.h"

static struct {
    const char *strategy, *partition, *format;
    int64_t ranks; /* 0: not given */
    int64_t align;
    plan_list rates, memory, gather, full, layerwise;
} chosen;

static bool read_list(void *user, const char *text, char *problem, size_t size)
{
    if (plan_list_add(user, text))
        return true;
    snprintf(problem, size, "takes values separated by commas, not '%.80s'", text);
    return false;
}

static const cli_option options[] = {
    {"strategy", "NAME", "full, layerwise, hybrid or weighted (default full)",
     .text = &chosen.strategy},
    {"ranks", "N", "how many ranks; needed unless --rates or --memory has a value for each",
     .integer = &chosen.ranks, .low = 1, .high = TSR_SHARD_MAX_RANKS},
    {"rates", "R,R,...", "how fast each rank is, in any unit (not full)", .read = read_list,
     .user = &chosen.rates},
    {"memory", "M,M,...",
     "what each rank can hold, such as 8G or 8GiB; one value is for all; 0: no limit",
     .read = read_list, .user = &chosen.memory},
    {"gather", "PATTERN,...", "parameters that every rank keeps; !PATTERN takes some out again",
     .read = read_list, .user = &chosen.gather},
    {"partition", "KIND", "even, strict or uneven (default even; full, hybrid)",
     .text = &chosen.partition},
    {"align", "N", "shards start at multiples of N elements (not layerwise)",
     .integer = &chosen.align, .low = 1, .high = 1099511627776.0},
    {"full-layers", "PATTERN,...", "layers to divide (hybrid)", .read = read_list,
     .user = &chosen.full},
    {"layerwise-layers", "PATTERN,...", "layers to keep whole (hybrid)", .read = read_list,
     .user = &chosen.layerwise},
    {"format", "FORMAT", "table or json (default table)", .text = &chosen.format},
    {0},
};

static void help(FILE *out)
{
    fputs("Reads the parameters of a model from a safetensors or GGUF file's header, from a "
          "model.safetensors.index.json\n"
          "or from a list in JSON, and shows which rank keeps how much of them. Weights are not "
          "read.\n"
          "\n"
          "strategies:\n"
          "  full       each parameter is divided over all ranks\n"
          "  layerwise  each layer belongs to one rank, the bytes balanced\n"
          "  hybrid     layers of --layerwise-layers stay whole, unless they are in --full-layers; "
          "the others are divided\n"
          "  weighted   each parameter is divided by the ranks' rates and memory\n"
          "\n"
          "A pattern has *, ? and [a-z]. Without a dot it has to match one component of a name, "
          "such as 'embed*', with a\n"
          "dot the whole name; of several the last that matches counts.\n",
          out);
    cli_options_help(out, options);
}

/* Arrays of one value for each rank, or NULL. */
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
            return cli_usage_error("plan: --rates takes numbers from 0 on, not '%s'",
                                   chosen.rates.texts[i]);
    return CLI_DONE;
}

static int read_memory(int ranks, rank_values *values)
{
    size_t count = chosen.memory.count;
    values->memory = count > 0 ? cli_alloc((size_t)ranks, sizeof *values->memory) : NULL;
    for (size_t i = 0; i < count; i++)
        if (!plan_read_bytes(chosen.memory.texts[i], &values->memory[i]))
            return cli_usage_error(
                "plan: --memory takes bytes, up to 2^53 (8192T), such as 8G, 512M or 1.5TiB, "
                "not '%s'",
                chosen.memory.texts[i]);
    for (int r = 1; r < ranks && count == 1; r++)
        values->memory[r] = values->memory[0];
    return CLI_DONE;
}

/* How many ranks there are: all that say so have to agree. */
static int count_ranks(int *ranks)
{
    size_t count = (size_t)chosen.ranks, rates = chosen.rates.count, memory = chosen.memory.count;
    if (count == 0)
        count = rates > 0 ? rates : memory > 1 ? memory : 0;
    if (count == 0)
        return cli_usage_error("plan: how many ranks? --ranks says so");
    if (count > TSR_SHARD_MAX_RANKS)
        return cli_usage_error("plan: %zu ranks are more than %d", count, TSR_SHARD_MAX_RANKS);
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

/* An option that would do nothing is a mistake. */
static int check_options(tsr_shard_kind kind)
{
    const struct {
        bool given;
        unsigned kinds; /* bits */
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

/* What the library says, without its own prefix: the sentence has one already. What the arguments
 * or the file are to blame for is a mistake in the arguments, also that it cannot be read. */
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
        fwrite(text, 1, size, stdout);
    free(text);
    return status == TSR_OK ? CLI_DONE : library_error(status);
}

static int make_plan(const char *path, const tsr_shard_strategy_params *strategy_params,
                     const tsr_shard_plan_params *options_of_plan)
{
    tsr_shard_list *list = NULL;
    tsr_shard_strategy *strategy = NULL;
    tsr_shard_plan *plan = NULL;
    bool json = chosen.format != NULL && strcmp(chosen.format, "json") == 0;
    tsr_status status = tsr_shard_strategy_create(strategy_params, &strategy);
    if (status == TSR_OK)
        status = tsr_shard_list_open(path, &list);
    bool empty = status == TSR_OK && tsr_shard_list_param_count(list) == 0;
    if (status == TSR_OK && !empty)
        status = tsr_shard_plan_create(strategy, tsr_shard_list_param_count(list),
                                       tsr_shard_list_param_array(list), options_of_plan, &plan);
    int code = CLI_DONE;
    if (empty)
        code = cli_usage_error("plan: %s: the list of parameters is empty", path);
    else if (status != TSR_OK)
        code = library_error(status);
    else if (json)
        code = print_json(plan);
    else
        plan_print(stdout, plan, path, tsr_shard_format_name(tsr_shard_list_format(list)));
    tsr_shard_plan_destroy(&plan);
    tsr_shard_list_destroy(&list);
    tsr_shard_strategy_destroy(&strategy);
    return code;
}

static int plan_file(const char *path)
{
    tsr_shard_kind kind = TSR_SHARD_FULL;
    tsr_partition_kind partition = TSR_PARTITION_EVEN;
    rank_values values = {0};
    int ranks = 0;
    if (chosen.strategy != NULL && tsr_shard_kind_parse(chosen.strategy, &kind) != TSR_OK)
        return cli_usage_error(
            "plan: --strategy takes full, layerwise, hybrid or weighted, not '%s'",
            chosen.strategy);
    if (chosen.format != NULL && strcmp(chosen.format, "table") != 0 &&
        strcmp(chosen.format, "json") != 0)
        return cli_usage_error("plan: --format takes table or json, not '%s'", chosen.format);
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
        code = words == 1 ? plan_file(path) : cli_usage_error("plan: which file?");
    plan_list_free(&chosen.rates);
    plan_list_free(&chosen.memory);
    plan_list_free(&chosen.gather);
    plan_list_free(&chosen.full);
    plan_list_free(&chosen.layerwise);
    return code;
}

const cli_command cli_plan = {
    .name = "plan",
    .usage = "FILE --ranks N [options]",
    .summary = "which rank keeps which part of a model's parameters",
    .run = run,
    .help = help,
};
