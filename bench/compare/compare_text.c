/* Writes a comparison as text, Markdown and CSV. */
#include "bench/compare/print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/lib/numbers.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/lib/text.h"

/* Writes a value: "31.3 GFLOP/s", or "47.1 %" if it is a part of a ceiling. */
static char *value_text(const bench_pair *pair, double value, char text[BENCH_VALUE_TEXT])
{
    char number[CLI_NUMBER_TEXT];
    if (pair->of == NULL)
        return bench_figures_text(pair->old, value, text);
    snprintf(text, BENCH_VALUE_TEXT, "%s %%", cli_number(100 * value, number));
    return text;
}

static const char *const verdicts[] = {[BENCH_NO_CHANGE] = "",
                                       [BENCH_NOT_DECIDED] = "not decided",
                                       [BENCH_GOT_SLOWER] = "SLOWER",
                                       [BENCH_GOT_FASTER] = "faster"};

static void add_terms(cli_table *table, const bench_pair *pair)
{
    if (pair->of != NULL)
        cli_table_cell(table, "part of %s", pair->of);
    else if (pair->above_ceiling)
        cli_table_cell(table, "value: above %s", pair->old->ceiling);
    else
        cli_table_cell(table, "value");
}

static void add_row(cli_table *table, const char *device, const bench_pair *pair,
                    bench_verdict what, bool of_ceiling)
{
    char text[BENCH_VALUE_TEXT], low[BENCH_VALUE_TEXT], high[BENCH_VALUE_TEXT];
    const bench_range *both[] = {&pair->was, &pair->is};
    cli_table_cell(table, "%s", verdicts[what]);
    cli_table_cell(table, "%s", device);
    cli_table_cell(table, "%s%s", pair->old->benchmark, pair->old->is_ceiling ? " (ceiling)" : "");
    cli_table_cell(table, "%s", pair->old->label);
    if (of_ceiling)
        add_terms(table, pair);
    for (int i = 0; i < 2; i++) {
        cli_table_cell(table, "%s", value_text(pair, both[i]->median, text));
        cli_table_cell(table, "%s – %s", value_text(pair, both[i]->low, low),
                       value_text(pair, both[i]->high, high));
    }
    cli_table_cell(table, "%+.1f %%", 100 * fmin(bench_pair_slowdown(pair) - 1, 1e6));
}

static cli_table *create_table(bool of_ceiling, bool several_runs)
{
    const char *range = several_runs ? "range" : "p10 – p90";
    cli_table *table = cli_table_create();
    cli_table_column(table, "", CLI_LEFT);
    cli_table_column(table, "device", CLI_LEFT);
    cli_table_column(table, "benchmark", CLI_LEFT);
    cli_table_column(table, "case", CLI_LEFT);
    if (of_ceiling)
        cli_table_column(table, "compared", CLI_LEFT);
    cli_table_column(table, "old", CLI_RIGHT);
    cli_table_column(table, range, CLI_RIGHT | CLI_OPTIONAL);
    cli_table_column(table, "new", CLI_RIGHT);
    cli_table_column(table, range, CLI_RIGHT | CLI_OPTIONAL);
    cli_table_column(table, "time", CLI_RIGHT);
    return table;
}

static bool has_changed(bench_verdict what)
{
    return what == BENCH_GOT_SLOWER || what == BENCH_GOT_FASTER;
}

/* Returns true if a pair with this verdict is listed: if it has changed or may have changed.
 * Ceilings that may have changed are not listed. */
static bool is_news(const bench_pair *pair, bench_verdict what)
{
    return has_changed(what) || (what == BENCH_NOT_DECIDED && !pair->old->is_ceiling);
}

static const char *device_name(const bench_pair *pair)
{
    return pair->old->device >= 0 ? pair->old_run->devices[pair->old->device].name : "host";
}

/* Returns a table of the results whose verdict is listed (is_news), or of all results; NULL if it
 * would be empty. */
static cli_table *table_of(const bench_comparison *all)
{
    int rows = 0;
    cli_table *table =
        create_table(all->how->of_ceiling, all->old->count > 1 || all->new->count > 1);
    for (int i = 0; i < all->count; i++) {
        const bench_pair *pair = &all->pairs[i];
        bench_verdict what = bench_pair_judge(pair, all->how->threshold);
        if (!all->how->show_all && !is_news(pair, what))
            continue;
        add_row(table, device_name(pair), pair, what, all->how->of_ceiling);
        rows++;
    }
    if (rows == 0)
        cli_table_destroy(&table);
    return table;
}

static void print_rows(const bench_comparison *all)
{
    cli_table *table = table_of(all);
    if (table == NULL)
        return;
    cli_table_print(table, stdout, 0);
    puts("");
    cli_table_destroy(&table);
}

static bool is_among(const bench_pair *pair, bool above)
{
    return pair->of == NULL && !pair->old->is_ceiling && pair->above_ceiling == above;
}

/* Prints how many results were compared by their absolute values, the names of their benchmarks,
 * and why. */
static void print_others(const bench_pair *pairs, int count, bool above, const char *why)
{
    int others = 0;
    for (int i = 0; i < count; i++)
        others += is_among(&pairs[i], above);
    if (others == 0)
        return;
    cli_print(stdout, ";\n%d by value, %s:", others, why);
    const char *between = " ";
    for (int i = 0; i < count; i++) {
        bool wanted = is_among(&pairs[i], above);
        for (int j = 0; j < i && wanted; j++)
            wanted = !is_among(&pairs[j], above) ||
                     strcmp(pairs[j].old->benchmark, pairs[i].old->benchmark) != 0;
        if (!wanted)
            continue;
        cli_print(stdout, "%s%s", between, pairs[i].old->benchmark);
        between = ", ";
    }
}

static void print_terms(const bench_pair *pairs, int count, int parts)
{
    cli_print(stdout,
              "%d of them as parts of the ceilings measured in the same run, including the "
              "spread of the ceilings",
              parts);
    print_others(pairs, count, false, "without the same ceiling in both runs");
    print_others(pairs, count, true,
                 "above their ceiling in one of the runs, because of caches or because the "
                 "ceiling was measured in a slower moment");
    puts("");
}

static void print_sum(FILE *out, const bench_compare_counts *seen, double threshold)
{
    cli_print(out, "%d compared: %d slower, %d faster, %d the same within %g %%\n", seen->compared,
              seen->slower, seen->faster, seen->same, threshold);
    if (seen->not_decided > 0)
        cli_print(out, "%d not decided: changed by more than %g %%, but within the spread\n",
                  seen->not_decided, threshold);
}

static void describe(const char *which, const bench_document *run)
{
    char path[4096]; /* printed from a copy, because a path may contain control characters */
    snprintf(path, sizeof path, "%s", run->path);
    cli_print(stdout, "%s  %s: %s, %s, tessera %s\n", which, cli_text_mend(path), run->time,
              run->cpu, run->tessera);
    const json_t *warning;
    size_t i;
    json_array_foreach(run->warnings, i, warning)
        cli_print(stdout, "     warning: %s\n", json_string_value(warning));
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static void warn_about_device(const bench_device_figures *was, const bench_device_figures *is)
{
    if (!same_text(was->name, is->name))
        cli_print(stdout, "note: %s is called %s in the new run\n", was->name, is->name);
    if (!same_text(bench_driver_text(was), bench_driver_text(is)))
        cli_print(stdout, "note: %s: the driver changed from %s to %s\n", was->name,
                  bench_driver_text(was), bench_driver_text(is));
}

/* Notes differences between the runs that may explain changes. */
static void warn_about_setting(const bench_document *old, const bench_document *new)
{
    if (!same_text(old->cpu, new->cpu) || old->cpus != new->cpus)
        puts("note: the runs are from different hosts");
    for (int i = 0; i < old->device_count; i++) {
        int other = bench_same_device(old, i, new);
        if (other >= 0)
            warn_about_device(&old->devices[i], &new->devices[other]);
        else
            cli_print(stdout, "note: %s is not in the new run\n", old->devices[i].name);
    }
}

static void print_failures(FILE *out, const bench_document *new)
{
    const json_t *failure;
    size_t i;
    json_array_foreach(new->failures, i, failure)
        cli_print(out, "FAILED in the new run: %s: %s\n",
                  json_string_value(json_object_get(failure, "benchmark")),
                  json_string_value(json_object_get(failure, "text")));
}

static void print_missing(FILE *out, const bench_missing *missing, int count)
{
    for (int i = 0; i < count; i++)
        cli_print(out, "MISSING in the new run: %s on %s\n", missing[i].benchmark,
                  missing[i].device >= 0 ? missing[i].run->devices[missing[i].device].name
                                         : "the host");
}

void bench_compare_text(const bench_comparison *all)
{
    const bench_runs *old = all->old, *new = all->new;
    const bench_compare_counts *seen = all->seen;
    for (int i = 0; i < old->count; i++)
        describe("old", &old->all[i]);
    for (int i = 0; i < new->count; i++)
        describe("new", &new->all[i]);
    for (int i = 0; i < new->count; i++)
        warn_about_setting(&old->all[0], &new->all[i]);
    puts("");
    print_rows(all);
    for (int i = 0; i < new->count; i++)
        print_failures(stdout, &new->all[i]);
    print_missing(stdout, all->missing, seen->missing);
    print_sum(stdout, seen, all->how->threshold);
    if (all->how->of_ceiling)
        print_terms(all->pairs, all->count, seen->parts);
    if (seen->ceilings_changed > 0)
        cli_print(stdout, "%d ceiling%s changed: the machine is in another state\n",
                  seen->ceilings_changed, seen->ceilings_changed == 1 ? "" : "s");
    if (seen->only_old > 0 || seen->only_new > 0)
        cli_print(stdout, "only in the old run: %d; only in the new run: %d\n", seen->only_old,
                  seen->only_new);
}

void bench_compare_markdown(const bench_comparison *all, FILE *out)
{
    cli_table *table = table_of(all);
    if (table != NULL) {
        cli_table_markdown(table, out);
        fputc('\n', out);
    }
    cli_table_destroy(&table);
    for (int i = 0; i < all->new->count; i++)
        print_failures(out, &all->new->all[i]);
    print_missing(out, all->missing, all->seen->missing);
    print_sum(out, all->seen, all->how->threshold);
}

static void add_csv_row(cli_table *table, const bench_pair *pair, double threshold)
{
    const bench_figures *one = pair->old;
    const bench_range *both[] = {&pair->was, &pair->is};
    cli_table_cell(table, "%s", bench_verdict_name(bench_pair_judge(pair, threshold)));
    cli_table_cell(table, "%s", one->device >= 0 ? device_name(pair) : "");
    cli_table_cell(table, "%s", one->benchmark);
    cli_table_cell(table, "%d", one->is_ceiling);
    cli_table_cell(table, "%s", one->label);
    cli_table_cell(table, "%s", pair->of != NULL ? "fraction" : one->unit);
    cli_table_cell(table, "%s", pair->of != NULL ? pair->of : "");
    for (int i = 0; i < 2; i++) {
        cli_table_cell(table, "%.9g", both[i]->median);
        cli_table_cell(table, "%.9g", both[i]->low);
        cli_table_cell(table, "%.9g", both[i]->high);
    }
    cli_table_cell(table, "%.9g", fmin(bench_pair_slowdown(pair), 1e300));
}

void bench_compare_csv(const bench_comparison *all, FILE *out)
{
    static const char *const headings[] = {
        "verdict", "device",  "benchmark", "is_ceiling", "case",    "unit",     "part_of",
        "old",     "old_low", "old_high",  "new",        "new_low", "new_high", "slowdown"};
    cli_table *table = cli_table_create();
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        cli_table_column(table, headings[i], CLI_LEFT);
    for (int i = 0; i < all->count; i++)
        add_csv_row(table, &all->pairs[i], all->how->threshold);
    cli_table_csv(table, out);
    cli_table_destroy(&table);
}
