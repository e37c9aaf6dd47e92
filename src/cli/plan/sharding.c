/* tessera plan FILE: prints which rank keeps which shards of the parameters of a file. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/say.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/plan/plan.h"
#include "tessera/shard.h"

/* Text ----------------------------------------------------------------------------------------- */

#define BAR_WIDTH 40

static void print_head(FILE *out, const tsr_shard_plan *plan, const tsr_shard_summary *summary,
                       const char *path, const char *format)
{
    char model[CLI_BYTES_TEXT], gathered[CLI_BYTES_TEXT];
    uint64_t count = tsr_shard_plan_param_count(plan);
    int ranks = tsr_shard_plan_ranks(plan);
    cli_print(out, "%s (%s): %" PRIu64 " parameter%s, %s\n", path, format, count,
              count == 1 ? "" : "s", cli_bytes(summary->model_bytes, model));
    fprintf(out, "%s over %d rank%s", summary->strategy, ranks, ranks == 1 ? "" : "s");
    if (summary->gathered_count > 0)
        fprintf(out, "; %" PRIu64 " parameter%s, %s, on every rank", summary->gathered_count,
                summary->gathered_count == 1 ? "" : "s",
                cli_bytes(summary->gathered_bytes, gathered));
    fputs("\n\n", out);
}

/* Adds a bar that shows what a rank stores. '=' stands for parameters that every rank keeps, and
 * '#' for the rank's shards. The rank with the largest total gets the longest bar. */
static void add_bar(cli_table *table, const tsr_shard_rank_total *total, uint64_t most)
{
    char bar[BAR_WIDTH + 1];
    double scale = most > 0 ? (double)BAR_WIDTH / (double)most : 0;
    int gathered = (int)((double)total->gathered_bytes * scale + 0.5);
    int whole = (int)((double)total->total_bytes * scale + 0.5);
    for (int i = 0; i < whole; i++)
        bar[i] = i < gathered ? '=' : '#';
    bar[whole] = '\0';
    cli_table_cell(table, "%s", bar);
}

static void print_ranks(FILE *out, const tsr_shard_plan *plan, const tsr_shard_summary *summary)
{
    const double *rates = summary->rates;
    const uint64_t *memory = summary->memory_bytes;
    char bytes[CLI_BYTES_TEXT];
    cli_table *table = cli_table_create();
    cli_table_column(table, "rank", CLI_RIGHT);
    if (rates != NULL)
        cli_table_column(table, "rate", CLI_RIGHT);
    cli_table_column(table, "shards", CLI_RIGHT);
    if (summary->gathered_count > 0)
        cli_table_column(table, "on every rank", CLI_RIGHT);
    cli_table_column(table, "total", CLI_RIGHT);
    if (memory != NULL)
        cli_table_column(table, "of memory", CLI_RIGHT);
    cli_table_column(table, "", CLI_OPTIONAL);
    for (int r = 0; r < tsr_shard_plan_ranks(plan); r++) {
        tsr_shard_rank_total total = TSR_INIT(tsr_shard_rank_total);
        /* cannot fail, because the rank exists */
        (void)!tsr_shard_plan_get_rank_total(plan, r, &total);
        cli_table_cell(table, "%d", r);
        if (rates != NULL)
            cli_table_cell(table, "%g", rates[r]);
        cli_table_cell(table, "%s", cli_bytes(total.sharded_bytes, bytes));
        if (summary->gathered_count > 0)
            cli_table_cell(table, "%s", cli_bytes(total.gathered_bytes, bytes));
        cli_table_cell(table, "%s", cli_bytes(total.total_bytes, bytes));
        if (memory != NULL && memory[r] > 0)
            cli_table_cell(table, "%.1f %%", 100 * (double)total.total_bytes / (double)memory[r]);
        else if (memory != NULL)
            cli_table_cell(table, "-");
        add_bar(table, &total, summary->max_bytes);
    }
    cli_table_print(table, out, 0);
    cli_table_destroy(&table);
}

static void print_balance(FILE *out, const tsr_shard_summary *summary)
{
    const char *measure =
        summary->rates != NULL ? "bytes of shards for its rate" : "bytes of shards";
    if (summary->sharded_bytes == 0)
        fputs("\nnothing is divided\n", out);
    else if (isinf(summary->imbalance))
        fputs("\nimbalance: a rank of rate 0 has shards\n", out);
    else
        fprintf(out, "\nimbalance %.4f: the busiest rank has %.2f %% more %s than the mean\n",
                summary->imbalance, 100 * (summary->imbalance - 1), measure);
}

static void print_text(FILE *out, const tsr_shard_plan *plan, const char *path, const char *format)
{
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
    /* cannot fail, because the plan exists */
    (void)!tsr_shard_plan_get_summary(plan, &summary);
    print_head(out, plan, &summary, path, format);
    print_ranks(out, plan, &summary);
    print_balance(out, &summary);
}

/* Making the plan ------------------------------------------------------------------------------ */

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
    return status == TSR_OK ? CLI_DONE : cli_failed_in("plan", tsr_last_error());
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
    const uint64_t all_count = tsr_shard_list_param_count(list);
    tsr_shard_param *kept = cli_alloc((size_t)all_count, sizeof *kept);
    *count = 0;
    for (uint64_t i = 0; i < all_count; i++) {
        const tsr_shard_param *param = tsr_shard_list_param(list, i);
        if (!is_optimizer_state(param->name))
            kept[(*count)++] = *param;
    }
    return kept;
}

static int make_plan(const char *path, bool json, const tsr_shard_strategy_params *strategy_params,
                     const tsr_shard_plan_params *plan_params)
{
    tsr_shard_list *list = NULL;
    tsr_shard_strategy *strategy = NULL;
    tsr_shard_plan *plan = NULL;
    tsr_status status = tsr_shard_strategy_create(strategy_params, &strategy);
    if (status == TSR_ERR_INVALID) /* the options are wrong, whatever the file holds */
        return cli_usage_error("plan: %s", cli_without_module(tsr_last_error()));
    if (status == TSR_OK)
        status = tsr_shard_list_open(path, &list);
    uint64_t count = 0;
    tsr_shard_param *params = status == TSR_OK ? model_params(list, &count) : NULL;
    bool empty = params != NULL && count == 0;
    if (params != NULL && !empty)
        status = tsr_shard_plan_create(strategy, count, params, plan_params, &plan);
    int code = CLI_DONE;
    if (empty)
        code = cli_failed("plan: %s: the list of parameters is empty", path);
    else if (status != TSR_OK)
        code = list != NULL ? cli_failed_in("plan", tsr_last_error())
                            : cli_failed_with_file("plan", tsr_last_error(), path);
    else if (json)
        code = print_json(plan);
    else
        print_text(stdout, plan, path, tsr_shard_format_name(tsr_shard_list_format(list)));
    free(params);
    tsr_shard_plan_destroy(&plan);
    tsr_shard_list_destroy(&list);
    tsr_shard_strategy_destroy(&strategy);
    return code;
}

/* Options -------------------------------------------------------------------------------------- */

static int read_partition(const plan_options *o, tsr_partition_kind *out)
{
    static const char *const names[] = {"even", "strict", "uneven"};
    for (int i = 0; i < 3; i++)
        if (o->partition == NULL || strcmp(o->partition, names[i]) == 0) {
            *out = (tsr_partition_kind)i;
            return CLI_DONE;
        }
    return cli_usage_error("plan: --partition takes even, strict or uneven, not '%s'",
                           o->partition);
}

static bool has_model_options(const plan_options *o)
{
    return o->dtype != 0 || o->cache_dtype != 0 || o->context > 0 || o->sequences > 0 ||
           o->bandwidth.count > 0 || o->gflops.count > 0 || o->latency_us >= 0 || o->stages > 0 ||
           o->layers.count > 0 || o->experts.given || o->host_bandwidth.count > 0 ||
           o->draft.from != TSR_DRAFT_NONE || o->context_ranks > 0;
}

/* Fails if an option was given that would have no effect. */
static int check_options(const plan_options *o, tsr_shard_kind kind)
{
    if (has_model_options(o))
        return cli_usage_error("plan: only the strategy inference takes --dtype, --context, "
                               "--sequences, --cache-dtype, --stages, --stage-layers, --experts, "
                               "--draft, --bandwidth, --host-bandwidth, --gflops, --latency and "
                               "--context-parallel");
    const struct {
        bool given;
        unsigned kinds; /* the kinds of strategies that take the option, as bits */
        const char *name;
    } all[] = {
        {o->rates.count > 0,
         1u << TSR_SHARD_LAYERWISE | 1u << TSR_SHARD_HYBRID | 1u << TSR_SHARD_WEIGHTED, "rates"},
        {o->partition != NULL, 1u << TSR_SHARD_FULL | 1u << TSR_SHARD_HYBRID, "partition"},
        {o->align > 0, 1u << TSR_SHARD_FULL | 1u << TSR_SHARD_HYBRID | 1u << TSR_SHARD_WEIGHTED,
         "align"},
        {o->full.count > 0, 1u << TSR_SHARD_HYBRID, "full-layers"},
        {o->layerwise.count > 0, 1u << TSR_SHARD_HYBRID, "layerwise-layers"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].given && !(all[i].kinds & 1u << kind))
            return cli_usage_error("plan: %s does not take --%s", tsr_shard_kind_name(kind),
                                   all[i].name);
    return CLI_DONE;
}

int plan_sharding(const char *path, const plan_options *o)
{
    tsr_shard_kind kind = TSR_SHARD_FULL;
    tsr_partition_kind partition = TSR_PARTITION_EVEN;
    plan_ranks ranks = {0};
    if (o->strategy != NULL && tsr_shard_kind_parse(o->strategy, &kind) != TSR_OK)
        return cli_usage_error(
            "plan: --strategy takes full, layerwise, hybrid, weighted or inference, not '%s'",
            o->strategy);
    int code = read_partition(o, &partition);
    if (code == CLI_DONE)
        code = check_options(o, kind);
    if (code == CLI_DONE)
        code = plan_ranks_read(o, &ranks);
    if (code == CLI_DONE)
        code = make_plan(
            path, o->json,
            tsr_shard_strategy_params(.kind = kind, .partition = partition,
                                      .align = (uint64_t)o->align,
                                      .full_layers = (const char *const *)o->full.texts,
                                      .layerwise_layers = (const char *const *)o->layerwise.texts),
            tsr_shard_plan_params(.ranks = ranks.count,
                                  .gather = (const char *const *)o->gather.texts,
                                  .rates = ranks.rates, .memory_bytes = ranks.memory));
    plan_ranks_free(&ranks);
    return code;
}
