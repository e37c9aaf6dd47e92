/* Tests the complete run, which `tessera bench` without a name performs. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/submit/members.h"
#include "bench/submit/submit.h"
#include "bench/submit/traces.h"
#include "cli/bench_result.h"
#include "cli/tool.h"
#include "support/check_main.h"

/* Counts the products that have a result or are listed as left out. */
static int products(const json_t *document, const char *name)
{
    int count = bench_result_count(document, name);
    const json_t *note;
    size_t i;
    json_array_foreach(tool_member(document, "left_out"), i, note) count +=
        strcmp(tool_text(note, "benchmark"), name) == 0;
    return count;
}

/* Checks that what --submit would publish of the run is complete and names neither machine, user
 * nor folders. */
static void can_be_published(const json_t *run)
{
    char machine[BENCH_TRACE], user[BENCH_TRACE], problem[BENCH_PROBLEM];
    json_t *submission = bench_submission(run, 0), *again = bench_submission(submission, 0);
    ck_assert_msg(bench_members_check(submission, problem, sizeof problem), "%s", problem);
    ck_assert(json_equal(submission, again));
    ck_assert_ptr_null(bench_find_path(submission));
    bench_own_names(machine, user);
    ck_assert_ptr_null(bench_find_name(submission, machine));
    ck_assert_ptr_null(bench_find_name(submission, user));
    json_decref(again);
    json_decref(submission);
}

/* After all checks, the run is written to the file that the environment names in TEST_COMPLETE_RUN.
 */
START_TEST(without_a_name_all_benchmarks_run)
{
    const char *file = getenv("TEST_COMPLETE_RUN");
    if (file)
        remove(file);
    static const char *const all[] = {"fma_peak",  "launch", "matmul", "batched",
                                      "attention", "copy",   "memcpy", "rng",
                                      "sample",    "plan",   "grammar"};
    static const struct {
        const char *name;
        int count;
    } counted[] = {{"elementwise", 17}, {"embedding", 2}, {"optimizer", 3}, {"random", 3}};
    int count;
    json_t *document = bench_result_run_on_device("bench --json --time 0.002", &count);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ck_assert_msg(bench_result_count(document, all[i]) > 0, "no %s", all[i]);
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        ck_assert_msg(bench_result_count(document, counted[i].name) == counted[i].count,
                      "%d results of %s", bench_result_count(document, counted[i].name),
                      counted[i].name);
    ck_assert_int_eq(bench_result_count(document, "first"), 0);
    ck_assert(json_is_null(tool_member(document, "benchmark")));
    ck_assert_int_eq((int)json_array_size(tool_member(document, "failures")), 0);
    /* These drivers need more than the time that the test allows (2 ms) for a product of 4096 ×
     * 4096 × 4096, so it must be listed as left out. */
    const json_t *note;
    size_t i;
    bool found = false;
    json_array_foreach(tool_member(document, "left_out"), i, note) found =
        found || strcmp(tool_text(note, "text"), "f32 4096x4096x4096") == 0;
    ck_assert(found);
    ck_assert_int_eq(products(document, "matmul"), 30);
    ck_assert_int_eq(products(document, "batched"), 9);
    ck_assert_int_eq(products(document, "attention"), 21);
    can_be_published(document);
    if (file)
        ck_assert_int_eq(json_dump_file(document, file, JSON_INDENT(1)), 0);
    json_decref(document);
}
END_TEST

TESTS(bench_complete)
{
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, without_a_name_all_benchmarks_run);
}
