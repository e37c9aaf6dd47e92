/* What is done with runs that were written down: comparing them, and the page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/made_run.h"
#include "cli/tool.h"
#include "support/check_main.h"

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        count++;
    return count;
}

/* Comparing ------------------------------------------------------------------------------------ */

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

/* Medians and the ends of the middle 80 %, the old run's being 100 (95 to 105) GFLOP/s of result 0
 * and 50 (47.5 to 52.5) µs of result 2. */
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
    {"slower, ranges overlap", 0, 90, 85, 95.5, "", 0, "4 compared: 0 slower"},
    {"slower by less than 5 %", 0, 98, 97.9, 98, "", 0, "4 compared: 0 slower"},
    {"apart, but only by 4 %", 0, 96.5, 94, 94.9, "", 2, "does not lie between"},
    {"apart, by 8 %, threshold 10", 0, 92.5, 92, 93, " --threshold 10", 0, "4 compared: 0 slower"},
    {"apart, by 8 %, threshold 1", 0, 92.5, 92, 93, " --threshold 1", 3, "1 slower"},
    {"faster", 0, 120, 115, 125, "", 0, "0 slower, 1 faster"},
    {"a longer time", 2, 60e3, 58e3, 62e3, "", 3, "1 slower, 0 faster"},
    {"a shorter time", 2, 40e3, 38e3, 42e3, "", 0, "0 slower, 1 faster"},
    {"a ceiling", 3, 100, 99, 101, "", 0, "1 ceilings changed"},
    {"stopped altogether", 0, 0, 0, 0, "", 3, "1 slower, 0 faster"},
};

START_TEST(judges_a_change)
{
    json_t *new_run = made_run();
    made_set(new_run, changes[_i].which, changes[_i].median, changes[_i].low, changes[_i].high);
    tool_result result = compare(made_run(), new_run, changes[_i].options);
    ck_assert_msg(result.exit_code == changes[_i].exit_code, "%s: exit code %d: %s%s",
                  changes[_i].what, result.exit_code, result.out, result.err);
    const char *where = result.exit_code == 2 ? result.err : result.out;
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
    tool_result_free(&result);
    result = compare(made_run(), made_run(), " --all");
    ck_assert_ptr_nonnull(strstr(result.out, "round trip"));
    tool_result_free(&result);
}
END_TEST

START_TEST(what_is_missing_is_counted)
{
    json_t *new_run = made_run();
    json_array_remove(json_object_get(new_run, "results"), 1);
    json_object_set_new(json_object_get(made_result(new_run, 0), "case"), "m", json_integer(65));
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "only in the old run: 2; only in the new one: 1"));
    tool_result_free(&result);
}
END_TEST

/* With a benchmark failing in the new run. */
static void fails_in(json_t *new_run)
{
    json_array_append_new(
        json_object_get(new_run, "failures"),
        json_pack("{s:s, s:i, s:s}", "benchmark", "copy", "device", 0, "text", "wrong"));
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_int_eq(result.exit_code, 3);
    ck_assert_ptr_nonnull(strstr(result.out, "FAILED in the new run: copy: wrong\n"));
    tool_result_free(&result);
}

START_TEST(a_failure_is_a_regression)
{
    fails_in(made_run());
}
END_TEST

/* The only device there is, under whatever name: another version of its driver. */
START_TEST(a_renamed_device_is_the_same)
{
    json_t *new_run = made_run(), *device = json_array_get(json_object_get(new_run, "devices"), 0);
    json_object_set_new(device, "name", json_string("Made GPU (2.0)"));
    json_object_set_new(device, "driver_info", json_string("2.0"));
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_ptr_nonnull(strstr(result.out, "note: Made GPU: its driver was 1.0 and is 2.0\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "4 compared: "));
    tool_result_free(&result);
}
END_TEST

START_TEST(nothing_to_compare_is_no_success)
{
    json_t *new_run = made_run();
    json_array_clear(json_object_get(new_run, "results"));
    tool_result result = compare(made_run(), new_run, "");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_ptr_nonnull(strstr(result.err, "there is nothing to compare"));
    tool_result_free(&result);
}
END_TEST

/* Every figure is of another benchmark; the ceilings, results 3 and 4, are as they were. */
static json_t *other_figures(void)
{
    json_t *run = made_run();
    for (size_t i = 0; i < 6; i++)
        if (i != 3 && i != 4)
            json_object_set_new(made_result(run, i), "benchmark", json_string("other"));
    return run;
}

/* What `tessera bench peak` writes. */
static json_t *ceilings_alone(void)
{
    json_t *run = made_run(), *results = json_object_get(run, "results");
    json_array_remove(results, 5);
    for (int i = 0; i < 3; i++)
        json_array_remove(results, 0);
    return run;
}

/* A name of the file that would be something else on a terminal. */
static const char forged[] = "x\x1b[2K\r\x7f\xc2\x9b"
                             "1A\nFAILED in the new run: y";
static const char mended[] = "x?[2K???1A?FAILED in the new run: y";

START_TEST(texts_of_files_do_not_command_the_terminal)
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
    /* The runs and their warnings, the driver, a table of a heading and six rows, the failure, the
     * sum, and two empty ones. */
    ck_assert_msg(lines == 4 + 1 + 7 + 1 + 1 + 2, "%s", result.out);
    ck_assert_ptr_null(strstr(result.out, "\xc2\x9b"));
    ck_assert_ptr_null(strstr(result.out, "\nFAILED in the new run: y"));
    /* Two times, two warnings, the device and its driver, the device of four rows, a benchmark and
     * its case, the failure. */
    ck_assert_int_eq(count_of(result.out, mended), 2 + 2 + 2 + 4 + 1 + 2 + 2);
    tool_result_free(&result);
}
END_TEST

static void has_nothing_in_common(json_t *old, json_t *new_run)
{
    tool_result result = compare(old, new_run, "");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_ptr_nonnull(
        strstr(result.err,
               "tessera: bench compare: there is nothing to compare: no figure is in both /tmp/"));
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

START_TEST(ceilings_alone_are_compared)
{
    json_t *new_run = ceilings_alone();
    made_set(new_run, 0, 100, 99, 101);
    tool_result result = compare(ceilings_alone(), new_run, "");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "1 ceilings changed"));
    tool_result_free(&result);
}
END_TEST

START_TEST(a_failure_counts_though_nothing_is_in_common)
{
    fails_in(other_figures());
}
END_TEST

/* The page ------------------------------------------------------------------------------------- */

static char *read_page(const char *path)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    char *text = calloc(1, 1 << 20);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, file), 0);
    fclose(file);
    return text;
}

/* The page of these runs; frees them. */
static char *page_of(json_t *first, json_t *second)
{
    char paths[2][MADE_PATH], output[MADE_PATH + 8], arguments[320];
    made_write(first, paths[0]);
    made_write(second, paths[1]);
    snprintf(output, sizeof output, "%s.html", paths[0]);
    snprintf(arguments, sizeof arguments, "bench report %s %s -o %s", paths[0], paths[1], output);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.out, "");
    ck_assert_str_eq(result.err, "");
    tool_result_free(&result);
    char *page = read_page(output);
    remove(paths[0]);
    remove(paths[1]);
    remove(output);
    return page;
}

/* Of this type, with its own copy as a ceiling, 2500 GB/s; memcpy has 40. */
static json_t *run_on(const char *type)
{
    json_t *run = made_run(), *copy = json_deep_copy(made_result(run, 3));
    json_object_set_new(json_array_get(json_object_get(run, "devices"), 0), "type",
                        json_string(type));
    json_object_set_new(copy, "benchmark", json_string("device_copy"));
    json_object_set_new(json_object_get(copy, "value"), "unit", json_string("GB/s"));
    json_array_append_new(json_object_get(run, "results"), copy);
    made_set(run, 6, 2500, 2400, 2600);
    return run;
}

/* memcpy, which all-reduce has measured, is no limit of a GPU; and the copy through a CPU's driver
 * is none of memory. */
START_TEST(memory_is_the_devices_own)
{
    static const struct {
        const char *type, *cell, *note;
    } kinds[] = {
        {"discrete", "<td class=\"n\">2500 GB/s</td>", "reach 200 GFLOP/s, memory 2500 GB/s."},
        {"cpu", "<td class=\"n\">40.0 GB/s</td>", "reach 200 GFLOP/s, memory 40.0 GB/s."}};
    for (int i = 0; i < 2; i++) {
        char *page = page_of(run_on(kinds[i].type), run_on(kinds[i].type));
        const char *glance = strstr(page, "At a glance"), *cell = strstr(glance, kinds[i].cell);
        ck_assert_msg(cell != NULL && cell < strstr(glance, "</table>"), "%s", kinds[i].type);
        ck_assert_int_eq(count_of(page, kinds[i].note), 2);
        free(page);
    }
    char *page = page_of(made_run(), made_run()); /* a GPU with nothing but memcpy */
    ck_assert_int_eq(count_of(page, "<svg class=\"roofline\""), 0);
    free(page);
}
END_TEST

START_TEST(the_page_shows_every_result)
{
    char *page = page_of(run_on("cpu"), run_on("discrete"));
    ck_assert_int_eq(count_of(page, "<svg class=\"roofline\""), 2);
    ck_assert_int_eq(count_of(page, "<svg class=\"bars\""), 4); /* all but the ceilings */
    ck_assert_int_eq(count_of(page, "<tr><td>"), 14);
    ck_assert_ptr_nonnull(strstr(page, "f32 64×65×66"));
    ck_assert_ptr_nonnull(strstr(page, "100 GFLOP/s"));
    ck_assert_ptr_nonnull(strstr(page, "50.0 µs"));
    ck_assert_ptr_nonnull(strstr(page, "150 GFLOP/s, OtherBLAS"));
    ck_assert_ptr_nonnull(strstr(page, "the machine was busy"));
    ck_assert_ptr_nonnull(strstr(page, "f32 4096x4096x4096"));
    ck_assert_ptr_nonnull(strstr(page, "</html>\n"));
    /* Nothing is fetched, nothing is run: the names of two formats are the only addresses. */
    ck_assert_int_eq(count_of(page, "://"), count_of(page, "xmlns=\"http://www.w3.org/"));
    ck_assert_ptr_null(strstr(page, "<script"));
    ck_assert_ptr_null(strstr(page, "url("));
    free(page);
}
END_TEST

static const char hostile[] = "</title></style><script>alert(1)</script><img src=x onerror='a' "
                              "title=\"b\">&amp;\xe2\x80\xae\x01";

/* Every string but those that must be what they are. */
static void poison(json_t *value)
{
    const char *name;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member)
    {
        if (json_is_string(member))
            json_array_set_new(value, i, json_string(hostile));
        else
            poison(member);
    }
    if (!json_is_object(value))
        return;
    json_object_foreach(value, name, member)
    {
        if (json_is_string(member) && strcmp(name, "schema") != 0 && strcmp(name, "unit") != 0 &&
            strcmp(name, "dtype") != 0)
            json_object_set_new(value, name, json_string(hostile));
        else
            poison(member);
    }
}

START_TEST(hostile_strings_stay_text)
{
    json_t *run = made_run();
    poison(run);
    char *page = page_of(run, made_run());
    ck_assert_int_gt(count_of(page, "&lt;script&gt;alert(1)&lt;/script&gt;"), 20);
    ck_assert_int_eq(count_of(page, "<script"), 0);
    ck_assert_int_eq(count_of(page, "<img"), 0);
    ck_assert_int_eq(count_of(page, "</style>"), 1);
    ck_assert_int_eq(count_of(page, "onerror='"), 0);
    ck_assert_int_eq(count_of(page, "\x01"), 0);
    free(page);
}
END_TEST

static const struct {
    const char *arguments, *sentence;
} failures[] = {
    {"bench report /nonexistent.json",
     "tessera: bench report: cannot read '/nonexistent.json': No such file or directory\n"},
    {"bench report /tmp", "tessera: bench report: cannot read '/tmp': Is a directory\n"},
    {"bench compare /dev/null /dev/null",
     "tessera: bench compare: /dev/null: line 1: '[' or '{' expected near end of file\n"},
    {"bench report " TEST_DATA "/torch_randint.json -o /dev/null",
     "tessera: bench report: " TEST_DATA
     "/torch_randint.json: this is not what 'tessera bench --json' writes\n"},
};

START_TEST(refuses_other_files)
{
    tool_result result = tool_run(failures[_i].arguments);
    ck_assert_str_eq(result.err, failures[_i].sentence);
    ck_assert_str_eq(result.out, "");
    ck_assert_int_eq(result.exit_code, 2);
    tool_result_free(&result);
}
END_TEST

START_TEST(a_page_that_cannot_be_written)
{
    char path[MADE_PATH], arguments[160];
    made_write(made_run(), path);
    static const struct {
        const char *output, *reason;
    } outputs[] = {{"/nonexistent/a.html", "No such file or directory"},
                   {"/dev/full", "No space left on device"}};
    for (int i = 0; i < 2; i++) {
        snprintf(arguments, sizeof arguments, "bench report %s -o %s", path, outputs[i].output);
        tool_result result = tool_run(arguments);
        ck_assert_int_eq(result.exit_code, 1);
        ck_assert_ptr_nonnull(strstr(result.err, outputs[i].reason));
        tool_result_free(&result);
    }
    remove(path);
}
END_TEST

/* The page and nothing else, and no file of that name. */
START_TEST(a_page_on_standard_output)
{
    char path[MADE_PATH], arguments[160];
    made_write(made_run(), path);
    snprintf(arguments, sizeof arguments, "bench report %s -o -", path);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_eq(strstr(result.out, "<!DOCTYPE html>"), result.out);
    ck_assert_int_eq(count_of(result.out, "<svg class=\"bars\""), 4);
    ck_assert_str_eq(result.out + result.out_size - strlen("</html>\n"), "</html>\n");
    ck_assert_int_eq(access("-", F_OK), -1);
    tool_result_free(&result);
    remove(path);
}
END_TEST

/* By its own name, by those of links, and as what standard output is appended to. */
START_TEST(a_page_does_not_replace_what_it_is_made_of)
{
    char first[MADE_PATH], second[MADE_PATH], names[4][MADE_PATH + 8], arguments[320], want[320];
    made_write(made_run(), first);
    made_write(made_run(), second);
    for (int i = 0; i < 4; i++)
        snprintf(names[i], sizeof names[i], "%s%s", i < 3 ? second : "",
                 (const char *[]){"", ".soft", ".hard", "-"}[i]);
    ck_assert_int_eq(symlink(second, names[1]), 0);
    ck_assert_int_eq(link(second, names[2]), 0);
    char *before = read_page(second);
    for (int i = 0; i < 4; i++) {
        snprintf(arguments, sizeof arguments, "bench report %s %s -o %s", first, second, names[i]);
        tool_result result = i < 3 ? tool_run(arguments) : tool_run_appending(arguments, second);
        snprintf(want, sizeof want,
                 "tessera: bench report: the page would replace '%s', which it is made of\n",
                 second);
        ck_assert_str_eq(result.err, want);
        ck_assert_int_eq(result.exit_code, 2);
        tool_result_free(&result);
        char *after = read_page(second);
        ck_assert_str_eq(after, before);
        free(after);
    }
    free(before);
    remove(names[1]);
    remove(names[2]);
    remove(first);
    remove(second);
}
END_TEST

TESTS(bench_files)
{
    tcase_add_loop_test(tests, judges_a_change, 0, (int)(sizeof changes / sizeof *changes));
    tcase_add_test(tests, shows_what_changed);
    tcase_add_test(tests, what_is_missing_is_counted);
    tcase_add_test(tests, a_failure_is_a_regression);
    tcase_add_test(tests, a_renamed_device_is_the_same);
    tcase_add_test(tests, nothing_to_compare_is_no_success);
    tcase_add_test(tests, runs_with_nothing_in_common_do_not_pass);
    tcase_add_test(tests, ceilings_alone_are_compared);
    tcase_add_test(tests, a_failure_counts_though_nothing_is_in_common);
    tcase_add_test(tests, texts_of_files_do_not_command_the_terminal);
    tcase_add_test(tests, memory_is_the_devices_own);
    tcase_add_test(tests, the_page_shows_every_result);
    tcase_add_test(tests, hostile_strings_stay_text);
    tcase_add_loop_test(tests, refuses_other_files, 0, (int)(sizeof failures / sizeof *failures));
    tcase_add_test(tests, a_page_that_cannot_be_written);
    tcase_add_test(tests, a_page_on_standard_output);
    tcase_add_test(tests, a_page_does_not_replace_what_it_is_made_of);
}
