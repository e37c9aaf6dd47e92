/* Tests that every benchmark runs, verifies and reports on this driver. Speeds are not tested. The
 * benchmark of attention needs minutes on a CPU, so only the complete run measures it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_result.h"
#include "cli/made_run.h"
#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"

START_TEST(matmul_measures_every_shape_and_dtype)
{
    int count;
    json_t *document = bench_result_run_on_device(
        "bench matmul --json --time 0.005 --shape 33x65x17 --shape 1x100x70 "
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
        ck_assert_double_eq(tool_number(result, "bytes"),
                            (i % 2 == 0 ? 33 * 65 + 65 * 17 + 33 * 17 : 100 + 7000 + 70) *
                                (i < 2 ? 4.0 : 2.0));
        ck_assert_int_eq((int)tool_number(result, "device"), 0);
        i++;
    }
    json_decref(document);
}
END_TEST

START_TEST(copy_measures_every_case)
{
    int count;
    json_t *document =
        bench_result_run_on_device("bench copy --json --time 0.005 --size 1", &count);
    ck_assert_int_eq(count, 17);
    json_decref(document);
}
END_TEST

START_TEST(launch_starts_fresh_processes)
{
    int count;
    json_t *document = bench_result_run_on_device("bench launch --json --time 0.005", &count);
    ck_assert_int_eq(count, 12);
    const json_t *last = json_array_get(tool_member(document, "results"), 11);
    ck_assert_str_eq(tool_text(tool_member(last, "case"), "what"),
                     "fresh process, warm caches: second matmul");
    ck_assert_double_ge(tool_number(tool_member(last, "verified"), "values"), 3);
    json_decref(document);

    /* The error must name the benchmark 'bench launch', not the command 'tessera launch'. */
    setenv("TMPDIR", "/proc/nonexistent", 1);
    tool_result result = tool_run("bench launch --time 0.001");
    unsetenv("TMPDIR");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err, "tessera: bench launch: no temporary folder in /proc/nonexistent: "
                                 "No such file or directory\n");
    tool_result_free(&result);
}
END_TEST

/* Writes a second description of this driver, so that its device appears twice. The path of its
 * library may be relative to the description. */
static void write_duplicate(const char *icd, char *path, size_t size)
{
    char made[MADE_PATH];
    json_t *description = json_load_file(icd, 0, NULL);
    json_t *driver = json_object_get(description, "ICD");
    const char *library = tool_text(driver, "library_path");
    const char *file = strrchr(icd, '/');
    ck_assert_ptr_nonnull(file);
    if (library[0] == '.')
        json_object_set_new(driver, "library_path",
                            json_sprintf("%.*s/%s", (int)(file - icd), icd, library));
    made_write(description, made);
    snprintf(path, size, "%s.json", made); /* the loader ignores other names */
    ck_assert_int_eq(rename(made, path), 0);
}

/* If a device appears twice, for example with two drivers of one GPU, both have the same UUID. The
 * tool must still distinguish them. */
START_TEST(launch_distinguishes_devices_of_one_uuid)
{
    const char *own = getenv("VK_DRIVER_FILES");
    char duplicate[MADE_PATH + 8], both[1024];
    int count;
    ck_assert_ptr_nonnull(own);
    write_duplicate(own, duplicate, sizeof duplicate);
    snprintf(both, sizeof both, "%s:%s", own, duplicate);
    setenv("VK_DRIVER_FILES", both, 1);
    setenv("VK_ICD_FILENAMES", both, 1);
    json_t *document =
        bench_result_run_on_device("bench launch --json --time 0.005 --device 1", &count);
    remove(duplicate);
    ck_assert_int_eq(count, 12);
    json_decref(document);
}
END_TEST

START_TEST(first_measures_this_process)
{
    int count;
    json_t *document = bench_result_run_on_device("bench first --json --shape 8x16x8", &count);
    ck_assert_int_eq(count, 4);
    json_decref(document);
}
END_TEST

static bool is_cpu(const json_t *document)
{
    const json_t *device = json_array_get(tool_member(document, "devices"), 0);
    return strcmp(tool_text(device, "type"), "cpu") == 0;
}

START_TEST(peak_measures_the_ceilings)
{
    int count;
    json_t *document = bench_result_run_on_device("bench peak --json --time 0.002", &count);
    ck_assert_int_eq(count, 0);
    const json_t *device = json_array_get(tool_member(document, "devices"), 0);
    int dtypes = json_is_true(tool_member(device, "fp16")) ? 2 : 1;
    ck_assert_int_eq(bench_result_count(document, "fma_peak"), 4 * dtypes);
    ck_assert_int_eq(bench_result_count(document, "device_copy"), 1);
    ck_assert_int_eq(bench_result_count(document, "memory_stream"), 3);
    ck_assert_int_eq(bench_result_count(document, "memcpy"), is_cpu(document) ? 1 : 0);
    json_decref(document);
}
END_TEST

START_TEST(a_result_has_the_ceiling_of_its_run)
{
    int count;
    json_t *document = bench_result_run_on_device("bench random --json --time 0.001", &count);
    ck_assert_int_eq(count, 3);
    const json_t *results = tool_member(document, "results");
    const json_t *last = json_array_get(results, json_array_size(results) - 1);
    ck_assert_str_eq(tool_text(last, "benchmark"), "random");
    const char *ceiling = tool_text(tool_member(last, "ceiling"), "benchmark");
    if (is_cpu(document))
        ck_assert_str_eq(ceiling, "memcpy");
    else
        ck_assert(strcmp(ceiling, "device_copy") == 0 || strcmp(ceiling, "memory_stream") == 0);
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
    bool on_cpu = strstr(result.out, " (cpu), ") != NULL;
    if (on_cpu)
        ck_assert(strstr(result.out, "  of memcpy  ") != NULL ||
                  strstr(result.out, "  of fma_peak  ") != NULL);
    else
        ck_assert(strstr(result.out, "  of device_copy  ") != NULL ||
                  strstr(result.out, "  of memory_stream  ") != NULL ||
                  strstr(result.out, "  of fma_peak  ") != NULL);
    tool_result_free(&result);

    /* On a narrow terminal each row is shown as a block of lines. */
    result = tool_run_in("bench copy --time 0.001 --size 1 --device 0", "C", "40");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_ptr_nonnull(strstr(result.out, "\nwhat         contiguous\n"));
    size_t width = 0;
    for (const char *at = result.out; *at != '\0'; at++) {
        width = *at == '\n' ? 0 : width + 1;
        ck_assert(width <= 40 && (unsigned char)*at < 0x80);
    }
    tool_result_free(&result);
}
END_TEST

static const char peer_run[] = "bench matmul --peer --json --time 0.002 --shape 33x65x17";

/* Returns true if a warning of the run is about the library that is compared with (--peer). */
static bool warns_of_peer(const json_t *document)
{
    const json_t *warning;
    size_t i;
    bool found = false;
    json_array_foreach(tool_member(tool_member(document, "noise"), "warnings"), i, warning) found =
        found || strstr(json_string_value(warning), "OPENBLAS_CORETYPE=") != NULL;
    return found;
}

START_TEST(a_peer_is_verified_and_named)
{
    int count;
    setenv("LD_LIBRARY_PATH", TEST_STAND_IN, 1);
    json_t *document = bench_result_run_on_device(peer_run, &count);
    const json_t *results = tool_member(document, "results");
    const json_t *peer = tool_member(json_array_get(results, json_array_size(results) - 1), "peer");
    ck_assert_str_eq(tool_text(peer, "name"), "OpenBLAS 9.8.7 sgemm for SkylakeX, 2 threads");
    ck_assert_double_gt(tool_number(peer, "median"), 0);
    ck_assert(!warns_of_peer(document));
    json_decref(document);

    /* OpenBLAS kernels for an old processor cause a warning, unless this processor is as old. */
    setenv("STAND_IN_CORE", "Prescott", 1);
    document = bench_result_run_on_device(peer_run, &count);
#if defined(__x86_64__)
    ck_assert(warns_of_peer(document) == (bool)__builtin_cpu_supports("avx2"));
#else
    ck_assert(!warns_of_peer(document));
#endif
    json_decref(document);

    setenv("STAND_IN_WRONG", "1", 1);
    tool_result result = tool_run(peer_run);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_ptr_nonnull(strstr(result.err, "OpenBLAS: "));
    tool_result_free(&result);
}
END_TEST

/* Verified results beside those of the library's dense products, or of copies and dense rows. */
START_TEST(layers_have_dense_peers)
{
    static const struct {
        const char *run;
        const char *peers[2];
    } cases[] = {
        {"bench delta --json --time 0.001",
         {"dense products with the same operations", "a copy of the token's states"}},
        {"bench experts --json --time 0.001 --dtype f16",
         {"one dense product with the same operations",
          "dense rows of the same format and number"}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int count;
        json_t *document = bench_result_run_on_device(cases[c].run, &count);
        const json_t *results = tool_member(document, "results");
        const size_t rows = json_array_size(results);
        ck_assert_int_eq(count, 2);
        for (size_t i = 0; i < 2; i++) {
            const json_t *peer = tool_member(json_array_get(results, rows - 2 + i), "peer");
            ck_assert_str_eq(tool_text(peer, "name"), cases[c].peers[i]);
            ck_assert_double_gt(tool_number(peer, "median"), 0);
        }
        json_decref(document);
    }
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

    /* Eight gigabytes of weights are more than CPU drivers have, and more than a GPU allocates at
     * once. */
    result = tool_run("bench matmul --time 0.005 --shape 1x32768x65536");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_ptr_nonnull(strstr(result.err, "device memory"));
    tool_result_free(&result);
}
END_TEST

TESTS(bench)
{
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, matmul_measures_every_shape_and_dtype);
    tcase_add_test(tests, copy_measures_every_case);
    tcase_add_test(tests, launch_starts_fresh_processes);
    tcase_add_test(tests, launch_distinguishes_devices_of_one_uuid);
    tcase_add_test(tests, first_measures_this_process);
    tcase_add_test(tests, peak_measures_the_ceilings);
    tcase_add_test(tests, a_result_has_the_ceiling_of_its_run);
    tcase_add_test(tests, prints_a_table);
    tcase_add_test(tests, a_peer_is_verified_and_named);
    tcase_add_test(tests, layers_have_dense_peers);
    tcase_add_test(tests, failures_of_the_library_are_passed_on);
}
