/* Tests reading files of runs, which may be malformed, and formatting their parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/machine.h"
#include "bench/report/document.h"
#include "bench/report/html.h"
#include "cli/lib/numbers.h"
#include "cli/made_run.h"
#include "support/check_main.h"

/* Reads the run and frees it. */
static bool reads(json_t *run, char problem[BENCH_PROBLEM])
{
    char path[MADE_PATH];
    bench_document document;
    made_write(run, path);
    bool done = bench_document_read(path, &document, problem);
    if (done)
        bench_document_free(&document);
    /* Removes the path at the start of the error's text, because it differs between runs. */
    size_t length = strlen(path) + 2;
    if (!done && strncmp(problem, path, length - 2) == 0)
        memmove(problem, problem + length, strlen(problem + length) + 1);
    remove(path);
    return done;
}

START_TEST(reads_a_run)
{
    char path[MADE_PATH], problem[BENCH_PROBLEM], text[BENCH_VALUE_TEXT];
    bench_document document;
    made_write(made_run(), path);
    ck_assert_msg(bench_document_read(path, &document, problem), "%s", problem);
    ck_assert_int_eq(document.device_count, 1);
    ck_assert_int_eq(document.result_count, 6);
    ck_assert_str_eq(document.devices[0].name, "Made GPU");
    ck_assert_str_eq(document.results[0].label, "f32 64×65×66");
    ck_assert_str_eq(document.results[1].label, "rows row bytes 64");
    ck_assert_double_eq(document.results[0].fraction, 0.5);
    ck_assert_int_eq(document.results[5].device, -1);
    ck_assert_str_eq(bench_figures_text(&document.results[2], 5e4, text), "50.0 µs");
    bench_document_free(&document);
    remove(path);
}
END_TEST

/* The number of files that spoil() has tried, and of those that were refused. spoil() replaces
 * every member of every object by values of other types. Most of these files must be refused, and
 * none may do harm. */
typedef struct tally {
    int tried, refused;
} tally;

static void spoil(json_t *root, json_t *value, tally *seen)
{
    static const char *const wrong[] = {"null", "[]", "{}", "-1", "\"x\"", "1e300", "true", "[[]]"};
    char problem[BENCH_PROBLEM];
    const char *name;
    json_t *member;
    void *next;
    size_t i;
    json_array_foreach(value, i, member) spoil(root, member, seen);
    if (!json_is_object(value))
        return;
    json_object_foreach_safe(value, next, name, member)
    {
        char key[64];
        json_t *kept = json_deep_copy(member);
        snprintf(key, sizeof key, "%s", name);
        for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
            json_object_set_new(value, key, json_loads(wrong[w], JSON_DECODE_ANY, NULL));
            seen->refused += !reads(json_incref(root), problem);
            seen->tried++;
        }
        json_object_set_new(value, key, kept);
        spoil(root, kept, seen);
    }
}

START_TEST(a_malformed_run_does_no_harm)
{
    tally seen = {0};
    json_t *run = made_run();
    /* To save time, keeps one result of each kind: a product and its ceiling. */
    static const size_t others[] = {5, 4, 2, 1};
    json_t *product = made_result(run, 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        json_array_remove(json_object_get(run, "results"), others[i]);
    json_object_set_new(json_object_get(product, "ceiling"), "result", json_integer(1));
    spoil(run, run, &seen);
    ck_assert_int_gt(seen.tried, 300);
    ck_assert_int_gt(seen.refused, seen.tried / 2);
    ck_assert_int_lt(seen.refused, seen.tried); /* the tool does not read some members */
    json_decref(run);
}
END_TEST

static const struct {
    const char *path[3]; /* the names of nested members, starting in a result */
    const char *value, *sentence;
} spoilt[] = {
    {{"device"}, "1", "results[0]: \"device\" is not an index below 1"},
    {{"value", "unit"}, "\"km/h\"", "results[0]: \"unit\" is 'km/h'"},
    {{"value", "median"}, "-1", "results[0]: \"median\" is -1, not a normal number above 0"},
    {{"value", "high"}, "0", "results[0]: \"high\" is 0, not a normal number above 0"},
    {{"value", "low"}, "0.0", "results[0]: \"low\" is 0, not a normal number above 0"},
    {{"value", "best"},
     "5e-324",
     "results[0]: \"best\" is 4.94066e-324, not a normal number above 0"},
    {{"value", "best"}, "\"1\"", "results[0]: \"best\" is not a number"},
    {{"work"}, "0", "results[0]: \"work\" is 0, not a normal number above 0"},
    {{"bytes"}, "0", "results[0]: \"bytes\" is 0, not a normal number above 0"},
    {{"ceiling", "fraction"}, "0", "results[0]: \"fraction\" is 0, not a normal number above 0"},
    {{"peer", "median"}, "0", "results[0]: \"median\" is 0, not a normal number above 0"},
    {{"value", "low"}, "101", "results[0]: the median does not lie between \"low\" and \"high\""},
    {{"case", "m"}, "1.5", "results[0]: \"m\" of the case is neither a string nor an integer"},
    {{"verified"}, "null", "results[0]: \"verified\" is not an object"},
    {{"is_ceiling"}, "0", "results[0]: \"is_ceiling\" is neither true nor false"},
    {{"ceiling", "result"}, "6", "results[0]: \"result\" is not an index below 6"},
    {{"ceiling", "result"}, "null", "results[0]: the ceiling's \"result\" is null"},
    {{"ceiling", "result"}, "1", "results[0]: its ceiling, results[1], is not a ceiling"},
    {{"host_ns", "samples"},
     "5",
     "results[0]: \"samples\" is not an array of at most 100000 elements"},
    {{"host_ns", "samples"}, "[]", "results[0]: \"samples\" is empty"},
    {{"host_ns", "samples"},
     "[1, \"x\"]",
     "results[0]: \"samples\"[1] is not a number of at least 0"},
    {{"host_ns", "samples"}, "[-1]", "results[0]: \"samples\"[0] is not a number of at least 0"},
    {{"host_ns", "repetitions"},
     "0",
     "results[0]: \"repetitions\" is 0, not a number of at least 1"},
    {{"host_ns", "repetitions"}, "1.5", "results[0]: \"repetitions\" is 1.5, not an integer"},
    {{"peer", "host_ns"}, "null", "results[0]: \"host_ns\" is not an object"},
    {{"device_ns"}, "{\"median\": 0, \"samples\": []}", "results[0]: \"samples\" is empty"},
};

START_TEST(errors_name_the_member)
{
    char problem[BENCH_PROBLEM];
    json_t *run = made_run(), *at = made_result(run, 0);
    int depth = 0;
    for (; spoilt[_i].path[depth + 1] != NULL; depth++)
        at = json_object_get(at, spoilt[_i].path[depth]);
    json_object_set_new(at, spoilt[_i].path[depth],
                        json_loads(spoilt[_i].value, JSON_DECODE_ANY, NULL));
    ck_assert(!reads(run, problem));
    ck_assert_str_eq(problem, spoilt[_i].sentence);
}
END_TEST

/* Paths of files of runs, and the shorter names by which the output must distinguish them. */
static const struct {
    const char *paths[4], *names[4];
} named[] = {
    {{"run.json"}, {"run"}},
    {{"/a/b/one.json", "two.json", "/a/three"}, {"one", "two", "three"}},
    {{"before/run.json", "after/run.json", "other.json"}, {"before/run", "after/run", "other"}},
    {{"run.json", "after/run.json"}, {"run", "after/run"}},
    {{"/a/x/run.json", "/b/x/run.json", "/b/y/run.json"}, {"a/x/run", "b/x/run", "y/run"}},
    {{"/run.json", "run.json"}, {"/run", "run"}},
    {{"a/run.json", "a/run.json", "b/run.json"}, {"a/run", "a/run (2)", "b/run"}},
    {{"run.json", "run.json", "run (2).json"}, {"run", "run (2)", "run (2) (2)"}},
    {{"a/run", "a/run.json"}, {"a/run", "a/run (2)"}},
    {{".json", "a.json/run.json"}, {".json", "run"}},
};

START_TEST(names_distinguish_runs)
{
    bench_document all[4];
    int count = 0;
    for (; count < 4 && named[_i].paths[count] != NULL; count++)
        all[count] = (bench_document){.path = named[_i].paths[count]};
    bench_documents_name(all, count);
    for (int i = 0; i < count; i++)
        ck_assert_str_eq(all[i].name, named[_i].names[i]);
}
END_TEST

/* A name that is too long must be cut. Its end and its number must remain, and no character may be
 * cut apart. */
START_TEST(long_names_are_cut)
{
    char path[2 * BENCH_NAME + 16] = "";
    for (int i = 0; i < BENCH_NAME; i++)
        strcat(path, "µ");
    strcat(path, "/runs.json");
    bench_document all[] = {{.path = path}, {.path = path}, {.path = "runs.json"}};
    bench_documents_name(all, 3);
    ck_assert_ptr_eq(strstr(all[0].name, "…µµ"), all[0].name);
    ck_assert_ptr_nonnull(strstr(all[0].name, "µ/runs"));
    ck_assert_ptr_nonnull(strstr(all[1].name, "µ/runs (2)"));
    ck_assert_str_eq(all[2].name, "runs");
}
END_TEST

START_TEST(another_version_is_refused)
{
    char problem[BENCH_PROBLEM];
    json_t *run = made_run();
    json_object_set_new(run, "schema_version", json_integer(3));
    ck_assert(!reads(run, problem));
    ck_assert_str_eq(problem, "its schema has version 3; this tessera reads 2");
}
END_TEST

static const struct {
    const char *text, *escaped;
} escapes[] = {
    {"a<b>c&d\"e'f", "a&lt;b&gt;c&amp;d&quot;e&#39;f"},
    {"µ – ×\t\n", "µ – ×\t\n"},
    {"\xff|\xc3|\xc3(|\xe2\x82|\xc0\xaf|\xed\xa0\x80|\xef\xbf\xbe|\x01|\x7f",
     "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd(|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd|"
     "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd"},
    {"\xf0\x9f\x9a\x80", "\xf0\x9f\x9a\x80"},
};

START_TEST(html_escapes)
{
    char text[256] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    html_line(out, "%s", escapes[_i].text);
    fclose(out);
    ck_assert_str_eq(text, escapes[_i].escaped);
}
END_TEST

START_TEST(html_numbers)
{
    char text[128] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    html_line(out, "%d %f %f %f%% %f %f", -3, 1.0, 2.5, 33.333, 1e300, 0.0 / 1);
    fclose(out);
    ck_assert_str_eq(text, "-3 1 2.5 33.33% 0 0");
}
END_TEST

START_TEST(numbers_for_people)
{
    char text[CLI_NUMBER_TEXT];
    ck_assert_str_eq(cli_number(0.1234, text), "0.123");
    ck_assert_str_eq(cli_number(12.34, text), "12.3");
    ck_assert_str_eq(cli_number(1234.5, text), "1234");
    ck_assert_str_eq(cli_number(1e300, text), "1e+300");
    ck_assert_str_eq(cli_duration(1500, text), "1.50 µs");
    ck_assert_str_eq(cli_duration(2e9, text), "2.00 s");
    ck_assert_str_eq(cli_percent(0.0424, text), "4.2 %");
    ck_assert_str_eq(cli_percent(1.2, text), "120 %");
}
END_TEST

START_TEST(busy_time_of_a_machine)
{
    ck_assert_double_eq(bench_noise_busy("cpu  100 20 30 4000 500 6 7 8 0 0\n", 100), 1.71);
    ck_assert_double_lt(bench_noise_busy("cpu0 1", 100), 0);
    ck_assert_double_lt(bench_noise_busy("intr 1 2 3 4 5 6 7 8", 100), 0);
}
END_TEST

TESTS(bench_document)
{
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, reads_a_run);
    tcase_add_test(tests, a_malformed_run_does_no_harm);
    tcase_add_loop_test(tests, errors_name_the_member, 0, (int)(sizeof spoilt / sizeof *spoilt));
    tcase_add_loop_test(tests, names_distinguish_runs, 0, (int)(sizeof named / sizeof *named));
    tcase_add_test(tests, long_names_are_cut);
    tcase_add_test(tests, another_version_is_refused);
    tcase_add_loop_test(tests, html_escapes, 0, (int)(sizeof escapes / sizeof *escapes));
    tcase_add_test(tests, html_numbers);
    tcase_add_test(tests, numbers_for_people);
    tcase_add_test(tests, busy_time_of_a_machine);
}
