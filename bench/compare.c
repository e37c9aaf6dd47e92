#include "bench/compare.h"

#include <stdlib.h>

#include "bench/compare_report.h"
#include "cli/options.h"

static bench_compare_options chosen = {.threshold = 5};

static const cli_option options[] = {
    {"threshold", "PERCENT", "how much slower counts, beyond the spread (default 5)",
     .real = &chosen.threshold, .low = 0, .high = 1000},
    {"of-ceiling", NULL, "compare each figure as a part of the ceiling measured in the same run",
     .flag = &chosen.of_ceiling},
    {"all", NULL, "also list what did not change", .flag = &chosen.show_all},
    {0},
};

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
    for (int i = 0; i < count; i++)
        if (pairs[i].above_ceiling)
            return cli_failed(
                "bench compare: --of-ceiling: all figures that have the same ceiling in "
                "both runs are above it");
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
 * they are what was measured. */
static int check_pairs(const bench_document *old, const bench_document *new,
                       const bench_pair *pairs, int count)
{
    const bool ceilings_count = only_has_ceilings(old) && only_has_ceilings(new);
    for (int i = 0; i < count; i++)
        if (ceilings_count || !pairs[i].old->is_ceiling)
            return CLI_DONE;
    return cli_failed("bench compare: there is nothing to compare: no figure is in both %s and %s",
                      old->path, new->path);
}

/* What failed in the new run is there to be told, though nothing else may be. */
static int check(const bench_document *old, const bench_document *new, const bench_pair *pairs,
                 int count)
{
    bool failed = json_array_size(new->failures) > 0;
    if (old->result_count == 0 || (new->result_count == 0 && !failed))
        return cli_failed("bench compare: there is nothing to compare: %s has no results",
                          old->result_count == 0 ? old->path : new->path);
    if (failed)
        return CLI_DONE;
    return chosen.of_ceiling ? check_parts(old, new, pairs, count)
                             : check_pairs(old, new, pairs, count);
}

static int compare(const bench_document *old, const bench_document *new)
{
    bench_pair *pairs;
    int count = bench_pairs(old, new, chosen.of_ceiling, &pairs);
    int code = check(old, new, pairs, count);
    if (code == CLI_DONE)
        code = bench_compare_report(old, new, pairs, count, &chosen);
    free(pairs);
    return code;
}

static void help(FILE *out)
{
    fputs("Lists what became slower or faster from the first file to the second, both of 'tessera "
          "bench -o FILE': what\n"
          "changed by more than --threshold per cent of the median, and by more than the spread "
          "within the runs; within the\n"
          "spread it is not decided. The exit status is 3 when something became slower, or failed "
          "in the new run, and 1 when\n"
          "the runs have nothing in common.\n",
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
