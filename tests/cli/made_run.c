#include "cli/made_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check_main.h"

static json_t *samples(double ns)
{
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:[f,f,f]}", "repetitions", 3, "median", ns,
                     "p10", ns * 0.9, "p90", ns * 1.1, "min", ns * 0.9, "max", ns * 1.1, "samples",
                     ns * 0.9, ns, ns * 1.1);
}

static json_t *result(const char *benchmark, int device, json_t *which, const char *unit,
                      double median)
{
    json_t *place = device < 0 ? json_null() : json_integer(device);
    json_t *value =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:b}", "unit", unit, "median", median, "low",
                  median * 0.95, "high", median * 1.05, "best", median * 1.06, "noisy", 0);
    return json_pack("{s:s, s:b, s:o, s:o, s:f, s:n, s:o, s:n, s:{s:s, s:i, s:f}, s:o, s:n, s:n, "
                     "s:n, s:n}",
                     "benchmark", benchmark, "is_ceiling", 0, "case", which, "device", place,
                     "work", 1e6, "bytes", "value", value, "ceiling", "verified", "method",
                     "every element", "values", 4, "worst_error_over_tolerance", 0.5, "host_ns",
                     samples(1e4), "device_ns", "peer", "peak_bytes", "elsewhere");
}

static json_t *made_results(void)
{
    json_t *all = json_array();
    json_t *product = result(
        "matmul", 0, json_pack("{s:s, s:i, s:i, s:i}", "dtype", "f32", "m", 64, "k", 65, "n", 66),
        "GFLOP/s", 100);
    json_object_set_new(product, "bytes", json_real(5e4));
    json_object_set_new(
        product, "ceiling",
        json_pack("{s:i, s:s, s:f}", "result", 3, "benchmark", "fma_peak", "fraction", 0.5));
    json_object_set_new(product, "peer",
                        json_pack("{s:s, s:f, s:o}", "name", "OtherBLAS", "median", 150.0,
                                  "host_ns", samples(7e3)));
    json_array_append_new(all, product);
    json_array_append_new(
        all,
        result("copy", 0, json_pack("{s:s, s:i}", "what", "rows", "row_bytes", 64), "GB/s", 20));
    json_t *trip = result("launch", 0, json_pack("{s:s}", "what", "round trip"), "ns", 5e4);
    json_object_set_new(trip, "device_ns", samples(9e3));
    json_array_append_new(all, trip);
    json_t *peak = result("fma_peak", 0, json_pack("{s:s}", "dtype", "f32"), "GFLOP/s", 200);
    json_object_set_new(peak, "is_ceiling", json_true());
    json_array_append_new(all, peak);
    json_t *memory = result("memcpy", -1, json_pack("{s:i}", "threads", 2), "GB/s", 40);
    json_object_set_new(memory, "is_ceiling", json_true());
    json_array_append_new(all, memory);
    json_array_append_new(all,
                          result("rng", -1, json_pack("{s:s}", "generator", "philox"), "ns", 4));
    return all;
}

json_t *made_run(void)
{
    json_t *heaps =
        json_pack("[{s:I, s:b}, {s:I, s:b}]", "size_bytes", (json_int_t)8 << 30, "device_local", 1,
                  "size_bytes", (json_int_t)64 << 30, "device_local", 0);
    json_t *device =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:o}", "index", 0, "name",
                  "Made GPU", "type", "discrete", "vendor", "?", "driver_name", "made",
                  "driver_info", "1.0", "driver_version", 7, "api_version", "1.3.0", "uuid",
                  "00112233-4455-6677-8899-aabbccddeeff", "heaps", heaps);
    json_t *run = json_pack(
        "{s:s, s:i, s:s, s:n, s:s, s:f, s:{s:s, s:i, s:s}, s:{s:f, s:n, s:i, s:[s]}, s:f, s:[o], "
        "s:o, s:[{s:s, s:i, s:s}], s:[]}",
        "schema", "tessera.bench", "schema_version", 2, "tessera", "0.1.0", "benchmark", "time",
        "2026-01-02T03:04:05Z", "duration_s", 61.5, "host", "cpu", "Made CPU", "cpus", 2, "os",
        "Linux", "noise", "other_cpus", 0.9, "load_average", "noisy_results", 0, "warnings",
        "the machine was busy", "seconds_per_result", 0.2, "devices", device, "results",
        made_results(), "left_out", "benchmark", "matmul", "device", 0, "text",
        "f32 4096x4096x4096", "failures");
    ck_assert_ptr_nonnull(run);
    return run;
}

json_t *made_run_on_twins(void)
{
    json_t *run = made_run(), *devices = json_object_get(run, "devices");
    json_t *copy = json_deep_copy(made_result(run, 1));
    json_array_append_new(devices, json_deep_copy(json_array_get(devices, 0)));
    json_object_set_new(copy, "device", json_integer(1));
    json_array_append_new(json_object_get(run, "results"), copy);
    return run;
}

json_t *made_result(json_t *run, size_t which)
{
    json_t *one = json_array_get(json_object_get(run, "results"), which);
    ck_assert_ptr_nonnull(one);
    return one;
}

void made_set(json_t *run, size_t which, double median, double low, double high)
{
    json_t *value = json_object_get(made_result(run, which), "value");
    json_object_set_new(value, "median", json_real(median));
    json_object_set_new(value, "low", json_real(low));
    json_object_set_new(value, "high", json_real(high));
}

void made_write(json_t *run, char path[MADE_PATH])
{
    snprintf(path, MADE_PATH, "/tmp/tessera-test-XXXXXX");
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(json_dumpfd(run, file, 0), 0);
    close(file);
    json_decref(run);
}
