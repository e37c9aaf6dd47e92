/* Tests tessera bench --tune: afterwards, products use the kernels that it reports as stored. Which
 * kernel wins does not matter here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/tool.h"
#include "support/cache_folder.h"
#include "support/check_main.h"
#include "tessera/tessera.h"
#include "tool_seam.h"

/* Tunes one class of x·wᵀ and one of x·w, quickly. */
#define TUNE "bench --tune --time 0.02 --dtype f32 --shape 40x64x48"

static tsr_device *device;
static tsr_stream *stream;

static void open_device(void)
{
    ck_assert_ok(tsr_device_open(NULL, &device));
    ck_assert_ok(tsr_stream_create(device, &stream));
}

static void close_device(void)
{
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
}

typedef struct operands {
    tsr_tensor *y, *x, *w;
    tsr_matmul_params params;
} operands;

static operands create(int64_t m, int64_t k, int64_t n, bool transposed)
{
    operands o = {.params = *tsr_matmul_params(.transpose_b = transposed)};
    ck_assert_ok(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){m, n}, &o.y));
    ck_assert_ok(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){m, k}, &o.x));
    ck_assert_ok(tsr_tensor_create(device, TSR_F32, 2,
                                   transposed ? (int64_t[]){n, k} : (int64_t[]){k, n}, &o.w));
    return o;
}

static void destroy(operands *o)
{
    tsr_tensor_destroy(&o->y);
    tsr_tensor_destroy(&o->x);
    tsr_tensor_destroy(&o->w);
}

static tsr__tuning_info look(const operands *o)
{
    tsr__tuning_info info;
    ck_assert_ok(tsr__tuning_inspect(stream, o->y, o->x, o->w, &o->params, &info));
    return info;
}

/* Stores the kernel "wide", which is slow but can compute any product, for the class of a
 * product. */
static void store_wide(int64_t m, int64_t k, int64_t n, bool transposed)
{
    open_device();
    operands o = create(m, k, n, transposed);
    ck_assert_ok(
        tsr__tuning_set(stream, o.y, o.x, o.w, &o.params, tsr__tuning_choice(.kernel = "wide")));
    ck_assert_ok(tsr__tuning_save(device));
    destroy(&o);
    close_device();
}

/* Asserts that products of the result's class use the kernel that it reports. */
static void check_class(const json_t *result)
{
    bool transposed = json_is_true(tool_member(result, "transposed"));
    operands o = create((int64_t)tool_number(result, "m"), (int64_t)tool_number(result, "k"),
                        (int64_t)tool_number(result, "n"), transposed);
    const json_t *winner = tool_member(result, "winner");
    const json_t *ratio = tool_member(result, "ratio");
    tsr__tuning_info info = look(&o);
    ck_assert_str_eq(tool_text(result, "dtype"), "f32");
    ck_assert_str_eq(tool_text(tool_member(result, "usual"), "kernel"), info.usual.kernel);
    ck_assert_int_eq(info.tuned, !json_is_null(winner));
    if (info.tuned) {
        ck_assert_str_eq(tool_text(winner, "kernel"), info.chosen.kernel);
        ck_assert_double_ge(tool_number(ratio, "median"), 1);
    }
    if (!json_is_null(ratio)) {
        ck_assert_double_le(tool_number(ratio, "p10"), tool_number(ratio, "median"));
        ck_assert_double_ge(tool_number(ratio, "p90"), tool_number(ratio, "median"));
        ck_assert_double_ge(tool_number(ratio, "pairs"), 7);
    }
    ck_assert_double_ge(tool_number(result, "tried"), 3);
    /* The smallest and the largest product of the class also use it. */
    operands small = create(33, 36, 36, transposed), large = create(64, 64, 64, transposed);
    ck_assert_int_eq(look(&small).tuned, info.tuned);
    ck_assert_int_eq(look(&large).tuned, info.tuned);
    destroy(&small);
    destroy(&large);
    destroy(&o);
}

START_TEST(products_follow_what_was_stored)
{
    /* Two tunings exist before: the first is measured again, the other belongs to another class. */
    store_wide(40, 64, 48, true);
    store_wide(100, 100, 100, true);
    json_t *document = tool_json(TUNE " --json", "tessera.tuning");
    const json_t *classes = tool_member(document, "classes"), *result;
    ck_assert_int_eq((int)json_array_size(classes), 2);
    ck_assert_int_eq((int)json_array_size(tool_member(document, "left_out")), 0);
    ck_assert_int_eq((int)json_array_size(tool_member(document, "devices")), 1);
    const json_t *stored = json_array_get(tool_member(document, "stored"), 0);
    open_device();
    char path[1024];
    ck_assert_ok(tsr__tuning_path(device, path, sizeof path));
    ck_assert_str_eq(tool_text(stored, "path"), path);
    ck_assert_int_eq(strncmp(path, cache_folder, strlen(cache_folder)), 0);
    ck_assert_int_eq(access(path, R_OK), 0);
    size_t i;
    json_array_foreach(classes, i, result)
    {
        ck_assert_int_eq(json_is_true(tool_member(result, "transposed")), i == 0);
        check_class(result);
    }
    operands other = create(100, 100, 100, true);
    tsr__tuning_info info = look(&other);
    ck_assert(info.tuned);
    ck_assert_str_eq(info.chosen.kernel, "wide");
    destroy(&other);
    close_device();
    json_decref(document);
}
END_TEST

START_TEST(prints_a_table)
{
    tool_result result = tool_run(TUNE " --device 0 -o /dev/null");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_nonnull(strstr(result.out, "times as fast"));
    ck_assert_ptr_nonnull(strstr(result.out, "\nf32 40x64x48 x·wᵀ  "));
    ck_assert_ptr_nonnull(strstr(result.out, "\nf32 40x64x48 x·w   "));
    ck_assert_ptr_nonnull(strstr(result.out, " of 2 classes have a winner; stored in /tmp/"));
    tool_result_free(&result);
    result = tool_run(TUNE " -o csv");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_int_eq(strncmp(result.out, "device,dtype,transposed,batch,m,k,n,usual,", 42), 0);
    ck_assert_int_eq(tool_count(result.out, "\r\n"), 3);
    ck_assert_int_eq(tool_count(result.out, ",f32,1,0,40,64,48,"), 1);
    tool_result_free(&result);
    result = tool_run(TUNE " -o md");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_int_eq(strncmp(result.out, "## ", 3), 0);
    ck_assert_int_eq(tool_count(result.out, "\n| f32 40x64x48 "), 2);
    tool_result_free(&result);
}
END_TEST

/* A product that takes longer than --time is left out. Faster devices need a larger one. */
START_TEST(products_that_take_too_long_are_left_out)
{
    char arguments[128], begin[64];
    open_device();
    bool is_cpu = tsr_device_get_info(device)->type == TSR_DEVICE_CPU;
    close_device();
    const int side = is_cpu ? 512 : 8192;
    snprintf(arguments, sizeof arguments,
             "bench --tune --json --time 0.001 --dtype f32 --shape %dx%dx%d", side, side, side);
    json_t *document = tool_json(arguments, "tessera.tuning");
    ck_assert_int_eq((int)json_array_size(tool_member(document, "classes")), 0);
    const json_t *left_out = tool_member(document, "left_out");
    ck_assert_int_eq((int)json_array_size(left_out), 2);
    const char *text = json_string_value(json_array_get(left_out, 0));
    snprintf(begin, sizeof begin, "f32 %dx%dx%d x·wᵀ: one product takes %s", side, side, side,
             is_cpu ? "0." : "");
    ck_assert_msg(strncmp(text, begin, strlen(begin)) == 0, "%s", text);
    json_decref(document);
}
END_TEST

/* Eight gigabytes of weights are more than CPU drivers have, and more than a
 * GPU allocates at once. */
START_TEST(products_without_memory_are_left_out)
{
    json_t *document =
        tool_json("bench --tune --json --dtype f32 --shape 1x32768x65536", "tessera.tuning");
    const json_t *left_out = tool_member(document, "left_out");
    ck_assert_int_eq((int)json_array_size(left_out), 2);
    const char *text = json_string_value(json_array_get(left_out, 0));
    ck_assert_msg(strstr(text, "device memory") != NULL, "%s", text);
    json_decref(document);
}
END_TEST

START_TEST(failures_have_a_reason)
{
    tool_fails(TUNE " --device no-such-device", "no-such-device");
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    tool_fails(TUNE, "cannot be written: No such file or directory");
    setenv("XDG_CACHE_HOME", cache_folder, 1);
}
END_TEST

TESTS(tune)
{
    tcase_set_timeout(tests, 240);
    tcase_add_checked_fixture(tests, cache_folder_make, cache_folder_remove);
    tcase_add_test(tests, products_follow_what_was_stored);
    tcase_add_test(tests, prints_a_table);
    tcase_add_test(tests, products_that_take_too_long_are_left_out);
    tcase_add_test(tests, products_without_memory_are_left_out);
    tcase_add_test(tests, failures_have_a_reason);
}
