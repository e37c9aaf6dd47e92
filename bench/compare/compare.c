#include "bench/compare/compare.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/compare/print.h"
#include "bench/report/destination.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/terminal.h"

static bench_compare_options chosen = {.threshold = 5};
static bench_destination destination;

/* The files with runs of one side of the comparison (old or new): all[0] is the argument of the
 * command, the `further` files after it come from options that may be repeated. */
typedef struct paths {
    int further;
    const char *all[BENCH_MAX_RUNS];
} paths;
static paths old_paths, new_paths;

static bool add_path(void *user, const char *text, char *problem, size_t size)
{
    paths *side = user;
    if (side->further == BENCH_MAX_RUNS - 1) {
        snprintf(problem, size, "can be given at most %d times", BENCH_MAX_RUNS - 1);
        return false;
    }
    side->all[++side->further] = text;
    return true;
}

static const cli_option options[] = {
    {"threshold", "PERCENT", "ignore changes up to this size (default: 5)",
     .real = &chosen.threshold, .low = 0, .high = 1000},
    {"of-ceiling", NULL, "compare results as parts of the ceilings measured in the same run",
     .flag = &chosen.of_ceiling},
    {"old", "FILE", "one more old run; may be repeated", .read = add_path, .user = &old_paths},
    {"new", "FILE", "one more new run; may be repeated", .read = add_path, .user = &new_paths},
    {"allow-missing", NULL, "succeed even if the new run lacks a benchmark or a device",
     .flag = &chosen.allow_missing},
    {"all", NULL, "also list results that did not change", .flag = &chosen.show_all},
    BENCH_DESTINATION_OPTIONS(destination),
    {0},
};

static bool has_ceilings(const bench_runs *side)
{
    for (int i = 0; i < side->count; i++)
        for (int j = 0; j < side->all[i].result_count; j++)
            if (side->all[i].results[j].ceiling != NULL)
                return true;
    return false;
}

/* Fails if --of-ceiling is given but no result can be compared as a part of its ceiling: the
 * comparison would then succeed without having compared what was asked for. */
static int check_parts(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                       int count)
{
    for (int i = 0; i < count; i++)
        if (pairs[i].of != NULL)
            return CLI_DONE;
    const bench_runs *without = !has_ceilings(old) ? old : !has_ceilings(new) ? new : NULL;
    if (without != NULL)
        return cli_failed("bench compare: --of-ceiling: no result of %s has a ceiling",
                          without->all[0].path);
    for (int i = 0; i < count; i++)
        if (pairs[i].above_ceiling)
            return cli_failed(
                "bench compare: --of-ceiling: all results that have the same ceiling in "
                "both runs are above it");
    return cli_failed("bench compare: --of-ceiling: no result has the same ceiling in both runs");
}

static bool only_has_ceilings(const bench_runs *side)
{
    for (int i = 0; i < side->count; i++)
        for (int j = 0; j < side->all[i].result_count; j++)
            if (!side->all[i].results[j].is_ceiling)
                return false;
    return true;
}

/* Refuses to compare runs that have no result in common, because such a comparison would always
 * succeed. If only ceilings are in common, the runs are refused, too, unless they have only
 * ceilings. */
static int check_pairs(const bench_runs *old, const bench_runs *new, const bench_pair *pairs,
                       int count)
{
    const bool ceilings_count = only_has_ceilings(old) && only_has_ceilings(new);
    for (int i = 0; i < count; i++)
        if (ceilings_count || !pairs[i].old->is_ceiling)
            return CLI_DONE;
    return cli_failed("bench compare: nothing to compare: %s and %s have no result in common",
                      old->all[0].path, new->all[0].path);
}

static const bench_document *without_results(const bench_runs *side)
{
    for (int i = 0; i < side->count; i++)
        if (side->all[i].result_count == 0)
            return &side->all[i];
    return NULL;
}

static bool has_failures(const bench_runs *side)
{
    for (int i = 0; i < side->count; i++)
        if (json_array_size(side->all[i].failures) > 0)
            return true;
    return false;
}

/* Checks the runs. Checks that the runs have results to compare. If a benchmark has failed in a new
 * run, the new runs need not have any, so that the failure is reported even if there is nothing to
 * compare. */
static int check(const bench_runs *old, const bench_runs *new, const bench_pair *pairs, int count)
{
    bool failed = has_failures(new);
    const bench_document *empty = without_results(old);
    if (empty == NULL && !failed)
        empty = without_results(new);
    if (empty != NULL)
        return cli_failed("bench compare: nothing to compare: %s has no results", empty->path);
    if (failed)
        return CLI_DONE;
    return chosen.of_ceiling ? check_parts(old, new, pairs, count)
                             : check_pairs(old, new, pairs, count);
}

static bench_compare_counts count_all(const bench_runs *old, const bench_runs *new,
                                      const bench_pair *pairs, int count, double threshold)
{
    bench_compare_counts seen = {.only_old = bench_distinct(old) - count};
    for (int i = 0; i < count; i++) {
        bench_verdict what = bench_pair_judge(&pairs[i], threshold);
        /* A changed ceiling does not count as a regression: the runs were made on different
         * machines, or the machine was in another state. */
        if (pairs[i].old->is_ceiling) {
            seen.ceilings_changed += what == BENCH_GOT_SLOWER || what == BENCH_GOT_FASTER;
            continue;
        }
        seen.compared++;
        seen.slower += what == BENCH_GOT_SLOWER;
        seen.faster += what == BENCH_GOT_FASTER;
        seen.same += what == BENCH_NO_CHANGE;
        seen.not_decided += what == BENCH_NOT_DECIDED;
        seen.parts += pairs[i].of != NULL;
    }
    bench_pair *back;
    seen.only_new = bench_distinct(new) - bench_pairs(new, old, false, &back);
    free(back);
    for (int i = 0; i < new->count; i++)
        seen.failures += (int)json_array_size(new->all[i].failures);
    return seen;
}

static void write_comparison(void *user, bench_format format, FILE *out)
{
    const bench_comparison *all = user;
    if (format == BENCH_AS_TEXT)
        bench_compare_text(all);
    else if (format == BENCH_AS_MARKDOWN)
        bench_compare_markdown(all, out);
    else if (format == BENCH_AS_CSV)
        bench_compare_csv(all, out);
    else
        bench_compare_json(all, out);
}

static int compare_runs(const bench_runs *old, const bench_runs *new)
{
    bench_pair *pairs;
    int count = bench_pairs(old, new, chosen.of_ceiling, &pairs);
    int code = check(old, new, pairs, count);
    if (code == CLI_DONE) {
        bench_compare_counts seen = count_all(old, new, pairs, count, chosen.threshold);
        bench_missing *missing;
        seen.missing = bench_missing_find(old, new, pairs, count, &missing);
        bench_comparison all = {.old = old,
                                .new = new,
                                .pairs = pairs,
                                .count = count,
                                .missing = missing,
                                .seen = &seen,
                                .how = &chosen};
        code = bench_destination_write("bench compare", &destination, write_comparison, &all);
        free(missing);
        if (code == CLI_DONE)
            code = seen.slower > 0 || seen.failures > 0        ? BENCH_SLOWER
                   : seen.missing > 0 && !chosen.allow_missing ? BENCH_MISSING
                                                               : CLI_DONE;
    }
    free(pairs);
    return code;
}

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Lists what became slower or faster from the old run to the new one; both are files that "
        "'tessera bench -o FILE' writes. A result has changed if its median moved by more than "
        "--threshold and by more than the spread of the samples. If it moved by more than the "
        "threshold but within the spread, it is listed as not decided.\n"
        "\n"
        "--old and --new add further runs of each side. The median of all runs then counts, and "
        "the "
        "spread of all samples; with five or more runs on each side, the spread of the runs' "
        "medians, "
        "which decides more.\n"
        "\nexit status:\n"
        "  0  nothing became slower\n"
        "  1  the runs have nothing in common\n"
        "  3  something became slower, or failed in a new run\n"
        "  4  the new run lacks a benchmark, or a device, of the old one (0 with "
        "--allow-missing)\n");
    cli_options_help(out, options);
}

static void free_runs(bench_runs *side)
{
    for (int i = 0; i < side->count; i++)
        bench_document_free(&side->all[i]);
}

/* Returns a file that is given twice; NULL if there is none. A repeated file is not allowed,
 * because its results would seem not to vary from run to run. */
static const char *given_twice(const paths *from)
{
    for (int i = 1; i <= from->further; i++)
        for (int j = 0; j < i; j++)
            if (cli_output_is(from->all[i], from->all[j]))
                return from->all[i];
    return NULL;
}

static int read_runs(const paths *from, bench_runs *side)
{
    char problem[BENCH_PROBLEM];
    const char *again = given_twice(from);
    if (again != NULL)
        return cli_usage_error("bench compare: '%s' is given twice on one side", again);
    for (side->count = 0; side->count <= from->further; side->count++)
        if (!bench_document_read(from->all[side->count], &side->all[side->count], problem))
            return cli_failed("bench compare: %s", problem);
    return CLI_DONE;
}

static int run_compare(int argc, char **argv)
{
    const char *words[2];
    int count;
    static bench_runs old, new;
    int code = cli_options_read("bench compare", options, argc, argv, 2, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count != 2)
        return cli_usage_error("bench compare: missing files; give the old run and the new run");
    code = bench_destination_check("bench compare", &destination);
    if (code != CLI_DONE)
        return code;
    if (chosen.show_all && destination.format >= BENCH_AS_CSV)
        return cli_usage_error("bench compare: remove --all; %s always lists all results",
                               destination.format == BENCH_AS_JSON ? "--json" : "-o csv");
    old_paths.all[0] = words[0];
    new_paths.all[0] = words[1];
    code = read_runs(&old_paths, &old);
    if (code == CLI_DONE)
        code = read_runs(&new_paths, &new);
    if (code == CLI_DONE)
        code = compare_runs(&old, &new);
    free_runs(&old);
    free_runs(&new);
    return code;
}

const cli_command bench_compare_command = {
    .name = "bench compare",
    .usage = "OLD.json NEW.json [options]",
    .summary = "list what became slower",
    .run = run_compare,
    .help = help,
};
