#include "bench/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare_pairs.h"
#include "bench/format.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/table.h"

static double threshold = 5;
static bool show_all, of_ceiling;

static const cli_option options[] = {
    {"threshold", "PERCENT", "how much slower counts, beyond the spread (default 5)",
     .real = &threshold, .low = 0, .high = 1000},
    {"of-ceiling", NULL, "compare each figure as a part of the ceiling measured in the same run",
     .flag = &of_ceiling},
    {"all", NULL, "also list what did not change", .flag = &show_all},
    {0},
};

typedef struct counts {
    int compared, slower, faster, parts, ceilings_changed, only_old, only_new;
} counts;

/* "31.3 GFLOP/s", or of a part "47.1 %". */
static char *value_text(const bench_pair *pair, double value, char text[BENCH_VALUE_TEXT])
{
    char number[BENCH_NUMBER];
    if (pair->of == NULL)
        return bench_figures_text(pair->old, value, text);
    snprintf(text, BENCH_VALUE_TEXT, "%s %%", bench_number(100 * value, number));
    return text;
}

static void add_row(cli_table *table, const char *device, const bench_pair *pair,
                    bench_verdict what)
{
    char text[BENCH_VALUE_TEXT], low[BENCH_VALUE_TEXT], high[BENCH_VALUE_TEXT];
    const bench_range *both[] = {&pair->was, &pair->is};
    cli_table_cell(table, "%s",
                   what == BENCH_GOT_SLOWER   ? "SLOWER"
                   : what == BENCH_GOT_FASTER ? "faster"
                                              : "");
    cli_table_cell(table, "%s", device);
    cli_table_cell(table, "%s%s", pair->old->benchmark, pair->old->is_ceiling ? " (ceiling)" : "");
    cli_table_cell(table, "%s", pair->old->label);
    if (of_ceiling)
        cli_table_cell(table, "%s%s", pair->of != NULL ? "part of " : "as it is",
                       pair->of != NULL ? pair->of : "");
    for (int i = 0; i < 2; i++) {
        cli_table_cell(table, "%s", value_text(pair, both[i]->median, text));
        cli_table_cell(table, "%s – %s", value_text(pair, both[i]->low, low),
                       value_text(pair, both[i]->high, high));
    }
    cli_table_cell(table, "%+.1f %%", 100 * fmin(bench_pair_slowdown(pair) - 1, 1e6));
}

static cli_table *create_table(void)
{
    cli_table *table = cli_table_create();
    cli_table_column(table, "", 0);
    cli_table_column(table, "device", 0);
    cli_table_column(table, "benchmark", 0);
    cli_table_column(table, "case", 0);
    if (of_ceiling)
        cli_table_column(table, "compared", 0);
    cli_table_column(table, "old", 1);
    cli_table_column(table, "p10 – p90", 1);
    cli_table_column(table, "new", 1);
    cli_table_column(table, "p10 – p90", 1);
    cli_table_column(table, "time", 1);
    return table;
}

static void print_rows(const bench_document *old, const bench_pair *pairs, int count)
{
    int rows = 0;
    cli_table *table = create_table();
    for (int i = 0; i < count; i++) {
        int device = pairs[i].old->device;
        bench_verdict what = bench_pair_judge(&pairs[i], threshold);
        if (what == BENCH_NO_CHANGE && !show_all)
            continue;
        add_row(table, device >= 0 ? old->devices[device].name : "host", &pairs[i], what);
        rows++;
    }
    if (rows > 0) {
        cli_table_print(table, stdout, 0);
        puts("");
    }
    cli_table_destroy(&table);
}

static counts count_changes(const bench_document *old, const bench_document *new,
                            const bench_pair *pairs, int count)
{
    counts seen = {.only_old = old->result_count - count};
    for (int i = 0; i < count; i++) {
        bench_verdict what = bench_pair_judge(&pairs[i], threshold);
        /* A slower ceiling is another machine, or another state of it. */
        if (pairs[i].old->is_ceiling) {
            seen.ceilings_changed += what != BENCH_NO_CHANGE;
            continue;
        }
        seen.compared++;
        seen.slower += what == BENCH_GOT_SLOWER;
        seen.faster += what == BENCH_GOT_FASTER;
        seen.parts += pairs[i].of != NULL;
    }
    bench_pair *back;
    seen.only_new = new->result_count - bench_pairs(new, old, false, &back);
    free(back);
    return seen;
}

/* Each benchmark once, that has figures which were not compared as parts. */
static void print_names_of_others(const bench_pair *pairs, int count)
{
    const char *between = " ";
    for (int i = 0; i < count; i++) {
        bool known = pairs[i].of != NULL || pairs[i].old->is_ceiling;
        for (int j = 0; j < i && !known; j++)
            known = pairs[j].of == NULL && !pairs[j].old->is_ceiling &&
                    strcmp(pairs[j].old->benchmark, pairs[i].old->benchmark) == 0;
        if (known)
            continue;
        printf("%s%s", between, pairs[i].old->benchmark);
        between = ", ";
    }
}

static void print_terms(const bench_pair *pairs, int count, const counts *seen)
{
    printf("of them %d as parts of the ceilings measured in the same run, the ceilings' spread "
           "included",
           seen->parts);
    if (seen->parts < seen->compared) {
        printf(";\n%d as they are, having no ceiling, or not the same one in both runs:",
               seen->compared - seen->parts);
        print_names_of_others(pairs, count);
    }
    puts("");
}

static void describe(const char *which, const bench_document *run)
{
    printf("%s  %s: %s, %s, tessera %s\n", which, run->path, run->time, run->cpu, run->tessera);
    const json_t *warning;
    size_t i;
    json_array_foreach(run->warnings, i, warning)
        printf("     warning: %s\n", json_string_value(warning));
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* What may explain a difference better than the program does. */
static void warn_about_setting(const bench_document *old, const bench_document *new)
{
    if (!same_text(old->cpu, new->cpu) || old->cpus != new->cpus)
        puts("note: the hosts are different");
    for (int i = 0; i < old->device_count; i++) {
        int other = bench_same_device(old, i, new);
        if (other >= 0 && !same_text(old->devices[i].driver_info, new->devices[other].driver_info))
            printf("note: %s: its driver was %s and is %s\n", old->devices[i].name,
                   old->devices[i].driver_info, new->devices[other].driver_info);
    }
}

static int new_failures(const bench_document *new)
{
    const json_t *failure;
    size_t i;
    json_array_foreach(new->failures, i, failure) printf(
        "FAILED in the new run: %s: %s\n", json_string_value(json_object_get(failure, "benchmark")),
        json_string_value(json_object_get(failure, "text")));
    return (int)json_array_size(new->failures);
}

static int print_comparison(const bench_document *old, const bench_document *new,
                            const bench_pair *pairs, int count)
{
    counts seen = count_changes(old, new, pairs, count);
    describe("old", old);
    describe("new", new);
    warn_about_setting(old, new);
    puts("");
    print_rows(old, pairs, count);
    int failures = new_failures(new);
    printf("%d compared: %d slower, %d faster, %d the same within %g %% or the spread\n",
           seen.compared, seen.slower, seen.faster, seen.compared - seen.slower - seen.faster,
           threshold);
    if (of_ceiling)
        print_terms(pairs, count, &seen);
    if (seen.ceilings_changed > 0)
        printf("%d ceilings changed: the machine is not in the state it was in\n",
               seen.ceilings_changed);
    if (seen.only_old > 0 || seen.only_new > 0)
        printf("only in the old run: %d; only in the new one: %d\n", seen.only_old, seen.only_new);
    return seen.slower > 0 || failures > 0 ? BENCH_SLOWER : CLI_DONE;
}

static bool has_ceilings(const bench_document *run)
{
    for (int i = 0; i < run->result_count; i++)
        if (run->results[i].ceiling != NULL)
            return true;
    return false;
}

/* Without a single part of a ceiling, passing would be mistaken for what was asked for. */
static int check_parts(const bench_document *old, const bench_document *new,
                       const bench_pair *pairs, int count)
{
    for (int i = 0; i < count; i++)
        if (pairs[i].of != NULL)
            return CLI_DONE;
    const bench_document *without = !has_ceilings(old) ? old : !has_ceilings(new) ? new : NULL;
    if (without != NULL)
        return cli_failed("bench compare: --of-ceiling: no figure of %s has a ceiling",
                          without->path);
    return cli_failed("bench compare: --of-ceiling: no figure that both runs have has the same "
                      "ceiling in both");
}

static bool only_has_ceilings(const bench_document *run)
{
    for (int i = 0; i < run->result_count; i++)
        if (!run->results[i].is_ceiling)
            return false;
    return true;
}

/* Two runs with nothing in common would pass every gate. Ceilings alone are no comparison, unless
 * they are what was measured; and what failed in the new run is there to be told. */
static int check_pairs(const bench_document *old, const bench_document *new,
                       const bench_pair *pairs, int count)
{
    const bool ceilings_count = only_has_ceilings(old) && only_has_ceilings(new);
    for (int i = 0; i < count; i++)
        if (ceilings_count || !pairs[i].old->is_ceiling)
            return CLI_DONE;
    if (json_array_size(new->failures) > 0)
        return CLI_DONE;
    return cli_failed("bench compare: there is nothing to compare: no figure is in both %s and %s",
                      old->path, new->path);
}

static int compare(const bench_document *old, const bench_document *new)
{
    bench_pair *pairs;
    int count = bench_pairs(old, new, of_ceiling, &pairs);
    int code =
        of_ceiling ? check_parts(old, new, pairs, count) : check_pairs(old, new, pairs, count);
    if (code == CLI_DONE)
        code = print_comparison(old, new, pairs, count);
    free(pairs);
    return code;
}

static void help(FILE *out)
{
    fputs("Lists what became slower or faster from the first file to the second, both of 'tessera "
          "bench -o FILE': what\n"
          "changed by more than --threshold per cent of the median, and by more than the spread "
          "within the runs. The exit\n"
          "status is 3 when something became slower, or failed in the new run, and 1 when the runs "
          "have nothing in common.\n",
          out);
    cli_options_help(out, options);
}

static int run(int argc, char **argv)
{
    const char *paths[2];
    int count;
    char problem[BENCH_PROBLEM];
    bench_document old, new;
    int code = cli_options_read("bench compare", options, argc, argv, 2, paths, &count);
    if (code != CLI_DONE)
        return code;
    if (count != 2)
        return cli_usage_error("bench compare: takes two files: the old run's and the new one's");
    if (!bench_document_read(paths[0], &old, problem))
        return cli_usage_error("bench compare: %s", problem);
    if (!bench_document_read(paths[1], &new, problem)) {
        bench_document_free(&old);
        return cli_usage_error("bench compare: %s", problem);
    }
    if (new.result_count == 0 || old.result_count == 0)
        code = cli_failed("bench compare: there is nothing to compare: %s has no results",
                          old.result_count == 0 ? old.path : new.path);
    else
        code = compare(&old, &new);
    bench_document_free(&old);
    bench_document_free(&new);
    return code;
}

const cli_command bench_compare_command = {
    .name = "bench compare",
    .usage = "OLD NEW [options]",
    .summary = "what became slower",
    .run = run,
    .help = help,
};
