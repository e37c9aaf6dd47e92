/* Tests tessera bench compare --of-ceiling, which compares results as fractions of their
 * ceilings (the limits that were measured on the same machine). If the machine's speed changes,
 * the ceilings change, too, and no result counts as changed. If one kernel changes, its result
 * does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/made_run.h"
#include "cli/tool.h"
#include "support/check_main.h"

enum { PRODUCT, COPY, PEAK, MEMORY };

static const char mode[] = " --of-ceiling";

static void limit(json_t *run, size_t which, size_t ceiling, const char *name, double fraction)
{
    json_object_set_new(made_result(run, which), "ceiling",
                        json_pack("{s:i, s:s, s:f}", "result", (int)ceiling, "benchmark", name,
                                  "fraction", fraction));
}

/* Returns a run with a product of 100 GFLOP/s and an arithmetic ceiling of 200, and with a copy
 * of 20 GB/s and a memory ceiling of 40. Percentiles are 5 % to each side, so both results are
 * 50 % (46.6 to 53.7) of their ceilings. */
static json_t *limited_run(void)
{
    json_t *run = made_run(), *results = json_object_get(run, "results");
    json_array_remove(results, 5);
    json_array_remove(results, 2);
    limit(run, PRODUCT, PEAK, "fma_peak", 0.5);
    limit(run, COPY, MEMORY, "memcpy", 0.5);
    return run;
}

/* Multiplies a result and its range by a factor. */
static void scale(json_t *run, size_t which, double factor)
{
    const json_t *value = tool_member(made_result(run, which), "value");
    double low = tool_number(value, "low"), high = tool_number(value, "high");
    made_set(run, which, factor * tool_number(value, "median"), factor * low, factor * high);
}

/* Multiplies by a factor the fraction of its ceiling that a result reaches. */
static void scale_part(json_t *run, size_t which, double factor)
{
    json_t *ceiling = json_object_get(made_result(run, which), "ceiling");
    json_object_set_new(ceiling, "fraction", json_real(factor * tool_number(ceiling, "fraction")));
}

typedef struct files {
    char paths[2][MADE_PATH];
} files;

static tool_result compare(json_t *old, json_t *new_run, const char *options, files *out)
{
    char arguments[256];
    made_write(old, out->paths[0]);
    made_write(new_run, out->paths[1]);
    snprintf(arguments, sizeof arguments, "bench compare %s %s%s", out->paths[0], out->paths[1],
             options);
    tool_result result = tool_run(arguments);
    remove(out->paths[0]);
    remove(out->paths[1]);
    return result;
}

static void answers(json_t *old, json_t *new_run, const char *options, int code, const char *words)
{
    files used;
    tool_result result = compare(old, new_run, options, &used);
    ck_assert_msg(result.exit_code == code && strstr(result.out, words) != NULL,
                  "exit code %d, not %d; no '%s' in: %s%s", result.exit_code, code, words,
                  result.out, result.err);
    tool_result_free(&result);
}

static void fails(int code, json_t *old, json_t *new_run, int which, const char *before,
                  const char *after)
{
    char want[512];
    files used;
    tool_result result = compare(old, new_run, mode, &used);
    snprintf(want, sizeof want, "tessera: bench compare: %s%s%s\n", before,
             which >= 0 ? used.paths[which] : "", after);
    ck_assert_str_eq(result.err, want);
    ck_assert_str_eq(result.out, "");
    ck_assert_int_eq(result.exit_code, code);
    tool_result_free(&result);
}

/* Factors for the speeds of the product, its ceiling, the copy and its ceiling, and the verdicts
 * without and with the option. */
static const struct {
    const char *what;
    double product, peak, copy, memory;
    int plain_code;
    const char *plain;
    int code;
    const char *says;
} machines[] = {
    {"the same", 1, 1, 1, 1, 0, "0 slower, 0 faster", 0, "0 slower, 0 faster"},
    {"all of it slower", 0.7, 0.7, 0.7, 0.7, 3, "2 slower, 0 faster", 0, "0 slower, 0 faster"},
    {"all of it faster", 1.4, 1.4, 1.4, 1.4, 0, "0 slower, 2 faster", 0, "0 slower, 0 faster"},
    {"a kernel slower", 0.7, 1, 1, 1, 3, "1 slower, 0 faster", 3, "1 slower, 0 faster"},
    {"a kernel faster", 1.4, 1, 1, 1, 0, "0 slower, 1 faster", 0, "0 slower, 1 faster"},
    {"slower on a slower one", 0.49, 0.7, 0.7, 0.7, 3, "2 slower", 3, "1 slower, 0 faster"},
    {"slower, a faster one hides it", 1, 1.4, 1.4, 1.4, 0, "0 slower, 1 faster", 3, "1 slower"},
    {"its memory alone slower", 1, 1, 0.7, 0.7, 3, "1 slower", 0, "0 slower, 0 faster"},
};

START_TEST(the_speed_of_the_machine_is_no_change)
{
    const double factors[] = {machines[_i].product, machines[_i].copy, machines[_i].peak,
                              machines[_i].memory};
    json_t *run = limited_run();
    for (size_t which = PRODUCT; which <= MEMORY; which++)
        scale(run, which, factors[which]);
    scale_part(run, PRODUCT, machines[_i].product / machines[_i].peak);
    scale_part(run, COPY, machines[_i].copy / machines[_i].memory);
    answers(limited_run(), json_deep_copy(run), "", machines[_i].plain_code, machines[_i].plain);
    answers(limited_run(), run, mode, machines[_i].code, machines[_i].says);
}
END_TEST

/* The ranges in the output were computed by hand: 50 % times e to the power of ±√(ln²(100/95) +
 * ln²(105/100)). */
START_TEST(prints_everything)
{
    char want[2048];
    files used;
    json_t *run = limited_run();
    scale(run, PRODUCT, 0.7);
    scale_part(run, PRODUCT, 0.7);
    scale(run, MEMORY, 0.5);
    scale_part(run, COPY, 2);
    tool_result result = compare(limited_run(), run, mode, &used);
    snprintf(
        want, sizeof want,
        "old  %s: 2026-01-02T03:04:05Z, Made CPU, tessera 0.1.0\n     warning: the machine was "
        "busy\nnew  %s: 2026-01-02T03:04:05Z, Made CPU, tessera 0.1.0\n     warning: the machine "
        "was busy\n\n        device    benchmark         case               compared               "
        " old              p10 – p90        new              p10 – p90      time\nSLOWER  Made GPU "
        " matmul            f32 64×65×66       part of fma_peak     50.0 %%        46.6 %% – 53.7 "
        "%%     35.0 %%        32.6 %% – 37.6 %%   +42.9 %%\nfaster  Made GPU  copy              "
        "rows row bytes 64  part of memcpy       50.0 %%        46.6 %% – 53.7 %%      100 %%      "
        "   93.2 %% – 107 %%   -50.0 %%\nSLOWER  host      memcpy (ceiling)  threads 2          "
        "value             40.0 GB/s  38.0 GB/s – 42.0 GB/s  20.0 GB/s  19.0 GB/s – 21.0 GB/s  "
        "+100.0 "
        "%%\n\n2 compared: 1 slower, 1 faster, 0 the same within 5 %%\n2 of them as parts of the "
        "ceilings measured in the same run, including the spread of the ceilings\n1 ceiling "
        "changed: the machine is in another state\n",
        used.paths[0], used.paths[1]);
    ck_assert_str_eq(result.out, want);
    ck_assert_str_eq(result.err, "");
    ck_assert_int_eq(result.exit_code, 3);
    tool_result_free(&result);
}
END_TEST

/* The spread of the ceilings counts: a difference of 8 % between the fractions is a change if
 * the ceilings are steady, and no change if the ceiling of either run varies as much. */
START_TEST(the_spread_of_ceilings_counts)
{
    for (int unsteady = 0; unsteady < 3; unsteady++) {
        json_t *runs[] = {limited_run(), limited_run()};
        made_set(runs[0], PRODUCT, 100, 99, 101);
        made_set(runs[1], PRODUCT, 92, 91, 93);
        for (int i = 0; i < 2; i++)
            made_set(runs[i], PEAK, 200, unsteady == i + 1 ? 180 : 199,
                     unsteady == i + 1 ? 220 : 201);
        scale_part(runs[1], PRODUCT, 0.92);
        answers(json_deep_copy(runs[0]), json_deep_copy(runs[1]), "", 3, "1 slower, 0 faster");
        answers(runs[0], runs[1], mode, unsteady == 0 ? 3 : 0,
                unsteady == 0 ? "1 slower, 0 faster" : "0 slower, 0 faster");
    }
}
END_TEST

START_TEST(results_without_ceilings_are_compared_directly)
{
    static const char says[] =
        "4 compared: 1 slower, 0 faster, 3 the same within 5 %\n1 of them as parts of the ceilings "
        "measured in the same run, including the spread of the ceilings;\n3 by value, without the "
        "same ceiling in both runs: copy, launch, rng\n";
    json_t *run = made_run();
    made_set(run, 2, 80e3, 79e3, 81e3);
    answers(made_run(), json_deep_copy(run), mode, 3, says);
    answers(
        made_run(), json_deep_copy(run), mode, 3,
        "SLOWER  Made GPU  launch     round trip  value     50.0 µs  47.5 µs – 52.5 µs  80.0 µs  "
        "79.0 µs – 81.0 µs  +60.0 %\n");
    answers(made_run(), run, " --of-ceiling --all", 3, "  part of fma_peak ");
}
END_TEST

/* If the new run measured a result against another ceiling, the fractions cannot be compared, and
 * the values themselves are compared. */
START_TEST(results_with_another_ceiling_are_compared_directly)
{
    json_t *run = limited_run();
    limit(run, PRODUCT, MEMORY, "memcpy", 0.9);
    answers(limited_run(), run, mode, 0,
            "1 of them as parts of the ceilings measured in the same run, including the spread of "
            "the ceilings;\n1 by value, without the same ceiling in both runs: matmul\n");
    run = limited_run();
    json_object_set_new(json_object_get(made_result(run, PEAK), "case"), "dtype",
                        json_string("f16"));
    answers(limited_run(), run, mode, 0, "in both runs: matmul\n");
    /* The ceiling of a result is the fastest of several variants. Two runs may have different
     * variants. */
    run = limited_run();
    json_object_set_new(json_object_get(made_result(run, MEMORY), "case"), "threads",
                        json_integer(4));
    answers(limited_run(), run, mode, 0, "2 of them as parts ");
}
END_TEST

/* Results above their ceiling show that the ceiling is too low, as if the machine had been busy
 * while it was measured: in the old run, then in the new one, then in both. Compared as
 * fractions, the product would seem slower or faster. */
START_TEST(results_above_their_ceiling_are_compared_directly)
{
    for (int which = 1; which <= 3; which++) {
        json_t *runs[] = {limited_run(), limited_run()};
        for (int i = 0; i < 2; i++)
            if ((which >> i & 1) != 0) {
                scale(runs[i], PEAK, 0.4);
                scale_part(runs[i], PRODUCT, 2.5);
            }
        answers(json_deep_copy(runs[0]), json_deep_copy(runs[1]), mode, 0,
                "2 compared: 0 slower, 0 faster, 2 the same within 5 %\n1 of them as parts of the "
                "ceilings measured in the same run, including the spread of the ceilings;\n1 by "
                "value, above their ceiling in one of the runs, because of caches or because the "
                "ceiling was measured in a slower moment: matmul\n");
        answers(runs[0], runs[1], " --of-ceiling --all", 0,
                "  f32 64×65×66       value: above fma_peak  ");
    }
    json_t *run = limited_run();
    scale_part(run, PRODUCT, 2.1); /* 105 %, which can happen on a steady machine */
    answers(limited_run(), run, mode, 0, "2 of them as parts ");
    run = limited_run();
    scale_part(run, PRODUCT, 2.5);
    scale_part(run, COPY, 2.5);
    fails(1, limited_run(), run, -1,
          "--of-ceiling: all results that have the same ceiling in both runs are above it", "");
}
END_TEST

/* A file can contain spreads that no run has. */
START_TEST(any_spread_can_be_compared)
{
    json_t *run = limited_run();
    made_set(run, PRODUCT, 100, 1e-307, 1e308);
    made_set(run, PEAK, 200, 1e-307, 1e308);
    scale_part(run, PRODUCT, 0.5);
    answers(limited_run(), run, mode, 0, "2 of them as parts ");
}
END_TEST

static json_t *without_ceilings(void)
{
    json_t *run = limited_run();
    json_object_set_new(made_result(run, PRODUCT), "ceiling", json_null());
    json_object_set_new(made_result(run, COPY), "ceiling", json_null());
    return run;
}

START_TEST(runs_without_ceilings_are_refused)
{
    answers(without_ceilings(), without_ceilings(), "", 0, "2 compared: 0 slower");
    fails(1, without_ceilings(), limited_run(), 0, "--of-ceiling: no result of ", " has a ceiling");
    fails(1, limited_run(), without_ceilings(), 1, "--of-ceiling: no result of ", " has a ceiling");
    json_t *run = limited_run();
    limit(run, PRODUCT, MEMORY, "memcpy", 0.9);
    limit(run, COPY, PEAK, "fma_peak", 0.9);
    fails(1, limited_run(), run, -1, "--of-ceiling: no result has the same ceiling in both runs",
          "");
}
END_TEST

START_TEST(a_malformed_ceiling_is_refused)
{
    json_t *run = limited_run();
    limit(run, COPY, PRODUCT, "matmul", 0.9);
    fails(1, limited_run(), run, 1, "", ": results[1]: its ceiling, results[0], is not a ceiling");
    run = limited_run();
    limit(run, COPY, 4, "memcpy", 0.9);
    fails(1, run, limited_run(), 0, "", ": results[1]: \"result\" is not an index below 4");
    run = limited_run();
    limit(run, COPY, MEMORY, "memcpy", -1);
    fails(1, run, limited_run(), 0, "",
          ": results[1]: \"fraction\" is -1, not a normal number above 0");
}
END_TEST

/* Returns a run whose product reaches this fraction of its ceiling. */
static json_t *run_at(double part)
{
    json_t *run = limited_run();
    scale(run, PRODUCT, part / 0.5);
    scale_part(run, PRODUCT, part / 0.5);
    return run;
}

/* Each further run is compared by its own ceilings. A run with a result above its ceiling does not
 * count for this result. */
START_TEST(further_runs_use_their_own_ceilings)
{
    char further[2][MADE_PATH], options[256];
    made_write(run_at(0.5), further[0]);
    made_write(run_at(1.3), further[1]);
    answers(limited_run(), run_at(0.35), mode, 3, "1 slower, 0 faster");
    snprintf(options, sizeof options, "%s --new %s --new %s", mode, further[0], further[1]);
    answers(limited_run(), run_at(0.35), options, 0,
            "part of fma_peak  50.0 %  46.6 % – 53.7 %  42.5 %  32.6 % – 53.7 %");
    /* The runs above their ceiling are also left out if the first new run is one of them. */
    answers(limited_run(), run_at(1.3), mode, 0, "above their ceiling in one of the runs");
    snprintf(options, sizeof options, "%s --new %s", mode, further[0]);
    answers(limited_run(), run_at(1.3), options, 0, "0 slower, 0 faster, 2 the same");
    remove(further[0]);
    remove(further[1]);
}
END_TEST

TESTS(bench_of_ceiling)
{
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, further_runs_use_their_own_ceilings);
    tcase_add_loop_test(tests, the_speed_of_the_machine_is_no_change, 0,
                        (int)(sizeof machines / sizeof *machines));
    tcase_add_test(tests, prints_everything);
    tcase_add_test(tests, the_spread_of_ceilings_counts);
    tcase_add_test(tests, results_without_ceilings_are_compared_directly);
    tcase_add_test(tests, results_with_another_ceiling_are_compared_directly);
    tcase_add_test(tests, results_above_their_ceiling_are_compared_directly);
    tcase_add_test(tests, any_spread_can_be_compared);
    tcase_add_test(tests, runs_without_ceilings_are_refused);
    tcase_add_test(tests, a_malformed_ceiling_is_refused);
}
