/* Compares the kernels for every instruction set of this processor with references. */
#include <stdio.h>

#include "comm/reduce/numbers.h"

#define MAX 300
#define GUARD 64

static uint8_t bytes_a[MAX * 8 + 2 * GUARD], bytes_b[MAX * 8 + 2 * GUARD],
    bytes_out[MAX * 8 + 2 * GUARD], bytes_expected[MAX * 8 + 2 * GUARD];

static void fill(uint64_t *random, void *data, uint64_t count, tsr_dtype dtype)
{
    for (uint64_t i = 0; i < count; i++)
        store(data, i, dtype, random_element(random, dtype));
}

static void check_combine(uint64_t *random, const tsr__kernels *kernels, tsr_dtype dtype, tsr_op op,
                          uint64_t count)
{
    uint8_t *a = bytes_a + random_between(random, 0, GUARD);
    uint8_t *b = bytes_b + random_between(random, 0, GUARD);
    uint8_t *out = bytes_out + random_between(random, 0, GUARD);
    fill(random, a, count, dtype);
    fill(random, b, count, dtype);
    int64_t in_place = random_between(random, 0, 2);
    out = in_place == 1 ? a : in_place == 2 ? b : out;

    memset(bytes_out, 0xa5, sizeof bytes_out);
    uint8_t *whole = in_place == 1 ? bytes_a : in_place == 2 ? bytes_b : bytes_out;
    memcpy(bytes_expected, whole, sizeof bytes_expected);
    for (uint64_t i = 0; i < count; i++)
        store(bytes_expected + (out - whole), i, dtype,
              reference_combine(load(a, i, dtype), load(b, i, dtype), dtype, op));

    kernels->combine[dtype][op](out, a, b, (size_t)count);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t got = load(out, i, dtype), want = load(bytes_expected + (out - whole), i, dtype);
        if (got != want)
            ck_abort_msg("%s: %s of %s: [%d] of %d is %llx, not %llx", kernels->name,
                         tsr__op_name(op), tsr__element_name(dtype), (int)i, (int)count,
                         (unsigned long long)got, (unsigned long long)want);
    }
    ck_assert(memcmp(whole, bytes_expected, sizeof bytes_expected) ==
              0); /* memory next to it is unchanged */
}

START_TEST(combines)
{
    uint64_t random = (uint64_t)_i;
    const tsr__kernels *kernels;
    for (int level = 0; (kernels = tsr__reduce_kernels_at(level)) != NULL; level++) {
        for (int o = 0; o < OPS; o++) {
            for (uint64_t count = 0; count < 70; count++)
                check_combine(&random, kernels, all_dtypes[_i], all_ops[o], count);
            for (int i = 0; i < 40; i++)
                check_combine(&random, kernels, all_dtypes[_i], all_ops[o], MAX);
        }
    }
}
END_TEST

START_TEST(divides)
{
    static const uint32_t divisors[] = {1, 2, 3, 5, 7, 16, 1023, 4096};
    tsr_dtype dtype = all_dtypes[_i];
    uint64_t random = (uint64_t)_i + 100;
    const tsr__kernels *kernels;
    for (int level = 0; (kernels = tsr__reduce_kernels_at(level)) != NULL; level++) {
        for (size_t d = 0; d < sizeof divisors / sizeof divisors[0]; d++) {
            for (uint64_t count = 0; count < MAX; count += 23) {
                uint8_t *data = bytes_a + random_between(&random, 0, GUARD);
                fill(&random, data, count, dtype);
                memcpy(bytes_expected, bytes_a, sizeof bytes_a);
                for (uint64_t i = 0; i < count; i++)
                    store(bytes_expected + (data - bytes_a), i, dtype,
                          reference_divide(load(data, i, dtype), divisors[d], dtype));
                kernels->divide[dtype](data, (size_t)count, divisors[d]);
                ck_assert(memcmp(bytes_a, bytes_expected, sizeof bytes_a) == 0);
            }
        }
    }
}
END_TEST

START_TEST(names)
{
    ck_assert_str_eq(tsr__element_name(TSR_F64), "f64");
    ck_assert_str_eq(tsr__element_name((tsr_dtype)9), "?");
    ck_assert_str_eq(tsr__element_name((tsr_dtype)-1), "?");
    ck_assert_uint_eq(tsr__element_size(TSR_BF16), 2);
    ck_assert_uint_eq(tsr__element_size((tsr_dtype)0), 0);
    ck_assert_uint_eq(tsr__element_size((tsr_dtype)1000), 0);
    ck_assert_str_eq(tsr__op_name(TSR_OP_PROD), "prod");
    ck_assert_str_eq(tsr__op_name((tsr_op)6), "?");
    ck_assert_str_eq(tsr__op_name((tsr_op)-1), "?");
    ck_assert_str_eq(tsr__reduce_kernels_at(0)->name, "base");
    ck_assert_ptr_nonnull(tsr__reduce_kernels());
}
END_TEST

TESTS(reduce)
{
    tcase_add_loop_test(tests, combines, 0, DTYPES);
    tcase_add_loop_test(tests, divides, 0, DTYPES);
    tcase_add_test(tests, names);
}
