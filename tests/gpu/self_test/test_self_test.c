/* The self-test of kernels: with a driver that is right, with kernels that are broken on purpose by
 * changing their SPIR-V; and what it remembers. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"
#include "gpu/checks/cases.h"
#include "gpu/checks/tested_kernels.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/matmul/tuning/tuning.h"
#include "gpu/ops/common/segments.h"
#include "gpu/pipeline/pipeline.h"
#include "gpu/self_test/results.h"
#include "gpu/self_test/self_test.h"
#include "gpu/stream/state.h"
#include "support/cache_folder.h"
#include "support/check_main.h"
#include "support/gpu.h"
#include "tessera/moe.h"

/* Opens the device with the choices for GPUs, whose kernels have alternatives. */
static void open_as_gpu(const char *mode)
{
    if (mode)
        setenv("TESSERA_SELF_TEST", mode, 1);
    else
        unsetenv("TESSERA_SELF_TEST");
    gpu_setup_as_gpu();
}

static const tsr__self_test *result_of(const tsr__self_tests *tests, const char *kernel,
                                       tsr_dtype dtype)
{
    for (int i = 0; i < tests->count; i++)
        if (strcmp(tests->tests[i].kernel, kernel) == 0 && tests->tests[i].dtype == dtype)
            return &tests->tests[i];
    return NULL;
}

static tsr__self_tests stored(void)
{
    tsr_device_list *list = NULL;
    tsr__self_tests tests;
    GPU_OK(tsr_device_list_create(&list));
    GPU_OK(tsr__self_tests_find(list->devices[0], &tests));
    tsr_device_list_destroy(&list);
    return tests;
}

/* Breaking kernels ----------------------------------------------------------------------------- */

/* From the specifications of SPIR-V and of its instructions for GLSL. */
enum { OP_NOP = 0, OP_EXT_INST = 12, OP_STORE = 62, OP_FADD = 129, OP_FSUB = 131, OP_FMUL = 133 };
enum {
    HEADER_WORDS = 5,
    STORE_WORDS = 5 /* the length of an OpStore to an address, which includes an alignment */
};
enum { GLSL_FMIX = 46, GLSL_FMA = 50 };

static uint32_t *broken[4]; /* freed by the fixture */
static int broken_count;

static int replace_opcode(uint32_t *code, size_t words, uint32_t from, uint32_t to)
{
    int count = 0;
    for (size_t at = HEADER_WORDS; at < words; at += code[at] >> 16)
        if ((code[at] & 0xffff) == from) {
            code[at] = (code[at] & 0xffff0000) | to;
            count++;
        }
    return count;
}

static int replace_fma(uint32_t *code, size_t words)
{
    int count = 0;
    for (size_t at = HEADER_WORDS; at < words; at += code[at] >> 16)
        if ((code[at] & 0xffff) == OP_EXT_INST && code[at + 4] == GLSL_FMA) {
            code[at + 4] = GLSL_FMIX;
            count++;
        }
    return count;
}

/* Removes stores to addresses. Returns their number. */
static int drop_stores(uint32_t *code, size_t words)
{
    int count = 0;
    for (size_t at = HEADER_WORDS; at < words; at += code[at] >> 16)
        if (code[at] == (STORE_WORDS << 16 | OP_STORE)) {
            for (size_t i = 0; i < STORE_WORDS; i++)
                code[at + i] = 1 << 16 | OP_NOP;
            count++;
        }
    return count;
}

/* Turns the shader's multiplications into additions, and its fused multiply-adds into
 * interpolations. If it has neither, turns its additions into subtractions. */
static int break_arithmetic(uint32_t *code, size_t words)
{
    const int count = replace_fma(code, words) + replace_opcode(code, words, OP_FMUL, OP_FADD);
    return count > 0 ? count : replace_opcode(code, words, OP_FADD, OP_FSUB);
}

static void break_with(tsr__shader shader, int (*change)(uint32_t *code, size_t words))
{
    const tsr__shader_binary *binary = &tsr__shader_binaries[shader];
    const size_t bytes = binary->variant[gpu->storage].size_bytes;
    uint32_t *code = malloc(bytes);
    ck_assert_ptr_nonnull(code);
    memcpy(code, binary->variant[gpu->storage].code, bytes);
    ck_assert_int_gt(change(code, bytes / 4), 0);
    GPU_OK(tsr__pipelines_replace(gpu, shader, code, bytes));
    broken[broken_count++] = code;
}

static void break_shader(tsr__shader shader)
{
    break_with(shader, break_arithmetic);
}

static void make_folder(void)
{
    cache_folder_make();
}

static void remove_folder(void)
{
    for (int i = 0; i < broken_count; i++)
        free(broken[i]);
    broken_count = 0;
    cache_folder_remove();
}

/* Kernels of products -------------------------------------------------------------------------- */

/* Computes a product of ones: every element of y is `k`. */
static tsr_status product_of(tsr_dtype dtype, int64_t m, int64_t k, double *out)
{
    const int64_t n = 40;
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){m, n});
    tsr_tensor *a = gpu_new(dtype, 2, (int64_t[]){m, k}), *b = gpu_new(dtype, 2, (int64_t[]){n, k});
    GPU_OK(tsr_fill(queue, a, 1));
    GPU_OK(tsr_fill(queue, b, 1));
    tsr_status status = tsr_matmul(queue, y, a, b, tsr_matmul_params(.transpose_b = true));
    if (status == TSR_OK) {
        double *values = malloc((size_t)(m * n) * sizeof *values);
        gpu_get(y, values);
        *out = values[m * n - 1];
        free(values);
    }
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&y);
    return status;
}

static tsr_status product(tsr_dtype dtype, int64_t m, double *out)
{
    return product_of(dtype, m, 24, out);
}

static void product_is_right(tsr_dtype dtype)
{
    double last = 0;
    GPU_OK(product(dtype, 33, &last));
    ck_assert_double_eq(last, 24);
}

START_TEST(right_kernels_pass)
{
    open_as_gpu(NULL);
    product_is_right(TSR_F16);
    gpu_teardown();
    tsr__self_tests tests = stored();
    ck_assert_int_ge(tests.count, 1);
    for (int i = 0; i < tests.count; i++)
        ck_assert_msg(tests.tests[i].right, "%s failed", tests.tests[i].kernel);
    ck_assert_ptr_nonnull(result_of(&tests, "tiled-s", TSR_F16));
    ck_assert_ptr_null(result_of(&tests, "tiled-s", TSR_F32));
}
END_TEST

START_TEST(the_next_kernel_takes_over_and_this_is_remembered)
{
    open_as_gpu(NULL);
    break_shader(TSR__SHADER_MATMUL_TILED);
    product_is_right(TSR_F32);
    gpu_teardown();
    tsr__self_tests tests = stored();
    const tsr__self_test *tiled = result_of(&tests, "tiled-s", TSR_F32),
                         *wide = result_of(&tests, "wide", TSR_F32);
    ck_assert(tiled && !tiled->right);
    ck_assert(wide && wide->right);

    /* No kernel is replaced now, but the driver is the same. */
    open_as_gpu(NULL);
    tsr_tensor *t = gpu_new(TSR_F32, 2, (int64_t[]){40, 40});
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){40, 40});
    tsr__tuning_info info;
    GPU_OK(tsr__tuning_inspect(queue, y, t, t, NULL, &info));
    ck_assert_str_eq(info.chosen.kernel, "wide");
    gpu->self_tested = false;
    GPU_OK(tsr__tuning_inspect(queue, y, t, t, NULL, &info));
    ck_assert_str_eq(info.chosen.kernel, "tiled-s");
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&t);
    gpu_teardown();
}
END_TEST

/* A form of a kernel can be wrong although the plain form is right. A stored result says so here.
 * Operations that would use the form compute right results without it: with it, they would fail.
 * CPU drivers take half a minute to compile those of attention as GPUs have them. */
START_TEST(a_form_that_has_failed_is_replaced)
{
    static const struct {
        const char *name;
        tsr__case_fn *run;
    } forms[] = {{"norm_grad_added", tsr__case_norm_grad_added},
                 {"rope_append_apart", tsr__case_rope_append_apart}};
    enum { FORMS = sizeof forms / sizeof *forms };
    tsr__self_tests failed = {.count = FORMS};
    open_as_gpu(NULL);
    for (int i = 0; i < FORMS; i++) {
        failed.tests[i].dtype = TSR_F32;
        snprintf(failed.tests[i].kernel, sizeof failed.tests[i].kernel, "%s", forms[i].name);
    }
    tsr__results_store(&gpu->info, gpu->storage, &failed);
    gpu_teardown();
    open_as_gpu(NULL);
    for (int i = 0; i < FORMS; i++) {
        bool right = false;
        GPU_OK(tsr__case_run(gpu, forms[i].run, TSR_F32, &right));
        ck_assert_msg(right, "%s: the result is wrong", forms[i].name);
        ck_assert(!tsr__self_test_kernel(gpu, forms[i].name, TSR_F32));
    }
    gpu_teardown();
}
END_TEST

START_TEST(an_error_if_no_kernel_is_left)
{
    double last = 0;
    open_as_gpu(NULL);
    break_shader(TSR__SHADER_MATMUL_TILED);
    break_shader(TSR__SHADER_MATMUL_WIDE);
    for (int i = 0; i < 2; i++)
        GPU_FAILS(product(TSR_F32, 33, &last), TSR_ERR_UNSUPPORTED,
                  "has failed its self-test: tiled-s, wide; TESSERA_SELF_TEST=off uses them "
                  "nevertheless");
    /* The kernels for few rows are not broken. */
    GPU_OK(product(TSR_F32, 3, &last));
    ck_assert_double_eq(last, 24);
    gpu_teardown();
}
END_TEST

/* k is so long that the library would divide it into ranges, and y has few tiles. */
START_TEST(without_the_sum_k_is_not_split)
{
    const int64_t k = 1024;
    double last = 0;
    open_as_gpu(NULL);
    break_with(TSR__SHADER_MATMUL_SUM, drop_stores);
    GPU_OK(product_of(TSR_F32, 33, k, &last));
    ck_assert_double_eq(last, (double)k);
    gpu_teardown();
    tsr__self_tests tests = stored();
    const tsr__self_test *sum = result_of(&tests, "matmul_sum", TSR_F32);
    ck_assert(sum && !sum->right);
}
END_TEST

START_TEST(switched_off_self_tests)
{
    double last = 0;
    open_as_gpu("off");
    break_shader(TSR__SHADER_MATMUL_TILED);
    GPU_OK(product(TSR_F32, 33, &last));
    ck_assert_double_ne(last, 24);
    gpu_teardown();
    tsr__self_tests tests = stored();
    ck_assert_int_eq(tests.count, 0);
}
END_TEST

/* Other kernels -------------------------------------------------------------------------------- */

static const struct broken_kernel {
    tsr__shader shader;
    const char *name;
    bool silent; /* broken by removing its stores, because it has hardly any arithmetic */
} kernels[] = {
    {TSR__SHADER_SOFTMAX, "softmax", false},
    {TSR__SHADER_SOFTMAX, "softmax_divided", false},
    {TSR__SHADER_SOFTMAX_GRAD, "softmax_grad_divided", false},
    {TSR__SHADER_NORM, "norm_divided", false},
    {TSR__SHADER_CROSS_ENTROPY, "cross_entropy_divided", false},
    {TSR__SHADER_CROSS_ENTROPY_SHARD, "entropy_shard_divided", false},
    {TSR__SHADER_NORM, "norm", false},
    {TSR__SHADER_REDUCE_ROWS, "reduce_rows", false},
    {TSR__SHADER_ELEMENTWISE, "elementwise", false},
    {TSR__SHADER_ELEMENTWISE3, "elementwise3", true},
    {TSR__SHADER_ACTIVATE, "activate", false},
    {TSR__SHADER_ACTIVATE, "activate_grad", false},
    {TSR__SHADER_ACTIVATE_MUL, "activate_mul", false},
    {TSR__SHADER_FILL, "fill", true},
    {TSR__SHADER_ROPE, "rope", false},
    {TSR__SHADER_ROPE_APPEND, "rope_append", false},
    {TSR__SHADER_ROPE_APPEND, "rope_append_apart", false},
    {TSR__SHADER_CAUSAL_CONV, "causal_conv", false},
    {TSR__SHADER_DELTA_STEP, "delta_step", false},
    {TSR__SHADER_EMBEDDING, "embedding", true},
    {TSR__SHADER_EMBEDDING_GRAD, "embedding_grad", true},
    {TSR__SHADER_CROSS_ENTROPY_SHARD, "cross_entropy_shard", false},
    {TSR__SHADER_TOPK, "topk", true},
    {TSR__SHADER_CHOOSE, "choose", true},
    {TSR__SHADER_SUM_SQUARES, "sum_squares", false},
    {TSR__SHADER_RANDOM_FILL, "random_fill", false},
    {TSR__SHADER_DROPOUT, "dropout", false},
    {TSR__SHADER_ADAMW, "adamw", false},
    {TSR__SHADER_SGD, "sgd", false},
    {TSR__SHADER_CLIP_SCALE, "clip_scale", false},
    {TSR__SHADER_KV_APPEND, "kv_append", true},
    {TSR__SHADER_KV_APPEND, "kv_append_blocks", true},
    {TSR__SHADER_DEQUANTIZE, "dequantize", true},
    {TSR__SHADER_PACK, "pack", true},
    {TSR__SHADER_UNPACK, "unpack", true},
    {TSR__SHADER_MATMUL_NARROW_BLOCKS, "matmul_narrow_blocks", true},
    {TSR__SHADER_ROUTE, "route", false},
    {TSR__SHADER_ROUTE_SORT, "route_sort", true},
    {TSR__SHADER_PAIR_SUM, "pair_sum", false},
    {TSR__SHADER_PAIR_ACTIVATE, "pair_activate", false},
    {TSR__SHADER_ROUTE_GRAD, "route_grad", false},
    {TSR__SHADER_PAIR_ACTIVATE, "pair_activate_grad", false},
    {TSR__SHADER_MATMUL_GROUPED, "matmul_grouped", false},
    {TSR__SHADER_MATMUL_GROUPED_FEW, "matmul_grouped_few", false},
    {TSR__SHADER_MATMUL_GROUPED_GRAD, "matmul_grouped_grad", false},
    {TSR__SHADER_ATTENTION_SINKS_GRAD, "attention_sinks_grad", false},
    {TSR__SHADER_NORM_GRAD, "norm_grad", false},
    {TSR__SHADER_NORM_GRAD, "norm_grad_divided", false},
    {TSR__SHADER_ATTENTION, "attention", false},
    {TSR__SHADER_ATTENTION, "attention_grad", false},
    {TSR__SHADER_ATTENTION_DELTA, "attention_delta", false},
    {TSR__SHADER_MATMUL_QUANT, "matmul_quant", false},
    {TSR__SHADER_MATMUL_BLOCKS, "matmul_blocks", false},
    {TSR__SHADER_MATMUL_BLOCKS_INT8, "matmul_blocks_int8", false},
};
enum {
    KERNELS = sizeof kernels / sizeof *kernels,
    QUICK = KERNELS - 13
}; /* CPU drivers take seconds to compile most of the last thirteen */

/* Returns whether the device divides rows. Only devices with large workgroups do, and test the
 * kernels for it. */
static bool divides_rows(void)
{
    return tsr__segments_suit(gpu, 1, INT32_MAX);
}

START_TEST(a_broken_kernel_is_found)
{
    const struct broken_kernel *kernel = &kernels[_i];
    /* f32 is not narrowed */
    const tsr_dtype dtype = kernel->shader == TSR__SHADER_MATMUL_NARROW_BLOCKS ? TSR_F16
                            : strcmp(kernel->name, "kv_append_blocks") == 0    ? TSR_Q8_0
                                                                               : TSR_F32;
    open_as_gpu(NULL);
    if (strstr(kernel->name, "_divided") && !divides_rows()) {
        gpu_teardown();
        SKIP("this device does not divide rows");
    }
    break_with(kernel->shader, kernel->silent ? drop_stores : break_arithmetic);
    ck_assert_msg(!tsr__self_test_kernel(gpu, kernel->name, dtype),
                  "%s passed although it is broken", kernel->name);
    gpu_teardown();
    tsr__self_tests tests = stored();
    const tsr__self_test *result = result_of(&tests, kernel->name, dtype);
    ck_assert(result && !result->right);
}
END_TEST

START_TEST(an_operation_without_its_kernel_fails)
{
    open_as_gpu(NULL);
    break_shader(TSR__SHADER_SOFTMAX);
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){9, 33});
    GPU_OK(tsr_fill(queue, x, 1));
    for (int i = 0; i < 2; i++)
        GPU_FAILS(tsr_softmax(queue, x, x, false), TSR_ERR_UNSUPPORTED,
                  "the kernel softmax has failed its self-test for f32 on ");
    tsr_tensor_destroy(&x);
    gpu_teardown();
}
END_TEST

/* If the kernel for divided rows has failed in an earlier process, one workgroup computes a long
 * row. */
START_TEST(rows_are_not_divided_without_the_kernel)
{
    enum { COUNT = 20001 };
    const int64_t count = COUNT;
    static double got[COUNT];
    open_as_gpu(NULL);
    if (!divides_rows()) {
        gpu_teardown();
        SKIP("this device does not divide rows");
    }
    ck_assert(tsr__self_test_kernel(gpu, "softmax", TSR_F32));
    break_shader(TSR__SHADER_SOFTMAX);
    ck_assert(!tsr__self_test_kernel(gpu, "softmax_divided", TSR_F32));
    gpu_teardown();
    open_as_gpu(NULL);
    tsr_tensor *x = gpu_new(TSR_F32, 1, &count);
    GPU_OK(tsr_fill(queue, x, 1));
    const uint64_t before = queue->serial;
    GPU_OK(tsr_softmax(queue, x, x, false));
    ck_assert_uint_eq(queue->serial - before, 2); /* a dispatch and its preflight */
    gpu_get(x, got);
    for (int i = 0; i < COUNT; i++)
        ck_assert_double_eq_tol(got[i], 1.0 / COUNT, 1e-10);
    tsr_tensor_destroy(&x);
    gpu_teardown();
}
END_TEST

/* Attention of few queries and products of few rows have other kernels. */
START_TEST(operations_with_another_kernel_use_it)
{
    enum { KEYS = 20, WIDTH = 8, N = 5, K = 32 };
    const int64_t queries[] = {1, 1, 1, WIDTH}, keys[] = {1, 1, KEYS, WIDTH};
    static float weights[N * K];
    uint8_t blocks[N * 34];
    double got[8];
    open_as_gpu(NULL);
    break_shader(TSR__SHADER_ATTENTION_FEW);
    break_shader(TSR__SHADER_MATMUL_QUANT);
    tsr_tensor *q = gpu_new(TSR_F32, 4, queries), *y = gpu_new(TSR_F32, 4, queries);
    tsr_tensor *k = gpu_new(TSR_F32, 4, keys), *v = gpu_new(TSR_F32, 4, keys);
    GPU_OK(tsr_fill(queue, q, 1));
    GPU_OK(tsr_fill(queue, k, 1));
    GPU_OK(tsr_fill(queue, v, 3));
    GPU_OK(tsr_attention(queue, y, NULL, q, k, v, NULL));
    gpu_get(y, got);
    for (int i = 0; i < WIDTH; i++)
        ck_assert_double_eq_tol(got[i], 3, 1e-5);
    ck_assert(!tsr__self_test_kernel(gpu, "attention_few", TSR_F32));
    ck_assert(!tsr__self_test_kernel(gpu, "attention_joined", TSR_F32));
    ck_assert(!tsr__self_test_kernel(gpu, "attention_append", TSR_F32));

    tsr_tensor *product = gpu_new(TSR_F32, 2, (int64_t[]){1, N});
    tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){1, K});
    tsr_tensor *b = gpu_new(TSR_Q8_0, 2, (int64_t[]){N, K});
    for (int i = 0; i < N * K; i++)
        weights[i] = 127.0F / 64;
    GPU_OK(tsr_quantize(TSR_Q8_0, weights, N * K, blocks, sizeof blocks));
    GPU_OK(tsr_tensor_upload(queue, b, blocks, sizeof blocks));
    GPU_OK(tsr_fill(queue, a, 1));
    GPU_OK(tsr_matmul(queue, product, a, b, tsr_matmul_params(.transpose_b = true)));
    gpu_get(product, got);
    for (int i = 0; i < N; i++)
        ck_assert_double_eq(got[i], K * 127.0 / 64);
    ck_assert(!tsr__self_test_kernel(gpu, "matmul_quant", TSR_F32));

    /* Two matrices, of 2 and of 3: a token has one of them. */
    break_shader(TSR__SHADER_MATMUL_GROUPED_FEW);
    const int32_t chosen[2] = {1, 0};
    tsr_tensor *of_experts = gpu_new(TSR_F32, 3, (int64_t[]){2, N, K}),
               *ids = gpu_new(TSR_I32, 2, (int64_t[]){2, 1}), *expert = NULL,
               *tokens = gpu_new(TSR_F32, 2, (int64_t[]){2, K}),
               *rows = gpu_new(TSR_F32, 3, (int64_t[]){2, 1, N});
    static double of_rows[2 * N];
    GPU_OK(tsr_fill(queue, of_experts, 2));
    GPU_OK(tsr_tensor_select(of_experts, 0, 1, &expert));
    GPU_OK(tsr_fill(queue, expert, 3));
    GPU_OK(tsr_fill(queue, tokens, 1));
    GPU_OK(tsr_tensor_upload(queue, ids, chosen, sizeof chosen));
    GPU_OK(tsr_matmul_grouped(queue, rows, tokens, of_experts, ids, NULL));
    gpu_get(rows, of_rows);
    for (int i = 0; i < 2 * N; i++)
        ck_assert_double_eq(of_rows[i], i < N ? 3 * K : 2 * K);
    ck_assert(!tsr__self_test_kernel(gpu, "matmul_grouped_few", TSR_F32));
    tsr_tensor *all[] = {q, y, k, v, product, a, b, of_experts, ids, expert, tokens, rows};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
    gpu_teardown();
}
END_TEST

/* Tests all kernels of this driver as TESSERA_SELF_TEST=full does, and also as GPUs use them. A
 * driver for the CPU has other kernels for some operations. Kernels that it does not use are
 * neither tested nor remembered, so they are tested only as GPUs use them. */
START_TEST(all_kernels_are_right)
{
    tsr__self_tests tests;
    setenv("TESSERA_SELF_TEST", "full", 1);
    gpu_setup();
    const bool is_cpu = gpu->traits.device_class != TSR__CLASS_GPU;
    const bool has_own_attention =
        gpu->traits.device_class == TSR__CLASS_LAVAPIPE && tsr__cpu_matmul_config_at(0) != NULL;
    gpu_teardown();
    tests = stored();
    ck_assert_int_ge(tests.count, 3 * 23);
    ck_assert_ptr_nonnull(result_of(&tests, "softmax", TSR_F32));
    if (is_cpu)
        ck_assert_ptr_null(result_of(&tests, "tiled-l", TSR_F32));
    if (has_own_attention)
        ck_assert_ptr_null(result_of(&tests, "attention", TSR_F32));
    unsetenv("TESSERA_SELF_TEST");
    open_as_gpu(NULL);
    tsr__self_test_all(gpu);
    gpu_teardown();
    tests = stored();
    ck_assert_int_ge(tests.count, 3 * 33);
    ck_assert_int_le(tests.count, TSR__MAX_SELF_TESTS * 3 / 4); /* GPUs have more kernels */
    static const char *const used[] = {
        "attention",       "attention_grad",    "copy",
        "copy_tile",       "index_add",         "index_select",
        "tiled-m",         "matmul_fused",      "norm_with_stats",
        "norm_grad_added", "rope_append_apart", "causal_conv_weight_grad",
        "delta_step",      "delta_scan",        "delta_row_grad"};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        ck_assert_msg(result_of(&tests, used[i], TSR_F32) != NULL, "%s was not tested", used[i]);
    ck_assert_ptr_nonnull(result_of(&tests, "matmul_quant", TSR_Q4_0));
    ck_assert_ptr_nonnull(result_of(&tests, "narrow_norm", TSR_F16));
    ck_assert_ptr_nonnull(result_of(&tests, "narrow_gate", TSR_F16));
    for (int i = 0; i < tests.count; i++)
        ck_assert_msg(tests.tests[i].right, "%s failed for %s", tests.tests[i].kernel,
                      tsr_dtype_name(tests.tests[i].dtype));
}
END_TEST

/* Results that are not there, or not usable ---------------------------------------------------- */

START_TEST(without_memory_nothing_is_decided)
{
    double last = 0;
    open_as_gpu(NULL);
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    ck_assert(tsr__kernel_works(gpu, "tiled-s", TSR_F32, NULL));
    tsr__fault_disarm();
    GPU_OK(product(TSR_F32, 33, &last));
    gpu_teardown();
    tsr__self_tests tests = stored();
    ck_assert_ptr_nonnull(result_of(&tests, "tiled-s", TSR_F32));
}
END_TEST

static tsr_status unlucky(tsr_device *device, const char *name, tsr_dtype dtype, bool *out)
{
    static const tsr_status results[] = {TSR_ERR_DEVICE_MEMORY, TSR_ERR_DRIVER};
    static int calls;
    (void)device;
    (void)name;
    (void)dtype;
    *out = true;
    return tsr__fail(results[calls++], "unlucky");
}

/* If a test fails for lack of memory, nothing is concluded about the kernel. Any other failure
 * counts against it. */
START_TEST(a_test_that_cannot_run)
{
    open_as_gpu(NULL);
    ck_assert(tsr__kernel_works(gpu, "unlucky", TSR_F32, unlucky));
    ck_assert(!tsr__kernel_works(gpu, "unlucky", TSR_F32, unlucky));
    ck_assert(!tsr__kernel_works(gpu, "unlucky", TSR_F32, unlucky));
    gpu_teardown();
    tsr__self_tests tests = stored();
    const tsr__self_test *result = result_of(&tests, "unlucky", TSR_F32);
    ck_assert(result && !result->right);
}
END_TEST

enum { INVENTED = 40 };
static char invented[INVENTED][8];
static atomic_int checked[INVENTED], in_checks, most_in_checks;

/* Every third kernel fails. Waits until a second check runs at the same time, unless there is only
 * one CPU. */
static tsr_status every_third_fails(tsr_device *device, const char *name, tsr_dtype dtype,
                                    bool *out)
{
    const int index = (int)((name - invented[0]) / (ptrdiff_t)sizeof invented[0]);
    (void)device;
    (void)dtype;
    const int now = atomic_fetch_add(&in_checks, 1) + 1;
    if (now > atomic_load(&most_in_checks))
        atomic_store(&most_in_checks, now);
    for (int i = 0;
         i < 5000 && atomic_load(&most_in_checks) < 2 && sysconf(_SC_NPROCESSORS_ONLN) > 1; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_fetch_add(&checked[index], 1);
    atomic_fetch_sub(&in_checks, 1);
    *out = tsr__in_check() && index % 3 != 0;
    return TSR_OK;
}

START_TEST(many_kernels_are_tested_at_the_same_time)
{
    tsr__kernel_tests list = {0};
    open_as_gpu(NULL);
    for (int i = 0; i < INVENTED; i++) {
        snprintf(invented[i], sizeof invented[i], "new%d", i);
        tsr__kernel_tests_add(&list, invented[i], TSR_F32, every_third_fails);
    }
    tsr__kernel_tests_run(gpu, &list);
    tsr__kernel_tests_run(gpu, &list);
    gpu_teardown();
    const tsr__self_tests tests = stored();
    ck_assert_int_eq(tests.count, INVENTED);
    for (int i = 0; i < INVENTED; i++) {
        const tsr__self_test *result = result_of(&tests, invented[i], TSR_F32);
        ck_assert(result && result->right == (i % 3 != 0));
        ck_assert_int_eq(atomic_load(&checked[i]), 1);
    }
    ck_assert_int_eq(atomic_load(&most_in_checks) > 1, sysconf(_SC_NPROCESSORS_ONLN) > 1);
}
END_TEST

START_TEST(arguments)
{
    tsr_device *device = NULL;
    tsr__self_tests tests;
    tsr__device_facts facts = {0};
    tsr__facts_connect(&facts);
    setenv("TESSERA_SELF_TEST", "on", 1);
    GPU_FAILS(tsr_device_open(NULL, &device), TSR_ERR_INVALID,
              "device_open: TESSERA_SELF_TEST is 'on', not off or full");
    ck_assert_ptr_null(device);
    GPU_FAILS(tsr__self_tests_find(NULL, &tests), TSR_ERR_INVALID, "device is NULL");
    GPU_FAILS(tsr__self_tests_find(&facts.info, NULL), TSR_ERR_INVALID, "out is NULL");
    GPU_OK(tsr__self_tests_find(&facts.info, &tests));
    ck_assert_int_eq(tests.count, 0);
}
END_TEST

TESTS(self_test)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, right_kernels_pass);
    tcase_add_test(tests, the_next_kernel_takes_over_and_this_is_remembered);
    tcase_add_test(tests, a_form_that_has_failed_is_replaced);
    tcase_add_test(tests, an_error_if_no_kernel_is_left);
    tcase_add_test(tests, without_the_sum_k_is_not_split);
    tcase_add_test(tests, switched_off_self_tests);
    tcase_add_test(tests, an_operation_without_its_kernel_fails);
    tcase_add_test(tests, rows_are_not_divided_without_the_kernel);
    tcase_add_test(tests, without_memory_nothing_is_decided);
    tcase_add_test(tests, a_test_that_cannot_run);
    tcase_add_test(tests, many_kernels_are_tested_at_the_same_time);
    tcase_add_test(tests, arguments);
}

/* The tests above find broken kernels on any driver. */
TESTS(self_test_long)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, a_broken_kernel_is_found, 0, QUICK);
}

TESTS(self_test_slow)
{
    tcase_set_timeout(tests, 800); /* with an empty cache, all kernels are compiled */
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, all_kernels_are_right);
    tcase_add_test(tests, operations_with_another_kernel_use_it);
    tcase_add_loop_test(tests, a_broken_kernel_is_found, QUICK, KERNELS);
}
