#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/given.h"
#include "base/struct_size.h"
#include "support/check_main.h"

/* A struct of params as this library knows it, as older headers had it, and as newer ones will. */
typedef struct tsr_made_params {
    size_t struct_size;
    int64_t a, b;
} tsr_made_params;
typedef struct older {
    size_t struct_size;
    int64_t a;
} older;
typedef struct newer {
    size_t struct_size;
    int64_t a, b, c;
} newer;

static tsr_status take(const void *given, tsr_made_params *out)
{
    const tsr_made_params *params = given;
    TSR__TAKE(tsr_made_params, params);
    *out = *params;
    return TSR_OK;
}

START_TEST(takes_params_of_any_size)
{
    tsr_made_params got = {.a = 7};
    ck_assert_ok(take(NULL, &got));
    ck_assert(got.struct_size == sizeof got && got.a == 0 && got.b == 0);
    ck_assert_ok(take(&(older){.struct_size = sizeof(older), .a = 3}, &got));
    ck_assert(got.struct_size == sizeof got && got.a == 3 && got.b == 0);
    ck_assert_ok(take(&(newer){.struct_size = sizeof(newer), .a = 4, .b = 5}, &got));
    ck_assert(got.struct_size == sizeof got && got.a == 4 && got.b == 5);
    const tsr_made_params same = {.struct_size = sizeof same, .a = 8, .b = 9};
    ck_assert_ok(take(&same, &got));
    ck_assert_mem_eq(&got, &same, sizeof same);
}
END_TEST

START_TEST(refuses_params_without_a_size)
{
    tsr_made_params got;
    ck_assert_error(take(&(tsr_made_params){.a = 1}, &got), TSR_ERR_INVALID,
                    "tsr_made_params: struct_size is 0; use the macro tsr_made_params(...) or "
                    "TSR_INIT(tsr_made_params)");
    ck_assert_error(take(&(tsr_made_params){.struct_size = 3}, &got), TSR_ERR_INVALID,
                    "tsr_made_params: struct_size is 3, less than its own 8 bytes");
}
END_TEST

START_TEST(refuses_fields_that_it_does_not_know)
{
    tsr_made_params got;
    newer given = {.struct_size = sizeof given, .a = 1};
    memset((char *)&given + 26, 1, 1);
    ck_assert_error(take(&given, &got), TSR_ERR_INVALID,
                    "tsr_made_params: struct_size is 32, this library knows the first 24 bytes, "
                    "and byte 26 is not 0: the program uses a field of a newer library");
}
END_TEST

static tsr_status take_array(uint64_t count, const void *given, tsr_made_params **out)
{
    return tsr__struct_take_array("tsr_made", sizeof **out, count, given, (void **)out);
}

START_TEST(takes_arrays_by_the_stride_of_their_first_element)
{
    tsr_made_params *got;
    ck_assert_ok(take_array(0, NULL, &got));
    ck_assert_ptr_null(got);
    const older short_ones[] = {{sizeof(older), 1}, {sizeof(older), 2}, {sizeof(older), 3}};
    ck_assert_ok(take_array(3, short_ones, &got));
    for (int i = 0; i < 3; i++)
        ck_assert(got[i].struct_size == sizeof *got && got[i].a == i + 1 && got[i].b == 0);
    tsr__free(got);
    const newer long_ones[] = {{sizeof(newer), 1, 2, 0}, {sizeof(newer), 3, 4, 0}};
    ck_assert_ok(take_array(2, long_ones, &got));
    ck_assert(got[1].a == 3 && got[1].b == 4);
    tsr__free(got);
}
END_TEST

START_TEST(refuses_arrays)
{
    tsr_made_params *got;
    ck_assert_error(take_array(2, NULL, &got), TSR_ERR_INVALID, "tsr_made: the array of 2 is NULL");
    ck_assert_error(take_array(1, &(older){.a = 1}, &got), TSR_ERR_INVALID,
                    "tsr_made: struct_size is 0; use TSR_INIT(tsr_made)");
    const older mixed[] = {{sizeof(older), 1}, {sizeof(newer), 2}};
    ck_assert_error(take_array(2, mixed, &got), TSR_ERR_INVALID,
                    "tsr_made: struct_size of element 1 is 32, of element 0 16");
    const newer unknown[] = {{sizeof(newer), 1, 2, 0}, {sizeof(newer), 3, 4, 1}};
    ck_assert_error(take_array(2, unknown, &got), TSR_ERR_INVALID,
                    "element 1: tsr_made: struct_size is 32, this library knows the first 24 "
                    "bytes, and byte 24 is not 0: the program uses a field of a newer library");
    ck_assert_int_eq(take_array(UINT64_MAX / 2, unknown, &got), TSR_ERR_OVERFLOW);
    ck_assert_ptr_null(got);
}
END_TEST

static tsr_status give(void *out)
{
    const tsr_made_params value = {.struct_size = 1, .a = 5, .b = 6};
    TSR__GIVE(tsr_made_params, &value, out);
    return TSR_OK;
}

START_TEST(writes_results_of_any_size)
{
    tsr_made_params same = TSR_INIT(tsr_made_params);
    ck_assert_ok(give(&same));
    ck_assert(same.struct_size == sizeof same && same.a == 5 && same.b == 6);
    older pair[2] = {{.struct_size = sizeof(older)}, {.struct_size = 77, .a = 78}};
    ck_assert_ok(give(&pair[0]));
    ck_assert(pair[0].struct_size == sizeof(older) && pair[0].a == 5);
    ck_assert(pair[1].struct_size == 77 && pair[1].a == 78);
    newer longer = {.struct_size = sizeof longer, .c = 9};
    ck_assert_ok(give(&longer));
    ck_assert(longer.struct_size == sizeof longer && longer.b == 6 && longer.c == 0);
    tsr_made_params none = {.a = 1};
    ck_assert_error(give(&none), TSR_ERR_INVALID,
                    "tsr_made_params: struct_size is 0; use the macro tsr_made_params(...) or "
                    "TSR_INIT(tsr_made_params)");
    ck_assert(none.a == 1);
}
END_TEST

START_TEST(writes_arrays_by_the_stride_of_their_first_element)
{
    const tsr_made_params values[] = {{1, 2, 3}, {1, 4, 5}};
    older pair[3] = {{sizeof(older), 0}, {sizeof(older), 0}, {77, 78}};
    ck_assert_ok(tsr__struct_check_out_array("tsr_made", 2, pair));
    tsr__struct_write_array(sizeof *values, 2, values, pair);
    ck_assert(pair[0].a == 2 && pair[1].a == 4 && pair[1].struct_size == sizeof(older));
    ck_assert(pair[2].struct_size == 77 && pair[2].a == 78);
    newer longer[2] = {{sizeof(newer), 0, 0, 9}, {sizeof(newer), 0, 0, 9}};
    ck_assert_ok(tsr__struct_check_out_array("tsr_made", 2, longer));
    tsr__struct_write_array(sizeof *values, 2, values, longer);
    ck_assert(longer[1].a == 4 && longer[1].b == 5 && longer[0].c == 0 && longer[1].c == 0);
    pair[1].struct_size = 24;
    ck_assert_error(tsr__struct_check_out_array("tsr_made", 2, pair), TSR_ERR_INVALID,
                    "tsr_made: struct_size of element 1 is 24, of element 0 16");
    pair[0].struct_size = 0;
    ck_assert_error(tsr__struct_check_out_array("tsr_made", 2, pair), TSR_ERR_INVALID,
                    "tsr_made: struct_size is 0; use TSR_INIT(tsr_made)");
    ck_assert_ok(tsr__struct_check_out_array("tsr_made", 0, NULL));
    tsr__struct_write_array(sizeof *values, 0, values, NULL);
}
END_TEST

START_TEST(zero_is_unset_and_negative_zero_is_zero)
{
    ck_assert(tsr__given_double(0, 3) == 3 && tsr__given_double(2, 3) == 2);
    ck_assert(tsr__given_double(TSR_ZERO, 3) == 0 && !signbit(tsr__given_double(TSR_ZERO, 3)));
    ck_assert(tsr__given_float(0, 3) == 3 && tsr__given_float(-2, 3) == -2);
    const float zero = TSR_ZERO;
    ck_assert(tsr__given_float(zero, 3) == 0 && !signbit(tsr__given_float(zero, 3)));
    ck_assert(isnan(tsr__given_double(NAN, 3)));
}
END_TEST

TESTS(struct_size)
{
    tcase_add_test(tests, takes_params_of_any_size);
    tcase_add_test(tests, refuses_params_without_a_size);
    tcase_add_test(tests, refuses_fields_that_it_does_not_know);
    tcase_add_test(tests, takes_arrays_by_the_stride_of_their_first_element);
    tcase_add_test(tests, refuses_arrays);
    tcase_add_test(tests, writes_results_of_any_size);
    tcase_add_test(tests, writes_arrays_by_the_stride_of_their_first_element);
    tcase_add_test(tests, zero_is_unset_and_negative_zero_is_zero);
}
