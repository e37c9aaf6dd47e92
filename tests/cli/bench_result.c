#include "cli/bench_result.h"

#include <math.h>
#include <string.h>

#include "cli/tool.h"
#include "support/check_main.h"

/* Checks that the statistics follow from the samples. */
static void check_samples(const json_t *samples)
{
    const json_t *all = tool_member(samples, "samples"), *one;
    size_t i;
    double min = tool_number(samples, "min"), p10 = tool_number(samples, "p10");
    double median = tool_number(samples, "median");
    double p90 = tool_number(samples, "p90"), max = tool_number(samples, "max");
    ck_assert_msg(0 < min && min <= p10 && p10 <= median && median <= p90 && p90 <= max,
                  "min %.17g, p10 %.17g, median %.17g, p90 %.17g, max %.17g", min, p10, median, p90,
                  max);
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
        double whole = tool_number(tool_member(other, "value"), "median"), own = median;
        /* Rates in different units, such as GFLOP/s of an operation and GB/s of its ceiling, are
         * compared in bytes. */
        if (strcmp(tool_text(value, "unit"), tool_text(tool_member(other, "value"), "unit")) != 0)
            own = tool_number(result, "bytes") / host_ns;
        ck_assert_double_eq_tol(tool_number(ceiling, "fraction") / (own / whole), 1, 1e-9);
    }
}

json_t *bench_result_run(const char *arguments, int *count)
{
    json_t *document = tool_json_version(arguments, "tessera.bench", 2);
    const json_t *results = tool_member(document, "results"), *result;
    size_t i;
    *count = 0;
    json_array_foreach(results, i, result)
    {
        check_result(results, result);
        *count += json_is_false(tool_member(result, "is_ceiling"));
    }
    ck_assert_double_ge(tool_number(tool_member(document, "host"), "cpus"), 1);
    return document;
}

json_t *bench_result_run_on_device(const char *arguments, int *count)
{
    json_t *document = bench_result_run(arguments, count);
    const json_t *devices = tool_member(document, "devices");
    ck_assert_int_eq((int)json_array_size(devices), 1);
    ck_assert_str_ne(tool_text(json_array_get(devices, 0), "uuid"), "");
    return document;
}

int bench_result_count(const json_t *document, const char *benchmark)
{
    const json_t *result;
    size_t i;
    int count = 0;
    json_array_foreach(tool_member(document, "results"), i, result) count +=
        strcmp(tool_text(result, "benchmark"), benchmark) == 0;
    return count;
}
