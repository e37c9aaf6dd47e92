/* Tests tessera bench compare: changes between the files of two runs. */
#include <stdio.h>
#include <string.h>

#include "cli/made_run.h"
#include "cli/tool.h"
#include "support/check_main.h"

static tool_result compare(json_t *old, json_t *new_run, const char *options)
{
    char paths[2][MADE_PATH], arguments[256];
    made_write(old, paths[0]);
    made_write(new_run, paths[1]);
    snprintf(arguments, sizeof arguments, "bench compare %s %s%s", paths[0], paths[1], options);
    tool_result result = tool_run(arguments);
    remove(paths[0]);
    remove(paths[1]);
    return result;
}

/* The median and the 10th and 90th percentiles of result `which` in the new run. In the old run,
 * result 0 has 100 (95 to 105) GFLOP/s, result 2 has 50 (47.5 to 52.5) µs, and result 3, a ceiling,
 * has 200 (190 to 210) GFLOP/s. */
static const struct {
    const char *what;
    size_t which;
    double median, low, high;
    const char *options;
    int exit_code;
    const char *says;
} changes[] = {
    {"nothing", 0, 100, 95, 105, "", 0, "4 compared: 0 slower, 0 faster, 4 the same"},
    {"slower, ranges apart", 0, 90, 88, 94, "", 3, "4 compared: 1 slower, 0 faster, 3 the same"},
    {"slower, ranges overlap", 0, 90, 85, 95.5, "", 0,
     "4 compared: 0 slower, 0 faster, 3 the same within 5 %\n1 not decided: changed by more than 5 "
     "%, but within the spread\n"},
    {"faster, ranges overlap", 0, 110, 104, 115, "", 0,
     "3 the same within 5 %\n1 not decided: changed by more than 5 %, but within the spread\n"},
    {"ranges overlap, threshold 20", 0, 90, 85, 95.5, " --threshold 20", 0,
     "4 compared: 0 slower, 0 faster, 4 the same within 20 %\n"},
    {"slower by less than 5 %", 0, 98, 97.9, 98, "", 0, "4 compared: 0 slower"},
    {"apart, but only by 4 %", 0, 96.5, 94, 94.9, "", 1, "does not lie between"},
    {"apart, by 8 %, threshold 10", 0, 92.5, 92, 93, " --threshold 10", 0, "4 compared: 0 slower"},
    {"apart, by 8 %, threshold 1", 0, 92.5, 92, 93, " --threshold 1", 3, "1 slower"},
    {"faster", 0, 120, 115, 125, "", 0, "0 slower, 1 faster"},
    {"a longer time", 2, 60e3, 58e3, 62e3, "", 3, "1 slower, 0 faster"},
    {"a shorter time", 2, 40e3, 38e3, 42e3, "", 0, "0 slower, 1 faster"},
    {"a ceiling", 3, 100, 99, 101, "", 0, "1 ceiling changed"},
    {"nearly stopped", 0, 1e-300, 1e-300, 1e-300, "", 3, "1 slower, 0 faster"},
    {"stopped altogether", 0, 0, 0, 0, "", 1, "\"median\" is 0, not a normal number above 0"},
};

START_TEST(judges_a_change)
{
    json_t *new_run = made_run();
    made_set(new_run, changes[_i].which, changes[_i].median, changes[_i].low, changes[_i].high);
    tool_result result = compare(made_run(), new_run, changes[_i].options);
    ck_assert_msg(result.exit_code == changes[_i].exit_code, "%s: exit code %d: %s%s",
                  changes[_i].what, result.exit_code, result.out, result.err);
    const char *where = result.exit_code == 1 ? result.err : result.out;
    ck_assert_msg(strstr(where, changes[_i].says) != NULL, "%s: %s", changes[_i].what, where);
    tool_result_free(&result);
}
END_TEST

START_TEST(shows_what_changed)
{
    json_t *new_run = made_run();
    made_set(new_run, 0, 80, 79, 81);
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_ptr_nonnull(strstr(result.out, "SLOWER  Made GPU  matmul     f32 64×65×66  "));
    ck_assert_ptr_nonnull(strstr(result.out, "+25.0 %"));
    ck_assert_ptr_null(strstr(result.out, "round trip"));
    ck_assert_ptr_null(strstr(result.out, "not decided"));
    tool_result_free(&result);
    result = compare(made_run(), made_run(), " --all");
    ck_assert_ptr_nonnull(strstr(result.out, "round trip"));
    tool_result_free(&result);
}
END_TEST

/* A run passes if the spread of its results is too large to decide whether they changed. A
 * changed ceiling is counted, but is not a failure. */
START_TEST(shows_what_is_not_decided)
{
    json_t *new_run = made_run();
    made_set(new_run, 0, 80, 70, 96);
    made_set(new_run, 3, 150, 140, 200);
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "\nnot decided  Made GPU  matmul     f32 64×65×66  "));
    ck_assert_int_eq(tool_count(result.out, "not decided"), 2);
    ck_assert_ptr_null(strstr(result.out, "ceiling"));
    tool_result_free(&result);
}
END_TEST

/* At first the new run lacks one of two cases of the matmul, which is allowed, because a slow
 * machine leaves cases out. Then it also lacks the copy. */
START_TEST(what_is_missing_is_counted)
{
    json_t *old = made_run(), *new_run = made_run();
    json_t *other = json_deep_copy(made_result(old, 0));
    json_object_set_new(json_object_get(other, "case"), "m", json_integer(65));
    json_array_append_new(json_object_get(old, "results"), other);
    tool_result result = compare(json_incref(old), new_run, "");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "only in the old run: 1; only in the new run: 0"));
    ck_assert_ptr_null(strstr(result.out, "MISSING"));
    tool_result_free(&result);

    new_run = made_run();
    json_array_remove(json_object_get(new_run, "results"), 1);
    result = compare(old, json_incref(new_run), "");
    ck_assert_int_eq(result.exit_code, 4);
    ck_assert_ptr_nonnull(strstr(result.out, "\nMISSING in the new run: copy on Made GPU\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "only in the old run: 2; only in the new run: 0"));
    tool_result_free(&result);
    result = compare(made_run(), json_incref(new_run), " --allow-missing");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "\nMISSING in the new run: copy on Made GPU\n"));
    tool_result_free(&result);

    /* If one result is missing and another is slower, the exit status must be that for slower
     * results. */
    made_set(new_run, 0, 80, 79, 81);
    result = compare(made_run(), new_run, "");
    ck_assert_int_eq(result.exit_code, 3);
    tool_result_free(&result);
}
END_TEST

/* A benchmark is missing even if the new run has it with another shape. */
START_TEST(other_cases_do_not_replace_a_missing_one)
{
    json_t *new_run = made_run();
    json_object_set_new(json_object_get(made_result(new_run, 0), "case"), "m", json_integer(65));
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_int_eq(result.exit_code, 4);
    ck_assert_ptr_nonnull(strstr(result.out, "MISSING in the new run: matmul on Made GPU\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "only in the old run: 1; only in the new run: 1"));
    tool_result_free(&result);
}
END_TEST

/* A run of `tessera bench matmul` does not miss other benchmarks or devices. */
START_TEST(a_run_of_one_benchmark_misses_no_other)
{
    json_t *old = made_run_on_twins(), *other = json_deep_copy(made_result(old, 0));
    json_object_set_new(other, "device", json_integer(1));
    json_array_append_new(json_object_get(old, "results"), other);
    json_t *new_run = made_run(), *results = json_object_get(new_run, "results");
    json_object_set_new(new_run, "benchmark", json_string("matmul"));
    json_array_remove(results, 5);
    json_array_remove(results, 2);
    json_array_remove(results, 1);
    json_object_set_new(json_object_get(made_result(new_run, 0), "ceiling"), "result",
                        json_integer(1));
    tool_result result = compare(old, new_run, "");
    ck_assert_msg(result.exit_code == 0, "%s%s", result.out, result.err);
    ck_assert_ptr_nonnull(strstr(result.out, "1 compared"));
    ck_assert_ptr_null(strstr(result.out, "MISSING"));
    tool_result_free(&result);
}
END_TEST

/* The JSON has all results, with the same verdicts and the same exit status. */
START_TEST(json_has_all_results)
{
    json_t *new_run = made_run();
    made_set(new_run, 0, 80, 79, 81);
    made_set(new_run, 2, 40e3, 30e3, 48e3);
    json_array_remove(json_object_get(new_run, "results"), 5);
    json_array_append_new(
        json_object_get(new_run, "failures"),
        json_pack("{s:s, s:n, s:s}", "benchmark", "rng", "device", "text", "wrong"));
    tool_result result = compare(made_run(), new_run, " --json");
    ck_assert_int_eq(result.exit_code, 3);
    json_t *document = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(document);
    ck_assert_str_eq(tool_text(document, "schema"), "tessera.bench.compare");
    const json_t *counts = tool_member(document, "counts");
    ck_assert_double_eq(tool_number(counts, "compared"), 3);
    ck_assert_double_eq(tool_number(counts, "slower"), 1);
    ck_assert_double_eq(tool_number(counts, "same"), 1);
    ck_assert_double_eq(tool_number(counts, "not_decided"), 1);
    ck_assert_double_eq(tool_number(counts, "only_old"), 1);
    ck_assert_double_eq(tool_number(counts, "failures"), 1);
    ck_assert_double_eq(tool_number(counts, "missing"), 1);
    const json_t *missing = json_array_get(tool_member(document, "missing"), 0);
    ck_assert(json_is_null(tool_member(missing, "device")));
    ck_assert_str_eq(tool_text(missing, "benchmark"), "rng");
    const json_t *results = tool_member(document, "results");
    ck_assert_int_eq((int)json_array_size(results), 5);
    const json_t *slower = json_array_get(results, 0), *time = json_array_get(results, 2);
    ck_assert_str_eq(tool_text(slower, "verdict"), "slower");
    ck_assert_str_eq(tool_text(slower, "device"), "Made GPU");
    ck_assert_str_eq(tool_text(slower, "unit"), "GFLOP/s");
    ck_assert_double_eq(tool_number(slower, "slowdown"), 1.25);
    ck_assert_double_eq(tool_number(tool_member(slower, "old"), "median"), 100);
    ck_assert_double_eq(tool_number(tool_member(slower, "new"), "low"), 79);
    ck_assert_double_eq(tool_number(tool_member(slower, "case"), "k"), 65);
    ck_assert_str_eq(tool_text(time, "verdict"), "not_decided");
    ck_assert_double_eq(tool_number(time, "slowdown"), 0.8);
    ck_assert(json_is_null(tool_member(json_array_get(results, 4), "device")));
    json_decref(document);
    tool_result_free(&result);
    result = compare(made_run(), made_run(), " --json --all");
    ck_assert_int_eq(result.exit_code, 2);
    ck_assert_str_eq(result.out, "");
    tool_result_free(&result);
}
END_TEST

START_TEST(tables_for_programs_and_chats)
{
    json_t *new_run = made_run();
    made_set(new_run, 0, 80, 79, 81);
    tool_result csv = compare(made_run(), new_run, " -o csv");
    ck_assert_int_eq(csv.exit_code, 3);
    static const char begin[] =
        "verdict,device,benchmark,is_ceiling,case,unit,part_of,old,old_low,old_high,new,new_low,"
        "new_high,slowdown\r\nslower,Made GPU,matmul,0,f32 64×65×66,GFLOP/s,,100,95,105,80,79,81,"
        "1.25\r\nsame,Made GPU,copy,0,";
    ck_assert_msg(strncmp(csv.out, begin, strlen(begin)) == 0, "%s", csv.out);
    ck_assert_int_eq(tool_count(csv.out, "\r\n"), 7);                    /* all results */
    ck_assert_int_eq(tool_count(csv.out, "same,,rng,0,philox,ns,,"), 1); /* a result of the host */
    tool_result_free(&csv);
    new_run = made_run();
    made_set(new_run, 0, 80, 79, 81);
    tool_result md = compare(made_run(), new_run, " -o md");
    ck_assert_int_eq(md.exit_code, 3);
    ck_assert_int_eq(tool_count(md.out, "| SLOWER | Made GPU | matmul "), 1);
    ck_assert_int_eq(tool_count(md.out, " copy "), 0); /* it did not change */
    ck_assert_int_eq(tool_count(md.out, "\n4 compared: 1 slower, 0 faster, 3 the same"), 1);
    tool_result_free(&md);
}
END_TEST

/* Compares three runs on each side. The old runs have 100, 90 and 110 GFLOP/s (85 to 115
 * together). */
static tool_result compare_more(const double medians[3], const char *options)
{
    static const double old_medians[3] = {100, 90, 110};
    char paths[6][MADE_PATH], arguments[512];
    for (int i = 0; i < 6; i++) {
        const double median = i % 2 == 0 ? old_medians[i / 2] : medians[i / 2];
        json_t *run = made_run();
        made_set(run, 0, median, median - 5, median + 5);
        made_write(run, paths[i]);
    }
    snprintf(arguments, sizeof arguments,
             "bench compare %s --old %s %s --new %s --old %s --new %s%s", paths[0], paths[2],
             paths[1], paths[3], paths[4], paths[5], options);
    tool_result result = tool_run(arguments);
    for (int i = 0; i < 6; i++)
        remove(paths[i]);
    return result;
}

static const struct {
    double medians[3];
    int exit_code;
    const char *says;
} series[] = {
    /* The first new run is slower than the first old one, but taken together the new runs are
     * not. */
    {{80, 99, 95}, 0, "95.0 GFLOP/s  75.0 GFLOP/s – 104 GFLOP/s  +5.3 %"},
    {{70, 60, 65},
     3,
     "100 GFLOP/s  85.0 GFLOP/s – 115 GFLOP/s  65.0 GFLOP/s  55.0 GFLOP/s – 75.0 "
     "GFLOP/s  +53.8 %"},
    {{130, 160, 140}, 0, "0 slower, 1 faster"},
};

START_TEST(several_runs_show_their_spread)
{
    tool_result result = compare_more(series[_i].medians, "");
    ck_assert_msg(result.exit_code == series[_i].exit_code, "exit code %d: %s%s", result.exit_code,
                  result.out, result.err);
    ck_assert_msg(strstr(result.out, series[_i].says) != NULL, "%s", result.out);
    ck_assert_int_eq(tool_count(result.out, "old  /tmp/"), 3);
    ck_assert_int_eq(tool_count(result.out, "new  /tmp/"), 3);
    tool_result_free(&result);
}
END_TEST

/* Compares up to five runs of 100 to 104 GFLOP/s with as many of 90; the percentiles of each run
 * are 20 GFLOP/s below and above its median. Fewer than five runs are not enough to decide. Five
 * runs are enough, unless the result of one new run is like the old ones. */
static const struct {
    int runs;
    double last; /* median of the last new run */
    int exit_code;
    const char *says;
} many_runs[] = {
    {1, 90, 0, "1 not decided: changed by more than"},
    {4, 90, 0, "1 not decided: changed by more than"},
    {5, 90, 3, "102 GFLOP/s  100 GFLOP/s – 104 GFLOP/s  90.0 GFLOP/s  90.0 GFLOP/s – 90.0 GFLOP/s"},
    {5, 101, 0, "1 not decided: changed by more than"},
};

START_TEST(many_runs_are_compared_by_their_medians)
{
    enum { MAX = 5 };
    const int runs = many_runs[_i].runs;
    char paths[2 * MAX][MADE_PATH], arguments[1024];
    int length = snprintf(arguments, sizeof arguments, "bench compare");
    for (int i = 0; i < 2 * runs; i++) {
        const int is_new = i % 2;
        double median = is_new ? 90 : 100 + i / 2;
        if (i == 2 * runs - 1)
            median = many_runs[_i].last;
        json_t *run = made_run();
        made_set(run, 0, median, median - 20, median + 20);
        made_write(run, paths[i]);
        length += snprintf(arguments + length, sizeof arguments - (size_t)length, "%s %s",
                           i < 2    ? ""
                           : is_new ? " --new"
                                    : " --old",
                           paths[i]);
    }
    tool_result result = tool_run(arguments);
    for (int i = 0; i < 2 * runs; i++)
        remove(paths[i]);
    ck_assert_msg(result.exit_code == many_runs[_i].exit_code, "exit code %d: %s%s",
                  result.exit_code, result.out, result.err);
    ck_assert_msg(strstr(result.out, many_runs[_i].says) != NULL, "%s", result.out);
    tool_result_free(&result);
}
END_TEST

/* If one of several runs lacks a result, the other runs are used, in any order. A failure in one of
 * them is listed. */
START_TEST(one_of_several_runs_may_lack_a_result)
{
    char paths[3][MADE_PATH], arguments[256];
    json_t *without = made_run(), *slower = made_run();
    json_array_remove(json_object_get(without, "results"), 0);
    json_array_append_new(
        json_object_get(without, "failures"),
        json_pack("{s:s, s:i, s:s}", "benchmark", "matmul", "device", 0, "text", "wrong"));
    made_set(slower, 0, 80, 79, 81);
    made_write(made_run(), paths[0]);
    made_write(slower, paths[1]);
    made_write(without, paths[2]);
    snprintf(arguments, sizeof arguments, "bench compare %s %s --new %s", paths[0],
             paths[_i ? 2 : 1], paths[_i ? 1 : 2]);
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 3);
    ck_assert_ptr_nonnull(strstr(result.out, "+25.0 %"));
    ck_assert_ptr_nonnull(strstr(result.out, "4 compared: 1 slower"));
    ck_assert_ptr_null(strstr(result.out, "only in"));
    ck_assert_ptr_nonnull(strstr(result.out, "FAILED in the new run: matmul: wrong\n"));
    tool_result_free(&result);
    snprintf(arguments, sizeof arguments, "bench compare %s %s --old /proc/nonexistent", paths[0],
             paths[1]);
    result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_ptr_nonnull(strstr(result.err, "/proc/nonexistent"));
    tool_result_free(&result);
    for (int i = 0; i < 3; i++)
        remove(paths[i]);
}
END_TEST

/* A file that is given twice is refused, because equal runs would show no spread. */
START_TEST(a_file_cannot_be_given_twice)
{
    char paths[2][MADE_PATH], arguments[256], sentence[256];
    made_write(made_run(), paths[0]);
    made_write(made_run(), paths[1]);
    snprintf(arguments, sizeof arguments, "bench compare %s %s --%s /tmp/.%s", paths[0], paths[1],
             _i ? "new" : "old", paths[_i] + strlen("/tmp"));
    snprintf(sentence, sizeof sentence,
             "tessera: bench compare: '/tmp/.%s' is given twice on one side\n",
             paths[_i] + strlen("/tmp"));
    tool_refuses(arguments, sentence);
    /* An old run may be compared with itself as the new run. */
    snprintf(arguments, sizeof arguments, "bench compare %s %s", paths[0], paths[0]);
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 0);
    tool_result_free(&result);
    remove(paths[0]);
    remove(paths[1]);
}
END_TEST

/* Adds a failed benchmark to the new run, and checks that the comparison reports it. */
static void fails_in(json_t *new_run, const char *options)
{
    json_array_append_new(
        json_object_get(new_run, "failures"),
        json_pack("{s:s, s:i, s:s}", "benchmark", "copy", "device", 0, "text", "wrong"));
    tool_result result = compare(made_run(), new_run, options);
    ck_assert_msg(result.exit_code == 3, "%d: %s", result.exit_code, result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_nonnull(strstr(result.out, "FAILED in the new run: copy: wrong\n"));
    tool_result_free(&result);
}

START_TEST(a_failure_is_a_regression)
{
    fails_in(made_run(), "");
}
END_TEST

/* If the new run is on another device, all benchmarks of the old device are missing. */
START_TEST(another_device_does_not_match)
{
    json_t *new_run = made_run(), *device = json_array_get(json_object_get(new_run, "devices"), 0);
    json_object_set_new(device, "name", json_string("Other GPU"));
    tool_result result = compare(made_run(), json_incref(new_run), "");
    ck_assert_int_eq(result.exit_code, 4);
    ck_assert_ptr_nonnull(strstr(result.out, "note: Made GPU is not in the new run\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "\nMISSING in the new run: matmul on Made GPU\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "\nMISSING in the new run: copy on Made GPU\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "1 compared: "));
    tool_result_free(&result);
    result = compare(made_run(), new_run, " --allow-missing");
    ck_assert_int_eq(result.exit_code, 0);
    tool_result_free(&result);
}
END_TEST

/* A device whose name differs only in parentheses is the same device with another driver. */
START_TEST(a_renamed_device_is_the_same)
{
    json_t *new_run = made_run(), *device = json_array_get(json_object_get(new_run, "devices"), 0);
    json_object_set_new(device, "name", json_string("Made GPU (2.0)"));
    json_object_set_new(device, "driver_info", json_string("2.0"));
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_ptr_nonnull(strstr(result.out,
                                 "note: Made GPU is called Made GPU (2.0) in the new run\n"
                                 "note: Made GPU: the driver changed from 1.0 to 2.0\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "4 compared: "));
    tool_result_free(&result);
}
END_TEST

/* If two cards have the same name, the output says which of them became slower. */
START_TEST(devices_of_the_same_name_are_numbered)
{
    json_t *new_run = made_run_on_twins();
    made_set(new_run, 6, 15, 14, 16);
    tool_result result = compare(made_run_on_twins(), new_run, "");
    ck_assert_int_eq(result.exit_code, 3);
    ck_assert_ptr_nonnull(strstr(result.out, "\nSLOWER  Made GPU (2)  copy "));
    ck_assert_ptr_nonnull(strstr(result.out, "5 compared: 1 slower, 0 faster, 4 the same"));
    tool_result_free(&result);
}
END_TEST

/* If a driver does not load any more, all results of its device are missing. */
START_TEST(a_missing_device_is_named)
{
    tool_result result = compare(made_run_on_twins(), made_run(), "");
    ck_assert_int_eq(result.exit_code, 4);
    ck_assert_ptr_nonnull(strstr(result.out, "\nnote: Made GPU (2) is not in the new run\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "\nMISSING in the new run: copy on Made GPU (2)\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "only in the old run: 1; only in the new run: 0"));
    tool_result_free(&result);
    result = compare(made_run(), made_run_on_twins(), "");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_null(strstr(result.out, "note: "));
    tool_result_free(&result);
}
END_TEST

/* Some drivers, such as SwiftShader, report only their name. */
START_TEST(a_driver_without_information_is_named)
{
    json_t *new_run = made_run(), *device = json_array_get(json_object_get(new_run, "devices"), 0);
    json_object_set_new(device, "driver_name", json_string("quiet driver"));
    json_object_set_new(device, "driver_info", json_string(""));
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_ptr_nonnull(
        strstr(result.out, "note: Made GPU: the driver changed from 1.0 to quiet driver\n"));
    tool_result_free(&result);
}
END_TEST

static json_t *without_results(void)
{
    json_t *run = made_run();
    json_array_clear(json_object_get(run, "results"));
    return run;
}

START_TEST(nothing_to_compare_is_a_failure)
{
    for (int i = 0; i < 4; i++) {
        json_t *old = i % 2 == 0 ? made_run() : without_results();
        json_t *new_run = i % 2 == 0 ? without_results() : made_run();
        tool_result result = compare(old, new_run, i < 2 ? "" : " --of-ceiling");
        ck_assert_int_eq(result.exit_code, 1);
        ck_assert_ptr_nonnull(strstr(result.err, "nothing to compare: /tmp/"));
        ck_assert_ptr_nonnull(strstr(result.err, " has no results\n"));
        ck_assert_str_eq(result.out, "");
        tool_result_free(&result);
    }
}
END_TEST

/* Returns a run in which all results that are not ceilings belong to another benchmark; the
 * ceilings, results 3 and 4, are unchanged. */
static json_t *other_figures(void)
{
    json_t *run = made_run();
    for (size_t i = 0; i < 6; i++)
        if (i != 3 && i != 4)
            json_object_set_new(made_result(run, i), "benchmark", json_string("other"));
    return run;
}

/* Returns a run as `tessera bench peak` writes it, which has only ceilings. */
static json_t *ceilings_alone(void)
{
    json_t *run = made_run(), *results = json_object_get(run, "results");
    json_array_remove(results, 5);
    for (int i = 0; i < 3; i++)
        json_array_remove(results, 0);
    return run;
}

/* A name with control characters that could forge output on a terminal. */
static const char forged[] = "x\x1b[2K\r\x7f\xc2\x9b"
                             "1A\nFAILED in the new run: y";
static const char mended[] = "x?[2K???1A?FAILED in the new run: y";

START_TEST(texts_of_files_have_no_control_characters)
{
    json_t *runs[2], *which = json_object();
    json_object_set_new(which, "what", json_string(forged));
    json_object_set_new(which, forged, json_integer(7));
    for (int i = 0; i < 2; i++) {
        runs[i] = made_run();
        json_object_set_new(runs[i], "time", json_string(forged));
        json_t *device = json_array_get(json_object_get(runs[i], "devices"), 0);
        json_object_set_new(device, "name", json_string(forged));
        json_object_set_new(device, "driver_info", json_string(i == 0 ? "1" : forged));
        json_array_set_new(json_object_get(json_object_get(runs[i], "noise"), "warnings"), 0,
                           json_string(forged));
        json_object_set_new(made_result(runs[i], 0), "benchmark", json_string(forged));
        json_object_set(made_result(runs[i], 0), "case", which);
    }
    json_decref(which);
    json_array_append_new(
        json_object_get(runs[1], "failures"),
        json_pack("{s:s, s:n, s:s}", "benchmark", forged, "device", "text", forged));
    tool_result result = compare(runs[0], runs[1], " --all");
    ck_assert_int_eq(result.exit_code, 3);
    int lines = 0;
    for (const char *at = result.out; *at != '\0'; at++) {
        ck_assert_msg(*at == '\n' || ((unsigned char)*at >= 0x20 && *at != 0x7f), "%s", result.out);
        lines += *at == '\n';
    }
    /* The expected lines: four for the runs and their warnings, one for the driver, seven for a
     * table, one for the failure, one for the totals, and two empty ones. */
    ck_assert_msg(lines == 4 + 1 + 7 + 1 + 1 + 2, "%s", result.out);
    ck_assert_ptr_null(strstr(result.out, "\xc2\x9b"));
    ck_assert_ptr_null(strstr(result.out, "\nFAILED in the new run: y"));
    /* The name occurs in two times, two warnings, the device and its driver, the device of four
     * rows, a benchmark, its case, and the failure. */
    ck_assert_int_eq(tool_count(result.out, mended), 2 + 2 + 2 + 4 + 1 + 2 + 2);
    tool_result_free(&result);
}
END_TEST

static void has_nothing_in_common(json_t *old, json_t *new_run)
{
    tool_result result = compare(old, new_run, "");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_ptr_nonnull(strstr(result.err, "tessera: bench compare: nothing to compare: /tmp/"));
    ck_assert_str_eq(result.out, "");
    tool_result_free(&result);
}

START_TEST(runs_with_nothing_in_common_do_not_pass)
{
    json_t *new_run = ceilings_alone();
    json_object_set_new(made_result(new_run, 0), "benchmark", json_string("other_peak"));
    json_object_set_new(made_result(new_run, 1), "benchmark", json_string("other_peak"));
    has_nothing_in_common(ceilings_alone(), new_run);
    has_nothing_in_common(made_run(), other_figures());
    has_nothing_in_common(made_run(), ceilings_alone());
    has_nothing_in_common(ceilings_alone(), made_run());
}
END_TEST

START_TEST(runs_with_only_ceilings_are_compared)
{
    json_t *new_run = ceilings_alone();
    made_set(new_run, 0, 100, 99, 101);
    tool_result result = compare(ceilings_alone(), new_run, "");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "1 ceiling changed"));
    tool_result_free(&result);
}
END_TEST

START_TEST(a_failure_counts_even_if_nothing_is_in_common)
{
    fails_in(other_figures(), "");
    fails_in(other_figures(), " --of-ceiling");
    fails_in(without_results(), "");
    fails_in(without_results(), " --of-ceiling");
}
END_TEST

TESTS(bench_files)
{
    tcase_add_loop_test(tests, judges_a_change, 0, (int)(sizeof changes / sizeof *changes));
    tcase_add_test(tests, shows_what_changed);
    tcase_add_test(tests, shows_what_is_not_decided);
    tcase_add_test(tests, json_has_all_results);
    tcase_add_test(tests, tables_for_programs_and_chats);
    tcase_add_test(tests, what_is_missing_is_counted);
    tcase_add_test(tests, other_cases_do_not_replace_a_missing_one);
    tcase_add_test(tests, a_run_of_one_benchmark_misses_no_other);
    tcase_add_loop_test(tests, several_runs_show_their_spread, 0,
                        (int)(sizeof series / sizeof *series));
    tcase_add_loop_test(tests, many_runs_are_compared_by_their_medians, 0, 4);
    tcase_add_loop_test(tests, one_of_several_runs_may_lack_a_result, 0, 2);
    tcase_add_loop_test(tests, a_file_cannot_be_given_twice, 0, 2);
    tcase_add_test(tests, a_failure_is_a_regression);
    tcase_add_test(tests, another_device_does_not_match);
    tcase_add_test(tests, a_renamed_device_is_the_same);
    tcase_add_test(tests, devices_of_the_same_name_are_numbered);
    tcase_add_test(tests, a_missing_device_is_named);
    tcase_add_test(tests, a_driver_without_information_is_named);
    tcase_add_test(tests, nothing_to_compare_is_a_failure);
    tcase_add_test(tests, runs_with_nothing_in_common_do_not_pass);
    tcase_add_test(tests, runs_with_only_ceilings_are_compared);
    tcase_add_test(tests, a_failure_counts_even_if_nothing_is_in_common);
    tcase_add_test(tests, texts_of_files_have_no_control_characters);
}
