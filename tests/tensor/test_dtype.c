#include "support/check_main.h"
#include "tessera/layout.h"

static const struct {
    tsr_dtype dtype;
    const char *name;
    uint64_t size_bytes;
} expected[] = {
    {TSR_F32, "f32", 4}, {TSR_F16, "f16", 2}, {TSR_BF16, "bf16", 2}, {TSR_I32, "i32", 4},
    {TSR_U32, "u32", 4}, {TSR_I64, "i64", 8}, {TSR_U8, "u8", 1},
};

START_TEST(names_and_sizes)
{
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        ck_assert_uint_eq(tsr_dtype_size(expected[i].dtype), expected[i].size_bytes);
        ck_assert_str_eq(tsr_dtype_name(expected[i].dtype), expected[i].name);
        tsr_dtype parsed = (tsr_dtype)0;
        ck_assert_ok(tsr_dtype_parse(expected[i].name, &parsed));
        ck_assert_int_eq((int)parsed, (int)expected[i].dtype);
    }
}
END_TEST

START_TEST(values_that_are_not_a_dtype)
{
    static const int wrong[] = {0, -1, 8, 1000000};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_uint_eq(tsr_dtype_size((tsr_dtype)wrong[i]), 0);
        ck_assert_str_eq(tsr_dtype_name((tsr_dtype)wrong[i]), "?");
    }
}
END_TEST

START_TEST(parse_errors)
{
    tsr_dtype out = TSR_I64;
    ck_assert_error(tsr_dtype_parse("f31", &out), TSR_ERR_NOT_FOUND,
                    "dtype_parse: there is no dtype 'f31'");
    ck_assert_error(tsr_dtype_parse("?", &out), TSR_ERR_NOT_FOUND,
                    "dtype_parse: there is no dtype '?'");
    ck_assert_error(tsr_dtype_parse(NULL, &out), TSR_ERR_INVALID, "dtype_parse: name is NULL");
    ck_assert_error(tsr_dtype_parse("f32", NULL), TSR_ERR_INVALID, "dtype_parse: out is NULL");
    ck_assert_int_eq((int)out, (int)TSR_I64);
}
END_TEST

TESTS(dtype)
{
    tcase_add_test(tests, names_and_sizes);
    tcase_add_test(tests, values_that_are_not_a_dtype);
    tcase_add_test(tests, parse_errors);
}
