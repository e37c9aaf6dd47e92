#include "bench/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/document.h"
#include "bench/format.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/table.h"

static double threshold = 5;
static bool show_all;

static const cli_option options[] = {
    {"threshold", "PERCENT", "how much slower counts, beyond the spread (default 5)",
     .real = &threshold, .low = 0, .high = 1000},
    {"all", NULL, "also list what did not change", .flag = &show_all},
    {0},
};

typedef enum verdict { SAME, SLOWER, FASTER } verdict;

typedef struct counts {
    int compared, slower, faster, ceilings_changed, only_old, only_new;
} counts;

/* The new run's device that is the old one's: of that name, or the only one there is in each, which
 * is how a driver is compared with its next version. -2: none. */
static int same_device(const bench_document *from, int device, const bench_document *to)
{
    if (device < 0)
        return -1;
    int seen = 0; /* devices of the same name keep their order */
    for (int i = 0; i < device; i++)
        seen += strcmp(from->devices[i].name, from->devices[device].name) == 0;
    for (int i = 0; i < to->device_count; i++)
        if (strcmp(to->devices[i].name, from->devices[device].name) == 0 && seen-- == 0)
            return i;
    return from->device_count == 1 && to->device_count == 1 ? 0 : -2;
}

static const bench_figures *find(const bench_document *in, int device, const bench_figures *like)
{
    for (int i = 0; i < in->result_count; i++) {
        const bench_figures *one = &in->results[i];
        if (one->device == device && one->is_ceiling == like->is_ceiling &&
            strcmp(one->benchmark, like->benchmark) == 0 && strcmp(one->unit, like->unit) == 0 &&
            json_equal(one->which, like->which))
            return one;
    }
    return NULL;
}

/* How many times as long it takes now. */
static double slowdown(const bench_figures *old, const bench_figures *new)
{
    double was = old->is_time ? old->median : new->median;
    double is = old->is_time ? new->median : old->median;
    return was > 0 ? is / was : is > 0 ? INFINITY : 1;
}

/* Changed is what lies beyond the threshold, and whose middle 80 % lie beyond the other's. */
static verdict judge(const bench_figures *old, const bench_figures *new)
{
    double ratio = slowdown(old, new), limit = 1 + threshold / 100;
    bool apart = old->low > new->high || new->low > old->high;
    if (!apart)
        return SAME;
    return ratio > limit ? SLOWER : ratio < 1 / limit ? FASTER : SAME;
}

static void add_row(cli_table *table, const char *device, const bench_figures *old,
                    const bench_figures *new, verdict what)
{
    char text[BENCH_VALUE_TEXT], low[BENCH_VALUE_TEXT], high[BENCH_VALUE_TEXT];
    const bench_figures *both[] = {old, new};
    double ratio = slowdown(old, new);
    cli_table_cell(table, "%s", what == SLOWER ? "SLOWER" : what == FASTER ? "faster" : "");
    cli_table_cell(table, "%s", device);
    cli_table_cell(table, "%s%s", old->benchmark, old->is_ceiling ? " (ceiling)" : "");
    cli_table_cell(table, "%s", old->label);
    for (int i = 0; i < 2; i++) {
        cli_table_cell(table, "%s", bench_figures_text(both[i], both[i]->median, text));
        cli_table_cell(table, "%s – %s", bench_figures_text(both[i], both[i]->low, low),
                       bench_figures_text(both[i], both[i]->high, high));
    }
    cli_table_cell(table, "%+.1f %%", 100 * fmin(ratio - 1, 1e6));
}

static cli_table *create_table(void)
{
    cli_table *table = cli_table_create();
    cli_table_column(table, "", 0);
    cli_table_column(table, "device", 0);
    cli_table_column(table, "benchmark", 0);
    cli_table_column(table, "case", 0);
    cli_table_column(table, "old", 1);
    cli_table_column(table, "p10 – p90", 1);
    cli_table_column(table, "new", 1);
    cli_table_column(table, "p10 – p90", 1);
    cli_table_column(table, "time", 1);
    return table;
}

static int rows_of_table(const bench_document *old, const bench_document *new, cli_table *table,
                         counts *seen)
{
    int rows = 0;
    for (int i = 0; i < old->result_count; i++) {
        const bench_figures *was = &old->results[i];
        const bench_figures *is = find(new, same_device(old, was->device, new), was);
        if (is == NULL) {
            seen->only_old++;
            continue;
        }
        verdict what = judge(was, is);
        /* A slower ceiling is another machine, or another state of it. */
        seen->compared += !was->is_ceiling;
        seen->slower += !was->is_ceiling && what == SLOWER;
        seen->faster += !was->is_ceiling && what == FASTER;
        seen->ceilings_changed += was->is_ceiling && what != SAME;
        if (what == SAME && !show_all)
            continue;
        add_row(table, was->device >= 0 ? old->devices[was->device].name : "host", was, is, what);
        rows++;
    }
    for (int i = 0; i < new->result_count; i++) {
        const bench_figures *is = &new->results[i];
        seen->only_new += find(old, same_device(new, is->device, old), is) == NULL;
    }
    return rows;
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
        int other = same_device(old, i, new);
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

static int compare(const bench_document *old, const bench_document *new)
{
    counts seen = {0};
    cli_table *table = create_table();
    describe("old", old);
    describe("new", new);
    warn_about_setting(old, new);
    puts("");
    int rows = rows_of_table(old, new, table, &seen);
    if (rows > 0) {
        cli_table_print(table, stdout, 0);
        puts("");
    }
    cli_table_destroy(&table);
    int failures = new_failures(new);
    printf("%d compared: %d slower, %d faster, %d the same within %g %% or the spread\n",
           seen.compared, seen.slower, seen.faster, seen.compared - seen.slower - seen.faster,
           threshold);
    if (seen.ceilings_changed > 0)
        printf("%d ceilings changed: the machine is not in the state it was in\n",
               seen.ceilings_changed);
    if (seen.only_old > 0 || seen.only_new > 0)
        printf("only in the old run: %d; only in the new one: %d\n", seen.only_old, seen.only_new);
    return seen.slower > 0 || failures > 0 ? BENCH_SLOWER : CLI_DONE;
}

int bench_compare_run(int argc, char **argv)
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
        return cli_failed("bench compare: %s", problem);
    if (!bench_document_read(paths[1], &new, problem)) {
        bench_document_free(&old);
        return cli_failed("bench compare: %s", problem);
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
