/* Every benchmark runs, verifies and reports on this driver. Speeds are nobody's business here. */
#include <math.h>
#include <string.h>

#include "cli/tool.h"
#include "support/check_main.h"

/* Statistics belong to their samples. */
static void check_samples(const json_t *samples)
{
    const json_t *all = tool_member(samples, "samples"), *one;
    size_t i;
    double min = tool_number(samples, "min"), p10 = tool_number(samples, "p10");
    double median = tool_number(samples, "median");
    double p90 = tool_number(samples, "p90"), max = tool_number(samples, "max");
    ck_assert(0 < min && min <= p10 && p10 <= median && median <= p90 && p90 <= max);
    ck_assert_double_ge(tool_number(samples, "repetitions"), 1);
    int below = 0, above = 0, count = 0;
    json_array_foreach(all, i, one)
    {
        double ns = json_real_value(one);
        ck_assert(ns >= min && ns <= max);
        below += ns <= median;
        above += ns >= median;
        count++;
    }
    ck_assert_int_ge(count, 1);
    ck_assert(2 * below >= count && 2 * above >= count);
}

static void check_result(const json_t *results, const json_t *result)
{
    const json_t *verified = tool_member(result, "verified");
    ck_assert_double_ge(tool_number(verified, "values"), 1);
    ck_assert_double_le(tool_number(verified, "worst_error_over_tolerance"), 1);

    const json_t *host = tool_member(result, "host_ns"), *device = tool_member(result, "device_ns");
    check_samples(host);
    if (!json_is_null(device))
        check_samples(device);

    const json_t *value = tool_member(result, "value");
    double median = tool_number(value, "median"), work = tool_number(result, "work");
    double host_ns = tool_number(host, "median");
    double expected = strcmp(tool_text(value, "unit"), "ns") == 0 ? host_ns / work : work / host_ns;
    ck_assert_double_eq_tol(median / expected, 1, 1e-9);
    ck_assert_double_le(tool_number(value, "low"), median);
    ck_assert_double_ge(tool_number(value, "high"), median);

    const json_t *ceiling = tool_member(result, "ceiling");
    if (!json_is_null(ceiling)) {
        const json_t *other = json_array_get(results, (size_t)tool_number(ceiling, "result"));
        ck_assert_ptr_nonnull(other);
        double whole = tool_number(tool_member(other, "value"), "median");
        ck_assert_double_eq_tol(tool_number(ceiling, "fraction"), median / whole, 1e-9);
    }
}

/* Runs the benchmark; all of its results are sound. Returns how many of them are no ceilings. */
static json_t *run_bench(const char *arguments, int *count)
{
    json_t *document = tool_json(arguments, "tessera.bench");
    const json_t *results = tool_member(document, "results"), *result;
    size_t i;
    *count = 0;
    json_array_foreach(results, i, result)
    {
        check_result(results, result);
        *count += json_is_false(tool_member(result, "is_ceiling"));
    }
    ck_assert_str_ne(tool_text(tool_member(document, "device"), "uuid"), "");
    ck_assert_double_ge(tool_number(tool_member(document, "host"), "cpus"), 1);
    return document;
}

START_TEST(matmul_measures_every_shape_and_dtype)
{
    int count;
    json_t *document =
        run_bench("bench matmul --json --time 0.005 --shape 33x65x17 --shape 1x100x70 "
                  "--dtype f32 --dtype f16 --dtype bf16",
                  &count);
    ck_assert_int_eq(count, 6);
    static const char *const dtypes[] = {"f32", "f32", "f16", "f16", "bf16", "bf16"};
    const json_t *result;
    size_t place;
    int i = 0;
    json_array_foreach(tool_member(document, "results"), place, result)
    {
        if (json_is_true(tool_member(result, "is_ceiling")))
            continue;
        const json_t *which = tool_member(result, "case");
        ck_assert_str_eq(tool_text(which, "dtype"), dtypes[i]);
        ck_assert_double_eq(tool_number(which, "k"), i % 2 == 0 ? 65 : 100);
        ck_assert_double_eq(tool_number(result, "work"),
                            i % 2 == 0 ? 2.0 * 33 * 65 * 17 : 2.0 * 100 * 70);
        ck_assert_str_eq(tool_text(tool_member(result, "ceiling"), "benchmark"), "fma_peak");
        i++;
    }
    json_decref(document);
}
END_TEST

START_TEST(copy_measures_every_case)
{
    int count;
    json_t *document = run_bench("bench copy --json --time 0.005 --size 1", &count);
    ck_assert_int_eq(count, 14);
    json_decref(document);
}
END_TEST

START_TEST(launch_starts_fresh_processes)
{
    int count;
    json_t *document = run_bench("bench launch --json --time 0.005", &count);
    ck_assert_int_eq(count, 12);
    const json_t *last = json_array_get(tool_member(document, "results"), 11);
    ck_assert_str_eq(tool_text(tool_member(last, "case"), "what"),
                     "fresh process, warm caches: second matmul");
    ck_assert_double_ge(tool_number(tool_member(last, "verified"), "values"), 3);
    json_decref(document);
}
END_TEST

START_TEST(first_measures_this_process)
{
    int count;
    json_t *document = run_bench("bench first --json --shape 8x16x8", &count);
    ck_assert_int_eq(count, 4);
    json_decref(document);
}
END_TEST

START_TEST(prints_a_table)
{
    tool_result result = tool_run("bench matmul --time 0.005 --shape 8x9x10 --device 0");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_nonnull(strstr(result.out, "\nceiling  fma_peak "));
    ck_assert_ptr_nonnull(strstr(result.out, "GFLOP/s"));
    ck_assert_ptr_nonnull(strstr(result.out, "\nf32    8  9  10  "));
    tool_result_free(&result);
}
END_TEST

START_TEST(failures_of_the_library_are_passed_on)
{
    tool_result result =
        tool_run("bench matmul --time 0.005 --shape 8x9x10 --device no-such-device");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_ptr_nonnull(strstr(result.err, "no-such-device"));
    tool_result_free(&result);

    /* Four gigabytes of weights are more than both CPU drivers have. */
    result = tool_run("bench matmul --time 0.005 --shape 1x32768x65536");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_ptr_nonnull(strstr(result.err, "device memory"));
    tool_result_free(&result);
}
END_TEST

TESTS(bench)
{
    tcase_add_test(tests, matmul_measures_every_shape_and_dtype);
    tcase_add_test(tests, copy_measures_every_case);
    tcase_add_test(tests, launch_starts_fresh_processes);
    tcase_add_test(tests, first_measures_this_process);
    tcase_add_test(tests, prints_a_table);
    tcase_add_test(tests, failures_of_the_library_are_passed_on);
}
