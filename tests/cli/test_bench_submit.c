/* Tests tessera bench --submit: what is published, and the self-check. */
#include <stdio.h>
#include <string.h>

#include "bench/submit/members.h"
#include "bench/submit/submit.h"
#include "bench/submit/traces.h"
#include "cli/made_run.h"
#include "cli/submitted_run.h"
#include "support/check_main.h"

/* What is published ---------------------------------------------------------------------------- */

static char *text_of(const json_t *document)
{
    char *text = json_dumps(document, 0);
    ck_assert_ptr_nonnull(text);
    return text;
}

/* Adds a member to every object of a document, except to cases, which may have members of any
 * name. */
static void plant(json_t *value, const char *name, const char *text)
{
    const char *key;
    json_t *member;
    void *next;
    size_t i;
    json_array_foreach(value, i, member) plant(member, name, text);
    json_object_foreach_safe(value, next, key, member) if (strcmp(key, "case") != 0)
        plant(member, name, text);
    if (json_is_object(value))
        json_object_set_new(value, name, json_string(text));
}

START_TEST(only_listed_members_are_published)
{
    json_t *run = submitted_source(), *plain = bench_submission(run, 0);
    plant(run, "hostname", "ada-laptop");
    plant(run, "serial", "SN12345");
    plant(run, "log", "/home/ada/run.log");
    submitted_set(run, "host", "os", json_string("Linux 6.1.0-ada-laptop x86_64"));
    submitted_set(run, "devices/0", "uuid", json_string("deadbeef-0000-0000-0000-000000000001"));
    submitted_set(run, "noise", "warnings", json_pack("[s]", "ada-laptop was busy"));
    json_t *submission = bench_submission(run, 0);
    char *text = text_of(submission);
    ck_assert_ptr_null(strstr(text, "ada"));
    ck_assert_ptr_null(strstr(text, "SN12345"));
    ck_assert_ptr_null(strstr(text, "/home"));
    ck_assert_ptr_null(strstr(text, "deadbeef"));
    ck_assert_ptr_nonnull(strstr(text, "\"os\": \"Linux 6.1.0 x86_64\""));
    submitted_set(submission, "host", "os", json_string("Linux")); /* as in the made run */
    ck_assert(json_equal(submission, plain));
    free(text);
    json_decref(submission);
    json_decref(plain);
    json_decref(run);
}
END_TEST

static const struct {
    const char *os, *published;
} systems[] = {
    {"Linux 6.1.0-ada x86_64", "Linux 6.1.0 x86_64"},
    {"Linux ada-6.1 x86_64", "Linux ? x86_64"},
    {"Linux ? x86_64", "Linux ? x86_64"},
    {"Linux 6.1.0 x86_64 ada", "Linux 6.1.0 x86_64"},
    {"Linux ada", "Linux"},
    {"?", "?"},
    {"", "?"},
};

START_TEST(systems_have_no_names)
{
    json_t *run = submitted_source();
    submitted_set(run, "host", "os", json_string(systems[_i].os));
    json_t *submission = bench_submission(run, 0), *again = bench_submission(submission, 0);
    ck_assert_str_eq(json_string_value(submitted_at(submission, "host/os")), systems[_i].published);
    ck_assert(json_equal(submission, again));
    json_decref(again);
    json_decref(submission);
    json_decref(run);
}
END_TEST

/* Each device is published with its own results and with the host's ceiling. */
START_TEST(each_device_has_its_results)
{
    json_t *run = submitted_source_on_twins();
    for (size_t device = 0; device < 2; device++) {
        json_t *submission = bench_submission(run, device);
        ck_assert_uint_eq(json_array_size(submitted_at(submission, "devices")), 1);
        ck_assert_uint_eq(json_array_size(submitted_at(submission, "results")),
                          device == 0 ? 5 : 2);
        ck_assert_uint_eq(json_array_size(submitted_at(submission, "left_out")), device == 0);
        char problem[BENCH_PROBLEM];
        bench_document document;
        ck_assert_msg(bench_document_take(submission, "twin", &document, problem), "%s", problem);
        const bench_figures *copy = &document.results[1];
        ck_assert_str_eq(copy->benchmark, "copy");
        ck_assert_str_eq(document.results[copy->ceiling_place].benchmark, "memcpy");
        ck_assert_int_eq(document.results[copy->ceiling_place].device, -1);
        bench_document_free(&document);
    }
    json_decref(run);
}
END_TEST

/* The self-check ------------------------------------------------------------------------------- */

static void check(json_t *submission, bench_reasons *reasons)
{
    char problem[BENCH_PROBLEM];
    bench_document document;
    ck_assert_msg(bench_document_take(submission, "made", &document, problem), "%s", problem);
    bench_self_check(&document, reasons);
    bench_document_free(&document);
}

START_TEST(a_good_run_passes)
{
    bench_reasons reasons;
    check(submitted_run(), &reasons);
    ck_assert_msg(reasons.count == 0, "%s", reasons.text[0]);
    json_t *run = submitted_run(); /* as on a system that does not count other processes */
    submitted_set(run, "noise", "other_cpus", json_null());
    check(run, &reasons);
    ck_assert_msg(reasons.count == 0, "%s", reasons.text[0]);
}
END_TEST

static const struct {
    const char *where, *name, *value, *reason;
} refused[] = {
    {"", "benchmark", "\"matmul\"", "it is a run of matmul alone, not a complete run"},
    {"", "seconds_per_result", "0.04", "each result had 0.04 s, less than 0.05 s"},
    {"", "time", "\"../../a\"", "\"time\" is '../../a', not like 2026-01-02T03:04:05Z"},
    {"", "time", "\"2026-01-02T03:04:05Z0\"",
     "\"time\" is '2026-01-02T03:04:05Z0', not like 2026-01-02T03:04:05Z"},
    {"", "time", "\"1970-01-01T00:00:09Z\"",
     "the machine's date was 1970-01-01, before tessera existed"},
    {"", "failures", "[{\"benchmark\": \"copy\", \"device\": 0, \"text\": \"wrong\"}]",
     "1 benchmarks failed, such as copy: wrong"},
    {"noise", "other_cpus", "0.21",
     "the machine was busy: other processes used 0.21 of its 2 CPUs during the run, more than "
     "0.20"},
    {"results/0/ceiling", "fraction", "0.4",
     "matmul f32 64×65×66 is given as 0.4 of fma_peak, but it is 0.5"},
    {"results/0/value", "median", "104",
     "matmul f32 64×65×66 is given as 104 GFLOP/s, but its samples give 100"},
    {"results/0/host_ns", "samples", "[8e3]",
     "matmul f32 64×65×66 is given as 100 GFLOP/s, but its samples give 125"},
    {"results/0/verified", "worst_error_over_tolerance", "1.5",
     "matmul f32 64×65×66 has 1.5 of the permitted error"},
    {"results/2/device_ns", "samples", "[11100]",
     "the device's clock is too fast: launch round trip took 1.11 times as long by it as by the "
     "host's"},
    {"results/3/device_ns", "samples", "[2900]",
     "the device's clock is too slow: by it, fma_peak f32 took 0.29 of the host's time"},
    {"devices/0", "driver_info", "\"built in /home/ada\"",
     "it contains the path 'built in /home/ada'"},
    {"devices/0", "uuid", "\"deadbeef-0000-0000-0000-000000000001\"",
     "devices[0].uuid is not as 'tessera bench --submit' writes it"},
    {"host", "os", "\"Linux 6.1.0-ada x86_64\"",
     "host.os is not as 'tessera bench --submit' writes it"},
    {"results/1/value", "best", "21.2000001",
     "results[1].value.best is not as 'tessera bench --submit' writes it"},
    {"devices/0", "serial", "\"SN12345\"", "devices[0]: \"serial\" is not published"},
};

START_TEST(a_bad_run_is_refused)
{
    json_t *run = submitted_run();
    json_t *value = json_loads(refused[_i].value, JSON_DECODE_ANY, NULL);
    ck_assert_ptr_nonnull(value);
    submitted_set(run, refused[_i].where, refused[_i].name, value);
    bench_reasons reasons;
    check(run, &reasons);
    ck_assert_msg(reasons.count == 1, "%d: %s; %s", reasons.count, reasons.text[0],
                  reasons.text[1]);
    ck_assert_str_eq(reasons.text[0], refused[_i].reason);
}
END_TEST

START_TEST(a_figure_above_its_ceiling_is_refused)
{
    json_t *run = submitted_run();
    bench_reasons reasons;
    made_set(run, 3, 93.4579, 90, 95); /* makes the product of 100 GFLOP/s exceed its ceiling */
    submitted_set(run, "results/3", "work", json_real(934579));
    submitted_set(run, "results/0/ceiling", "fraction", json_real(1.07));
    check(run, &reasons);
    ck_assert_int_eq(reasons.count, 1);
    ck_assert_str_eq(reasons.text[0],
                     "1 of 5 results are above their ceilings; matmul f32 64×65×66 "
                     "reaches 107 % of fma_peak");
}
END_TEST

/* Results of other software must not be published, because its authors may forbid it. */
START_TEST(peers_are_refused)
{
    json_t *run = submitted_run();
    bench_reasons reasons;
    submitted_set(run, "results/1", "peer",
                  json_pack("{s:s, s:f, s:{s:i, s:[f]}}", "name", "Other", "median", 1.0, "host_ns",
                            "repetitions", 1, "samples", 1.0));
    check(run, &reasons);
    ck_assert_int_eq(reasons.count, 1);
    ck_assert_str_eq(reasons.text[0], "results[1]: \"peer\" is not null");
}
END_TEST

START_TEST(noisy_results_are_refused)
{
    json_t *run = submitted_run();
    bench_reasons reasons;
    for (int i = 0; i < 2; i++) {
        char where[32];
        snprintf(where, sizeof where, "results/%d/value", i);
        submitted_set(run, where, "noisy", json_true());
    }
    check(run, &reasons);
    ck_assert_int_eq(reasons.count, 1);
    ck_assert_str_eq(reasons.text[0], "2 of 5 results are noisy, more than 25 %");
}
END_TEST

/* Removes each member in turn, and replaces it by two wrong values. Each time, the error must name
 * the member. Returns the number of tries. */
static int spoil(json_t *root, json_t *value)
{
    static const char *const wrong[] = {"[[]]", "-0.5"};
    const char *key;
    json_t *member, *members = json_copy(value); /* the loop changes the value itself */
    size_t i;
    int tried = 0;
    json_array_foreach(value, i, member) tried += spoil(root, member);
    json_object_foreach(members, key, member)
    {
        for (int w = -1; w < 2; w++) {
            char problem[BENCH_PROBLEM];
            if (w < 0)
                json_object_del(value, key);
            else
                json_object_set_new(value, key, json_loads(wrong[w], JSON_DECODE_ANY, NULL));
            ck_assert_msg(!bench_members_check(root, problem, sizeof problem), "%s %d", key, w);
            ck_assert_msg(strstr(problem, key) != NULL, "%s: %s", key, problem);
            tried++;
        }
        json_object_set(value, key, member);
        if (strcmp(key, "case") != 0)
            tried += spoil(root, member);
    }
    json_decref(members);
    return tried;
}

START_TEST(every_member_is_required_and_has_a_type)
{
    char problem[BENCH_PROBLEM];
    json_t *run = submitted_run();
    ck_assert_int_gt(spoil(run, run), 500);
    ck_assert_msg(bench_members_check(run, problem, sizeof problem), "%s", problem);
    submitted_set(run, "results/0/case", "x", json_true());
    ck_assert(!bench_members_check(run, problem, sizeof problem));
    ck_assert_str_eq(problem, "results[0]: \"x\" of the case is neither a string nor an integer");
    json_decref(run);
}
END_TEST

static const struct {
    const char *text;
    bool is_path;
} paths[] = {
    {"/home/ada", true},
    {"at /usr/lib/x", true},
    {"(/opt/a)", true},
    {"~/models", true},
    {"C:\\Users\\ada", true},
    {"file=/tmp/x", true},
    {"GB/s", false},
    {"1/2", false},
    {"a / b", false},
    {"Ryzen 9 / Zen", false},
    {"10:20", false},
    {"", false},
    {"/", false},
    {"~", false},
    {"and/or", false},
};

START_TEST(paths_are_found)
{
    json_t *text = json_pack("[{s:s}]", "a", paths[_i].text);
    ck_assert_msg((bench_find_path(text) != NULL) == paths[_i].is_path, "%s", paths[_i].text);
    json_decref(text);
}
END_TEST

START_TEST(names_are_whole_words)
{
    json_t *run = submitted_run();
    submitted_set(run, "devices/0", "driver_info", json_string("1.0 (built by ada@tower)"));
    ck_assert_ptr_nonnull(bench_find_name(run, "ada"));
    ck_assert_ptr_nonnull(bench_find_name(run, "tower"));
    ck_assert_ptr_null(bench_find_name(run, "ad"));
    ck_assert_ptr_null(bench_find_name(run, "tow"));
    ck_assert_ptr_null(bench_find_name(run, "uilt"));
    ck_assert_ptr_null(bench_find_name(run, ""));
    ck_assert_ptr_nonnull(bench_find_name(run, "4096x4096x4096")); /* in a note */
    ck_assert_ptr_null(bench_find_name(run, "matmul")); /* in no text that comes from the system */
    json_decref(run);
}
END_TEST

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

TESTS(bench_submit)
{
    tcase_add_test(tests, only_listed_members_are_published);
    tcase_add_loop_test(tests, systems_have_no_names, 0, COUNT(systems));
    tcase_add_test(tests, each_device_has_its_results);
    tcase_add_test(tests, a_good_run_passes);
    tcase_add_loop_test(tests, a_bad_run_is_refused, 0, COUNT(refused));
    tcase_add_test(tests, a_figure_above_its_ceiling_is_refused);
    tcase_add_test(tests, peers_are_refused);
    tcase_add_test(tests, noisy_results_are_refused);
    tcase_add_test(tests, every_member_is_required_and_has_a_type);
    tcase_add_loop_test(tests, paths_are_found, 0, COUNT(paths));
    tcase_add_test(tests, names_are_whole_words);
}
