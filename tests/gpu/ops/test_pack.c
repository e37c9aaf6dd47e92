/* Numbers packed in 8 bits for slow connections: tests their bytes, and sums of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/internal.h"

#include "support/check_main.h"
#include "support/gpu.h"

static const uint32_t divide_spirv[] =
#include "divide.inc"
    ;

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};
static const int64_t counts[] = {1, 31, 32, 33, 63, 64, 65, 96, 1000, 4095, 4096, 70001};
enum { COUNTS = sizeof counts / sizeof *counts, PAIR_BYTES = 68 };

/* Packs on the host in the format that pack.h describes: whole pairs of blocks of 32 numbers,
 * and one factor for all at the end. */
static uint8_t *packed_by_host(const float *values, int64_t count, uint64_t *bytes)
{
    const int64_t pairs = ((count + 31) / 32 + 2) / 2;
    float *scaled = calloc((size_t)pairs * 64, sizeof *scaled), largest = 0, factor = 1;
    uint8_t *packed = calloc((size_t)pairs, PAIR_BYTES);
    int exponent;
    ck_assert(scaled && packed);
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    if (largest > 0) {
        frexpf(largest, &exponent);
        factor = ldexpf(1, exponent < -126 + 22 ? -126 : exponent - 22);
    }
    for (int64_t i = 0; i < count; i++)
        scaled[i] = values[i] / factor;
    *bytes = (uint64_t)pairs * PAIR_BYTES;
    ck_assert_ok(tsr_quantize(TSR_Q8_0, scaled, pairs * 64, packed, *bytes));
    memcpy(packed + *bytes - sizeof factor, &factor, sizeof factor);
    free(scaled);
    return packed;
}

/* Makes values whose blocks have very different magnitudes, and values halfway between two 8-bit
 * numbers, which are rounded away from 0. */
static void make_values(gpu_random *random, float *values, int64_t count, float scale,
                        tsr_dtype dtype)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t block = i / 32;
        double value = gpu_random_unit(random) * ldexp(1, -(int)(block % 23));
        if (block % 5 == 1)
            value = i % 32 == 0 ? 127 : (double)gpu_random_between(random, -252, 252) / 2;
        if (block % 7 == 3)
            value = 0;
        values[i] = (float)gpu_rounded(value * (double)scale, dtype);
    }
}

static tsr_tensor *floats_of(tsr_dtype dtype, const float *values, int64_t count, bool odd)
{
    const int64_t room = count + 1;
    double *wide = calloc((size_t)room, sizeof *wide);
    tsr_tensor *all = gpu_new(dtype, 1, &room), *view;
    ck_assert_ptr_nonnull(wide);
    gpu_poison(all);
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)values[i];
    GPU_OK(tsr_tensor_slice(all, 0, odd, count + odd, 1, &view));
    gpu_put(view, wide);
    tsr_tensor_destroy(&all);
    free(wide);
    return view;
}

static tsr_tensor *words_new(int64_t words)
{
    tsr_tensor *tensor = gpu_new(TSR_U32, 1, &words);
    gpu_poison(tensor);
    return tensor;
}

START_TEST(bytes_are_those_of_the_host)
{
    gpu_random random = {70 + (uint64_t)_i};
    const tsr_dtype dtype = floats[_i % 3];
    for (int c = 0; c < COUNTS; c++) {
        const int64_t count = counts[c], words = tsr__packed_words(count);
        float *values = calloc((size_t)count, sizeof *values);
        uint64_t bytes;
        const float scales[] = {1, dtype == TSR_F16 ? 0.125F : 1e-25F,
                                dtype == TSR_F16 ? 3 : 1e25F};
        ck_assert_ptr_nonnull(values);
        make_values(&random, values, count, scales[c % 3], dtype);
        uint8_t *want = packed_by_host(values, count, &bytes), *got = calloc(1, bytes);
        tsr_tensor *x = floats_of(dtype, values, count, _i >= 3), *y = words_new(words);
        ck_assert_ptr_nonnull(got);
        ck_assert_uint_eq(bytes, (uint64_t)words * 4);
        GPU_OK(tsr__pack(queue, y, x));
        GPU_OK(tsr_tensor_download(queue, y, got, bytes));
        for (uint64_t i = 0; i < bytes; i++)
            ck_assert_msg(got[i] == want[i], "%s, %lld elements: byte %llu is %d, not %d",
                          tsr_dtype_name(dtype), (long long)count, (unsigned long long)i, got[i],
                          want[i]);
        free(values);
        free(want);
        free(got);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

/* Returns the value of element i of packed bytes; `blocks` are the elements before the
 * multiplication by the common factor. */
static float unpacked(const uint8_t *packed, uint64_t bytes, const float *blocks, int64_t i)
{
    float factor;
    memcpy(&factor, packed + bytes - sizeof factor, sizeof factor);
    return blocks[i] * factor;
}

START_TEST(sums_are_in_order)
{
    gpu_random random = {90 + (uint64_t)_i};
    const tsr_dtype dtype = floats[_i % 3];
    const int contributions = 1 + _i;
    for (int c = 0; c < COUNTS; c++) {
        const int64_t count = counts[c], words = tsr__packed_words(count),
                      all = words * contributions;
        const uint64_t bytes = (uint64_t)words * 4;
        const int64_t padded = words / 17 * 64;
        float *values = calloc((size_t)count, sizeof *values),
              *sum = calloc((size_t)count, sizeof *sum),
              *blocks = calloc((size_t)padded, sizeof *blocks);
        uint8_t *packed = calloc((size_t)contributions, bytes);
        ck_assert(values && sum && blocks && packed);
        for (int r = 0; r < contributions; r++) {
            uint64_t each;
            make_values(&random, values, count, ldexpf(1, -r), TSR_F32);
            uint8_t *one = packed_by_host(values, count, &each);
            memcpy(packed + (uint64_t)r * bytes, one, bytes);
            ck_assert_ok(tsr_dequantize(TSR_Q8_0, one, bytes, blocks, padded));
            for (int64_t i = 0; i < count; i++)
                sum[i] = r == 0 ? unpacked(one, bytes, blocks, i)
                                : sum[i] + unpacked(one, bytes, blocks, i);
            free(one);
        }
        tsr_tensor *x = words_new(all), *y = floats_of(dtype, values, count, _i >= 3);
        GPU_OK(tsr_tensor_upload(queue, x, packed, (uint64_t)contributions * bytes));
        GPU_OK(tsr__unpack_sum(queue, y, x, contributions));
        double *got = calloc((size_t)count, sizeof *got);
        ck_assert_ptr_nonnull(got);
        gpu_get(y, got);
        for (int64_t i = 0; i < count; i++)
            ck_assert_msg(got[i] == gpu_rounded((double)sum[i], dtype),
                          "%s, %lld elements: element %lld is %.9g, not %.9g",
                          tsr_dtype_name(dtype), (long long)count, (long long)i, got[i],
                          (double)sum[i]);
        free(got);
        free(values);
        free(sum);
        free(blocks);
        free(packed);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

START_TEST(not_finite)
{
    const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    const int64_t count = 100, words = tsr__packed_words(count);
    for (int k = 0; k < 3; k++) {
        float values[100];
        for (int i = 0; i < count; i++)
            values[i] = (float)i;
        values[41] = (float)odd[k];
        tsr_tensor *x = floats_of(TSR_F32, values, count, false), *packed = words_new(words);
        GPU_OK(tsr__pack(queue, packed, x));
        GPU_OK(tsr__unpack_sum(queue, x, packed, 1));
        double got[100];
        gpu_get(x, got);
        for (int i = 0; i < count; i++)
            ck_assert_msg(isnan(got[i]), "%g: element %d is %g", odd[k], i, got[i]);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&packed);
    }
}
END_TEST

/* Division on the device ----------------------------------------------------------------------- */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

enum { QUOTIENTS = 200000 };

/* Makes the ith dividend and divisor. They are random bits; numbers near 1; a divisor and its
 * product with a number, so that the quotient is near a float; pairs whose results are subnormal
 * or nearly so, some of them halfway between two floats; integers; and the limits below. */
static void make_pair(gpu_random *random, int i, uint32_t *a, uint32_t *b)
{
    static const uint32_t limits[] = {0,          1,          2,          3,          0x7fffff,
                                      0x800000,   0x800001,   0x3f7fffff, 0x3f800000, 0x3f800001,
                                      0x7f7fffff, 0x7f800000, 0x7fc00000};
    enum { LIMITS = sizeof limits / sizeof *limits };
    const uint32_t x = (uint32_t)gpu_random_between(random, 0, 0x7f7fffff),
                   y = (uint32_t)gpu_random_between(random, 0, 0x7f7fffff);
    *a = x;
    *b = y;
    if (i < LIMITS * LIMITS) {
        *a = limits[i / LIMITS];
        *b = limits[i % LIMITS];
    } else if (i % 5 == 1) {
        *a = 0x3f800000 | (x & 0x7fffff);
        *b = 0x3f800000 | (y & 0x7fffff);
    } else if (i % 5 == 2) {
        *b = 0x3f800000 | (y & 0x7fffff);
        *a = bits_of(from_bits(0x3f800000 | (x & 0x7fffff)) * from_bits(*b));
    } else if (i % 5 == 3) {
        *a = x & 0xffffff;
        *b = 0x3f800000 + (x & 0x1000000 ? y & 0xcffffff : y % 25 << 23); /* or a power of two */
    } else if (i % 5 == 4) {
        *b = bits_of((float)(1 + (y & 0xff)));
        *a = x & 1 ? bits_of((float)(x >> 8)) : bits_of(from_bits(x & 0xffffff) * from_bits(*b));
    }
}

/* Quotients on the device must have the bits of the host's, although Vulkan allows an error of
 * 2.5 units in the last place. The loop variable says by how much the device's first quotient is
 * wrong. */
START_TEST(quotients_are_those_of_the_host)
{
    const int64_t count = QUOTIENTS;
    const size_t bytes = QUOTIENTS * sizeof(uint32_t);
    const struct {
        uint32_t count;
        int32_t wrong;
    } scalars = {QUOTIENTS, _i};
    const uint32_t groups[] = {(QUOTIENTS + 63) / 64, 1, 1};
    gpu_random random = {200};
    uint32_t *a = malloc(bytes), *b = malloc(bytes), *got = malloc(bytes);
    tsr_kernel *kernel;
    ck_assert(a && b && got);
    for (int i = 0; i < QUOTIENTS; i++)
        make_pair(&random, i, &a[i], &b[i]);
    tsr_tensor *ta = gpu_new(TSR_U32, 1, &count), *tb = gpu_new(TSR_U32, 1, &count),
               *ty = gpu_new(TSR_U32, 1, &count);
    GPU_OK(tsr_kernel_create(
        gpu,
        tsr_kernel_params(.spirv = divide_spirv,
                          .spirv_words = sizeof divide_spirv / sizeof *divide_spirv,
                          .tensor_count = 3, .scalar_bytes = sizeof scalars),
        &kernel));
    GPU_OK(tsr_tensor_upload(queue, ta, a, bytes));
    GPU_OK(tsr_tensor_upload(queue, tb, b, bytes));
    GPU_OK(tsr_kernel_run(queue, kernel,
                          (tsr_kernel_argument[]){
                              tsr_kernel_argument(.tensor = ta), tsr_kernel_argument(.tensor = tb),
                              tsr_kernel_argument(.tensor = ty, .written = true)},
                          &scalars, groups));
    GPU_OK(tsr_tensor_download(queue, ty, got, bytes));
    for (int i = 0; i < QUOTIENTS; i++) {
        const float want = from_bits(a[i]) / from_bits(b[i]);
        ck_assert_msg(isnan(want) ? isnan(from_bits(got[i])) : got[i] == bits_of(want),
                      "0x%08x / 0x%08x, %d off, is 0x%08x, not 0x%08x", a[i], b[i], _i, got[i],
                      bits_of(want));
    }
    tsr_kernel_destroy(&kernel);
    tsr_tensor *tensors[] = {ta, tb, ty};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensors[i]);
    free(a);
    free(b);
    free(got);
}
END_TEST

START_TEST(nothing)
{
    const int64_t none = 0;
    tsr_tensor *x = gpu_new(TSR_F32, 1, &none), *y = gpu_new(TSR_U32, 1, &none);
    ck_assert_int_eq(tsr__packed_words(0), 0);
    GPU_OK(tsr__pack(queue, y, x));
    GPU_OK(tsr__unpack_sum(queue, x, y, 3));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

TESTS(pack)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, bytes_are_those_of_the_host, 0, 4);
    tcase_add_loop_test(tests, sums_are_in_order, 0, 4);
    tcase_add_test(tests, not_finite);
    tcase_add_test(tests, nothing);
    tcase_add_loop_test(tests, quotients_are_those_of_the_host, -3, 4);
}

TESTS(pack_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_loop_test(tests, bytes_are_those_of_the_host, 3, 6);
    tcase_add_loop_test(tests, sums_are_in_order, 3, 6);
}
