/* Subnormal numbers of f16 give the same results on every device, whichever way the shaders keep
 * them. All values below are exact. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/device/device.h"
#include "gpu/pipeline/pipeline.h"
#include "gpu/spirv/spirv.h"
#include "support/check_main.h"
#include "support/gpu.h"
#include "tessera/matmul.h"
#include "tessera/ops.h"

#define UNIT 0x1p-24 /* the smallest subnormal number */

static const tsr__subnormals ways[] = {TSR__SUBNORMALS_KEPT, TSR__SUBNORMALS_BY_MODE,
                                       TSR__SUBNORMALS_BY_CODE};
enum { WAYS = sizeof ways / sizeof *ways };

static bool has_mode(void)
{
    VkPhysicalDeviceVulkan12Properties vulkan12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &vulkan12};
    gpu->instance->vk.GetPhysicalDeviceProperties2(gpu->physical, &properties);
    return vulkan12.shaderDenormPreserveFloat16;
}

/* Makes the shaders of this test keep subnormal numbers in one of the ways. */
#define TAKE(way)                                                                                  \
    do {                                                                                           \
        if (ways[way] == TSR__SUBNORMALS_BY_MODE && !has_mode())                                   \
            SKIP("this driver has no such mode");                                                  \
        gpu->subnormals = ways[way];                                                               \
    } while (0)

/* Creates an f16 tensor whose elements have these bits. */
static tsr_tensor *of_bits(int ndim, const int64_t *shape, const uint16_t *bits)
{
    tsr_tensor *tensor = gpu_new(TSR_F16, ndim, shape);
    GPU_OK(tsr_tensor_upload(queue, tensor, bits,
                             (size_t)tsr_layout_count(tsr_tensor_layout(tensor)) * sizeof *bits));
    return tensor;
}

/* All subnormal numbers and both zeros: first the positive ones, then the negative ones. */
enum { MAGNITUDES = 0x400, ALL = 2 * MAGNITUDES };

static uint16_t bits_at(int i)
{
    return (uint16_t)(i % MAGNITUDES | (i < MAGNITUDES ? 0 : 0x8000));
}

static double value_at(int i)
{
    return copysign(i % MAGNITUDES * UNIT, i < MAGNITUDES ? 1 : -1);
}

static tsr_tensor *all_subnormals(void)
{
    uint16_t bits[ALL];
    for (int i = 0; i < ALL; i++)
        bits[i] = bits_at(i);
    return of_bits(1, (int64_t[]){ALL}, bits);
}

START_TEST(copies)
{
    const int64_t count = ALL;
    float wide[ALL];
    uint16_t narrow[ALL];
    TAKE(_i);
    tsr_tensor *x = all_subnormals(), *y = gpu_new(TSR_F32, 1, &count),
               *back = gpu_new(TSR_F16, 1, &count);
    GPU_OK(tsr_copy(queue, y, x));
    GPU_OK(tsr_copy(queue, back, y));
    GPU_OK(tsr_tensor_download(queue, y, wide, sizeof wide));
    GPU_OK(tsr_tensor_download(queue, back, narrow, sizeof narrow));
    for (int i = 0; i < ALL; i++) {
        ck_assert_msg((double)wide[i] == value_at(i) &&
                          (signbit(wide[i]) != 0) == (i >= MAGNITUDES),
                      "0x%04x became %g", (unsigned)bits_at(i), (double)wide[i]);
        ck_assert_uint_eq(narrow[i], bits_at(i));
    }
    tsr_tensor_destroy(&back);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
}
END_TEST

/* A value halfway between two subnormal numbers rounds to the even one. */
START_TEST(rounding_to_subnormals)
{
    const int64_t count = MAGNITUDES;
    float halves[MAGNITUDES];
    uint16_t got[MAGNITUDES];
    TAKE(_i);
    for (int i = 0; i < MAGNITUDES; i++)
        halves[i] = (float)((i + 0.5) * UNIT);
    tsr_tensor *x = gpu_new(TSR_F32, 1, &count), *y = gpu_new(TSR_F16, 1, &count);
    GPU_OK(tsr_tensor_upload(queue, x, halves, sizeof halves));
    GPU_OK(tsr_scale(queue, y, x, 1, 0));
    GPU_OK(tsr_tensor_download(queue, y, got, sizeof got));
    for (int i = 0; i < MAGNITUDES; i++)
        ck_assert_uint_eq(got[i], (unsigned)(i + i % 2));
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
}
END_TEST

/* Computes y = x + x in f16, also for views, whose elements are loaded one by one. */
START_TEST(elementwise)
{
    const int64_t half = ALL / 2;
    uint16_t got[ALL];
    TAKE(_i);
    tsr_tensor *x = all_subnormals(), *y = gpu_new(TSR_F16, 1, (int64_t[]){ALL}), *odd,
               *sums = gpu_new(TSR_F16, 1, &half);
    GPU_OK(tsr_binary(queue, y, x, x, TSR_BINARY_ADD));
    GPU_OK(tsr_tensor_download(queue, y, got, sizeof got));
    for (int i = 0; i < ALL; i++)
        ck_assert_uint_eq(got[i], (unsigned)(2 * (bits_at(i) & 0x7fff) | (bits_at(i) & 0x8000)));
    GPU_OK(tsr_tensor_slice(x, 0, 1, ALL, 2, &odd));
    GPU_OK(tsr_binary(queue, sums, odd, odd, TSR_BINARY_ADD));
    GPU_OK(tsr_tensor_download(queue, sums, got, (size_t)half * sizeof *got));
    for (int i = 0; i < half; i++)
        ck_assert_uint_eq(
            got[i], (unsigned)(2 * (bits_at(2 * i + 1) & 0x7fff) | (bits_at(2 * i + 1) & 0x8000)));
    tsr_tensor *all[] = {x, y, odd, sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

/* Tests sums of rows and of columns, maxima, and the sum of squares. */
START_TEST(reductions)
{
    enum { ROWS = 13, COLUMNS = 70 };
    uint16_t bits[ROWS * COLUMNS];
    double row[ROWS] = {0}, column[COLUMNS] = {0}, most[ROWS] = {0}, squares = 0;
    double got[COLUMNS];
    TAKE(_i);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const int k = 1 + i * 7 % 1023;
        bits[i] = (uint16_t)k;
        row[i / COLUMNS] += k * UNIT;
        column[i % COLUMNS] += k * UNIT;
        most[i / COLUMNS] = fmax(most[i / COLUMNS], k * UNIT);
        squares += k < 32 ? k * UNIT * k * UNIT : 0;
    }
    tsr_tensor *x = of_bits(2, (int64_t[]){ROWS, COLUMNS}, bits),
               *rows = gpu_new(TSR_F32, 1, (int64_t[]){ROWS}),
               *columns = gpu_new(TSR_F32, 1, (int64_t[]){COLUMNS}),
               *one = gpu_new(TSR_F32, 1, (int64_t[]){1});
    GPU_OK(tsr_reduce(queue, rows, x, 1, TSR_REDUCE_SUM, false));
    gpu_get(rows, got);
    for (int i = 0; i < ROWS; i++)
        ck_assert_double_eq(got[i], row[i]);
    GPU_OK(tsr_reduce(queue, columns, x, 0, TSR_REDUCE_SUM, false));
    gpu_get(columns, got);
    for (int i = 0; i < COLUMNS; i++)
        ck_assert_double_eq(got[i], column[i]);
    GPU_OK(tsr_reduce(queue, rows, x, 1, TSR_REDUCE_MAX, false));
    gpu_get(rows, got);
    for (int i = 0; i < ROWS; i++)
        ck_assert_double_eq(got[i], most[i]);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        bits[i] = bits[i] < 32 ? bits[i] : 0;
    GPU_OK(tsr_tensor_upload(queue, x, bits, sizeof bits));
    GPU_OK(tsr_sum_squares(queue, one, (const tsr_tensor *const *)&x, 1, 1));
    gpu_get(one, got);
    ck_assert_double_eq(got[0], squares);
    tsr_tensor *all[] = {x, rows, columns, one};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

/* Products of subnormal numbers with small integers, for kernels of few rows and of many. */
START_TEST(products)
{
    enum { MOST = 33, K = 64, N = 40 };
    static const int64_t rows[] = {1, 3, MOST};
    uint16_t a_bits[MOST * K];
    double b_values[N * K], got[MOST * N];
    TAKE(_i);
    for (int i = 0; i < MOST * K; i++)
        a_bits[i] = bits_at(i * 37 % ALL);
    for (int i = 0; i < N * K; i++)
        b_values[i] = i % 7 - 3;
    tsr_tensor *b = gpu_new(TSR_F16, 2, (int64_t[]){N, K});
    gpu_put(b, b_values);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        tsr_tensor *a = of_bits(2, (int64_t[]){rows[r], K}, a_bits);
        tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){rows[r], N});
        GPU_OK(tsr_matmul(queue, y, a, b, tsr_matmul_params(.transpose_b = true)));
        gpu_get(y, got);
        for (int i = 0; i < rows[r] * N; i++) {
            double want = 0;
            for (int k = 0; k < K; k++)
                want += value_at((i / N * K + k) * 37 % ALL) * b_values[i % N * K + k];
            ck_assert_double_eq(got[i], want);
        }
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&a);
    }
    tsr_tensor_destroy(&b);
}
END_TEST

/* Changes to SPIR-V modules -------------------------------------------------------------------- */

/* From the specification of SPIR-V. */
enum { OP_EXECUTION_MODE = 16, OP_CAPABILITY = 17, OP_SPEC_CONSTANT = 50 };

/* Counts the instructions of a module that have this opcode and end in these words. */
static int count(const uint32_t *code, size_t bytes, uint32_t opcode, int words,
                 const uint32_t *last)
{
    int found = 0;
    for (size_t at = 5; at < bytes / 4; at += code[at] >> 16) {
        const size_t length = code[at] >> 16;
        found += (code[at] & 0xffff) == opcode && length > (size_t)words &&
                 memcmp(code + at + length - words, last, (size_t)words * sizeof *last) == 0;
    }
    return found;
}

static const uint32_t capability[] = {4464}, mode[] = {4459, 16};

/* A shader that widens f16 requires the mode once; a shader without such conversions stays as it
 * is. */
START_TEST(modules_demand_the_mode)
{
    int changed = 0;
    gpu->subnormals = TSR__SUBNORMALS_BY_MODE;
    for (int i = 0; i < TSR__SHADER_COUNT; i++) {
        const uint32_t *code = tsr__shader_binaries[i].variant[gpu->storage].code;
        size_t bytes = tsr__shader_binaries[i].variant[gpu->storage].size_bytes, made_bytes = 0;
        uint32_t *made;
        if (!code)
            continue;
        GPU_OK(tsr__spirv_keep_subnormals(gpu, code, bytes, &made, &made_bytes));
        if (!made)
            continue;
        changed++;
        ck_assert_uint_eq(made_bytes, bytes + 6 * sizeof *code);
        ck_assert_int_eq(count(made, made_bytes, OP_CAPABILITY, 1, capability), 1);
        ck_assert_int_eq(count(made, made_bytes, OP_EXECUTION_MODE, 2, mode), 1);
        free(made);
    }
    ck_assert_int_gt(changed, 20);
}
END_TEST

/* The way in which the library keeps subnormal numbers must fit the device. A GPU must not be
 * assumed to keep them by itself. A CPU driver needs no mode. Only a device that has the mode
 * may use it. */
START_TEST(the_device_has_a_way)
{
    const bool is_cpu = gpu->info.type == TSR_DEVICE_CPU;
    ck_assert_int_ne(gpu->subnormals, is_cpu ? TSR__SUBNORMALS_BY_MODE : TSR__SUBNORMALS_KEPT);
    ck_assert(gpu->subnormals != TSR__SUBNORMALS_BY_MODE || has_mode());
}
END_TEST

START_TEST(nothing_changes_where_subnormals_are_kept)
{
    const tsr__shader_binary *copy = &tsr__shader_binaries[TSR__SHADER_ELEMENTWISE];
    const uint32_t *code = copy->variant[gpu->storage].code;
    const size_t bytes = copy->variant[gpu->storage].size_bytes;
    uint32_t *made;
    size_t made_bytes;
    gpu->subnormals = TSR__SUBNORMALS_KEPT;
    GPU_OK(tsr__spirv_keep_subnormals(gpu, code, bytes, &made, &made_bytes));
    ck_assert_ptr_null(made);
    gpu->subnormals = TSR__SUBNORMALS_BY_CODE;
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    GPU_FAILS(tsr__spirv_keep_subnormals(gpu, code, bytes, &made, &made_bytes), TSR_ERR_NO_MEMORY,
              "");
    tsr__fault_disarm();
    GPU_OK(tsr__spirv_keep_subnormals(gpu, code, bytes, &made, &made_bytes));
    ck_assert_uint_eq(made_bytes, bytes);
    int differences = 0;
    for (size_t i = 0; i < bytes / 4; i++)
        if (made[i] != code[i]) {
            ck_assert_uint_eq(code[i], 0);
            ck_assert_uint_eq(made[i], 1);
            differences++;
        }
    ck_assert_int_eq(differences, 1);
    free(made);
}
END_TEST

/* Infinities ----------------------------------------------------------------------------------- */

static const uint32_t infinities_capability[] = {4466}, infinities_mode[] = {4461, 32};

/* A kernel with an infinity among its constants demands the mode once, and others stay as they
 * are. */
START_TEST(kernels_with_infinities_demand_the_mode)
{
    static const struct {
        tsr__shader shader;
        bool has;
    } known[] = {
        {TSR__SHADER_ATTENTION, true},       {TSR__SHADER_ATTENTION_FEW, true},
        {TSR__SHADER_ATTENTION_MERGE, true}, {TSR__SHADER_SOFTMAX, true},
        {TSR__SHADER_CROSS_ENTROPY, true},   {TSR__SHADER_REDUCE_ROWS, true},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const tsr__shader_binary *shader = &tsr__shader_binaries[known[i].shader];
        const uint32_t *code = shader->variant[gpu->storage].code;
        const size_t bytes = shader->variant[gpu->storage].size_bytes;
        size_t made_bytes = 0;
        uint32_t *made;
        gpu->infinities_by_mode = false;
        GPU_OK(tsr__spirv_keep_infinities(gpu, code, bytes, &made, &made_bytes));
        ck_assert_ptr_null(made);
        gpu->infinities_by_mode = true;
        GPU_OK(tsr__spirv_keep_infinities(gpu, code, bytes, &made, &made_bytes));
        ck_assert_msg((made != NULL) == known[i].has, "%s", shader->name);
        if (!made)
            continue;
        ck_assert_uint_eq(made_bytes, bytes + 6 * sizeof *code);
        ck_assert_int_eq(count(made, made_bytes, OP_CAPABILITY, 1, infinities_capability), 1);
        ck_assert_int_eq(count(made, made_bytes, OP_EXECUTION_MODE, 2, infinities_mode), 1);
        free(made);
        tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
        GPU_FAILS(tsr__spirv_keep_infinities(gpu, code, bytes, &made, &made_bytes),
                  TSR_ERR_NO_MEMORY, "");
        tsr__fault_disarm();
    }
}
END_TEST

/* Softmax of a row that is masked in part, by a kernel with the mode. A driver for the CPU needs no
 * mode. */
START_TEST(infinities_with_the_mode)
{
    VkPhysicalDeviceVulkan12Properties vulkan12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &vulkan12};
    ck_assert(gpu->info.type != TSR_DEVICE_CPU || !gpu->infinities_by_mode);
    gpu->instance->vk.GetPhysicalDeviceProperties2(gpu->physical, &properties);
    if (!vulkan12.shaderSignedZeroInfNanPreserveFloat32)
        SKIP("this driver has no such mode");
    gpu->infinities_by_mode = true;
    enum { COLUMNS = 7 };
    const double values[COLUMNS] = {-INFINITY, 1, -INFINITY, 1, 1, -INFINITY, 1};
    double got[COLUMNS];
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){1, COLUMNS}),
               *y = gpu_new(TSR_F32, 2, (int64_t[]){1, COLUMNS});
    gpu_put(x, values);
    GPU_OK(tsr_softmax(queue, y, x, false));
    gpu_get(y, got);
    for (int i = 0; i < COLUMNS; i++)
        ck_assert_double_eq_tol(got[i], values[i] < 0 ? 0 : 0.25, 1e-6);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
}
END_TEST

TESTS(subnormals)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, copies, 0, WAYS);
    tcase_add_loop_test(tests, rounding_to_subnormals, 0, WAYS);
    tcase_add_loop_test(tests, elementwise, 0, WAYS);
    tcase_add_loop_test(tests, reductions, 0, WAYS);
    tcase_add_loop_test(tests, products, 0, WAYS);
    tcase_add_test(tests, modules_demand_the_mode);
    tcase_add_test(tests, the_device_has_a_way);
    tcase_add_test(tests, nothing_changes_where_subnormals_are_kept);
    tcase_add_test(tests, kernels_with_infinities_demand_the_mode);
    tcase_add_test(tests, infinities_with_the_mode);
}
