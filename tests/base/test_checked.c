#include "base/checked.h"
#include "support/check_main.h"

START_TEST(products)
{
    uint64_t out = 7;
    ck_assert(tsr__mul_u64(UINT32_MAX, UINT32_MAX, &out));
    ck_assert(out == UINT64_C(0xFFFFFFFE00000001));
    ck_assert(tsr__mul_u64(UINT64_MAX, 1, &out) && out == UINT64_MAX);
    ck_assert(tsr__mul_u64(UINT64_MAX, 0, &out) && out == 0);
    ck_assert(tsr__mul_u64(0, UINT64_MAX, &out) && out == 0);
    out = 7;
    ck_assert(!tsr__mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    ck_assert(!tsr__mul_u64(UINT64_MAX, 2, &out));
    ck_assert_uint_eq(out, 7);
}
END_TEST

START_TEST(sums)
{
    uint64_t out = 7;
    ck_assert(!tsr__add_u64(UINT64_MAX, 1, &out));
    ck_assert_uint_eq(out, 7);
    ck_assert(tsr__add_u64(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
}
END_TEST

START_TEST(rounding)
{
    ck_assert_uint_eq(tsr__div_up_u64(0, 8), 0);
    ck_assert_uint_eq(tsr__div_up_u64(8, 8), 1);
    ck_assert_uint_eq(tsr__div_up_u64(9, 8), 2);
    ck_assert(tsr__div_up_u64(UINT64_MAX, 2) == UINT64_C(1) << 63);
    ck_assert_uint_eq(tsr__align_up_u64(0, 256), 0);
    ck_assert_uint_eq(tsr__align_up_u64(1, 256), 256);
    ck_assert_uint_eq(tsr__align_up_u64(256, 256), 256);
    ck_assert_uint_eq(tsr__min_u64(3, 4), 3);
    ck_assert_uint_eq(tsr__max_u64(3, 4), 4);
}
END_TEST

TESTS(checked)
{
    tcase_add_test(tests, products);
    tcase_add_test(tests, sums);
    tcase_add_test(tests, rounding);
}
