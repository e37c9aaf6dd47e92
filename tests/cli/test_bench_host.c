/* The benchmarks that need no device: they run, verify and report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_result.h"
#include "cli/tool.h"
#include "support/check_main.h"
#include "tsr_config.h"

static const struct {
    const char *arguments;
    int results, with_memory;
} benchmarks[] = {
    {"bench rng --json --time 0.001", 5, 0},
    {"bench sample --json --time 0.001", 7, 1},
    {"bench plan --json --time 0.001", 4, 0},
#if TSR__HAVE_UCX
    {"bench all-reduce --ranks 2 --json --time 0.001", 10, 0},
#endif
};

/* A table of 4 bytes for each of 10^7 items is in it. */
static int with_memory(const json_t *document)
{
    int measured = 0;
    const json_t *result;
    size_t i;
    json_array_foreach(tool_member(document, "results"), i, result)
    {
        if (json_is_null(tool_member(result, "peak_bytes")))
            continue;
        ck_assert_double_gt(tool_number(result, "peak_bytes"), 4e7);
        ck_assert_ptr_nonnull(strstr(tool_text(result, "elsewhere"), "690 MiB"));
        measured++;
    }
    return measured;
}

START_TEST(every_result_is_sound)
{
    int count;
    json_t *document = bench_result_run(benchmarks[_i].arguments, &count);
    ck_assert_int_eq(count, benchmarks[_i].results);
    ck_assert_int_eq(with_memory(document), benchmarks[_i].with_memory);
    ck_assert(json_is_null(tool_member(document, "device")));
    json_decref(document);
}
END_TEST

START_TEST(large_weights)
{
    int count;
    if (getenv("TESSERA_TEST_HUGE") == NULL) {
        fputs("bench sample --large takes 2 GiB and is skipped; TESSERA_TEST_HUGE=1 runs it\n",
              stderr);
        return;
    }
    json_decref(bench_result_run("bench sample --large --json --time 0.001", &count));
    ck_assert_int_eq(count, 9);
}
END_TEST

START_TEST(prints_a_table)
{
    tool_result result = tool_run("bench sample --time 0.002");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_null(strstr(result.out, "\ndevice "));
    ck_assert_ptr_nonnull(strstr(result.out, "peak memory  elsewhere"));
    ck_assert_ptr_nonnull(strstr(result.out, "\nelsewhere: "));
    ck_assert_ptr_nonnull(strstr(result.out, "\nfeistel: an index, rank 3 of 8 "));
    tool_result_free(&result);
}
END_TEST

static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"bench rng --device 0", "tessera: bench: rng does not take --device\n"},
    {"bench rng --large", "tessera: bench: rng does not take --large\n"},
    {"bench plan --size 3", "tessera: bench: plan does not take --size\n"},
    {"bench frob", "tessera: bench: there is no benchmark 'frob'; 'tessera help bench' lists "
                   "them\n"},
    {"bench", "tessera: bench: which benchmark? 'tessera help bench' lists them\n"},
};

START_TEST(refuses_wrong_arguments)
{
    tool_result result = tool_run(mistakes[_i].arguments);
    ck_assert_str_eq(result.err, mistakes[_i].sentence);
    ck_assert_str_eq(result.out, "");
    ck_assert_int_eq(result.exit_code, 2);
    tool_result_free(&result);
}
END_TEST

TESTS(bench_host)
{
    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, every_result_is_sound, 0,
                        (int)(sizeof benchmarks / sizeof *benchmarks));
    tcase_add_test(tests, large_weights);
    tcase_add_test(tests, prints_a_table);
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
}
