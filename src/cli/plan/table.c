/* Prints a plan as text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/lib/numbers.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/plan/plan.h"

#define BAR 40

static void print_head(FILE *out, const tsr_shard_plan *plan, const tsr_shard_summary *summary,
                       const char *path, const char *format)
{
    char model[CLI_BYTES_TEXT], gathered[CLI_BYTES_TEXT];
    uint64_t count = tsr_shard_plan_param_count(plan);
    int ranks = tsr_shard_plan_ranks(plan);
    cli_print(out, "%s (%s): %" PRIu64 " parameter%s, %s\n", path, format, count,
              count == 1 ? "" : "s", cli_bytes(summary->model_bytes, model));
    fprintf(out, "%s over %d rank%s", tsr_shard_plan_strategy(plan), ranks, ranks == 1 ? "" : "s");
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
    char bar[BAR + 1];
    double scale = most > 0 ? (double)BAR / (double)most : 0;
    int gathered = (int)((double)total->gathered_bytes * scale + 0.5);
    int whole = (int)((double)total->total_bytes * scale + 0.5);
    for (int i = 0; i < whole; i++)
        bar[i] = i < gathered ? '=' : '#';
    bar[whole] = '\0';
    cli_table_cell(table, "%s", bar);
}

static void print_ranks(FILE *out, const tsr_shard_plan *plan, const tsr_shard_summary *summary)
{
    const double *rates = tsr_shard_plan_rates(plan);
    const uint64_t *memory = tsr_shard_plan_memory_bytes(plan);
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
        tsr_shard_rank_total total = {0};
        /* cannot fail, because the rank exists */
        (void)!tsr_shard_plan_rank_total(plan, r, &total);
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

static void print_balance(FILE *out, const tsr_shard_plan *plan, const tsr_shard_summary *summary)
{
    const char *measure =
        tsr_shard_plan_rates(plan) != NULL ? "bytes of shards for its rate" : "bytes of shards";
    if (summary->sharded_bytes == 0)
        fputs("\nnothing is divided\n", out);
    else if (isinf(summary->imbalance))
        fputs("\nimbalance: a rank of rate 0 has shards\n", out);
    else
        fprintf(out, "\nimbalance %.4f: the busiest rank has %.2f %% more %s than the mean\n",
                summary->imbalance, 100 * (summary->imbalance - 1), measure);
}

void plan_print(FILE *out, const tsr_shard_plan *plan, const char *path, const char *format)
{
    tsr_shard_summary summary;
    tsr_shard_plan_summary(plan, &summary);
    print_head(out, plan, &summary, path, format);
    print_ranks(out, plan, &summary);
    print_balance(out, plan, &summary);
}
