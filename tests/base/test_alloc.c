#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "support/check_main.h"

START_TEST(calloc_zeroes)
{
    unsigned char *memory = tsr__calloc(100, 7);
    ck_assert_ptr_nonnull(memory);
    for (int i = 0; i < 700; i++)
        ck_assert_int_eq(memory[i], 0);
    tsr__free(memory);
}
END_TEST

START_TEST(size_0_gives_a_pointer)
{
    void *a = tsr__calloc(0, 8), *b = tsr__calloc(8, 0);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_ne(a, b);
    tsr__free(a);
    tsr__free(b);
    tsr__free(NULL);
}
END_TEST

/* The size is volatile, because the compiler would warn about a constant of this size. */
static volatile size_t huge = SIZE_MAX / 2;

START_TEST(calloc_overflow_is_recorded)
{
    char text[100];
    snprintf(text, sizeof text, "out of host memory: %zu × 4 bytes", huge);
    ck_assert_ptr_null(tsr__calloc(huge, 4));
    ck_assert_str_eq(tsr_last_error(), text);
}
END_TEST

START_TEST(the_nth_allocation_fails_once)
{
    tsr__fault_arm(TSR__FAULT_ALLOC, 2, 0);
    void *first = tsr__calloc(1, 1);
    char *second = tsr__strdup("abc");
    ck_assert_ptr_nonnull(first);
    ck_assert_str_eq(second, "abc");
    ck_assert_ptr_null(tsr__fault_site());
    ck_assert_ptr_null(tsr__calloc(3, 5));
    ck_assert_str_eq(tsr_last_error(), "out of host memory: 3 × 5 bytes");
    ck_assert_str_eq(tsr__fault_site(), "tsr__calloc");
    void *fourth = tsr__calloc(1, 1);
    ck_assert_ptr_nonnull(fourth);
    tsr__free(first);
    tsr__free(second);
    tsr__free(fourth);
}
END_TEST

START_TEST(strdup_fails)
{
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    ck_assert_ptr_null(tsr__strdup("abc"));
    ck_assert_str_eq(tsr_last_error(), "out of host memory: 4 × 1 bytes");
}
END_TEST

START_TEST(grow_keeps_the_elements)
{
    uint32_t *array = NULL;
    size_t capacity = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        size_t before = capacity;
        ck_assert_ok(tsr__grow((void **)&array, &capacity, i + 1, sizeof *array));
        ck_assert_uint_ge(capacity, i + 1);
        ck_assert(capacity == before || capacity >= 2 * before);
        array[i] = i;
    }
    for (uint32_t i = 0; i < 1000; i++)
        ck_assert_uint_eq(array[i], i);

    size_t before = capacity;
    ck_assert_ok(tsr__grow((void **)&array, &capacity, 5, sizeof *array)); /* never shrinks */
    ck_assert_uint_eq(capacity, before);
    tsr__free(array);
}
END_TEST

START_TEST(grow_changes_nothing_on_failure)
{
    void *array = NULL;
    size_t capacity = 0;
    ck_assert_ok(tsr__grow(&array, &capacity, 10, 4));
    memset(array, 0x5a, 40);
    void *before = array;
    size_t capacity_before = capacity;

    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    ck_assert_error(tsr__grow(&array, &capacity, 17, 4), TSR_ERR_NO_MEMORY,
                    "out of host memory: 32 × 4 bytes");
    ck_assert_str_eq(tsr__fault_site(), "tsr__grow");
    ck_assert_int_eq(tsr__grow(&array, &capacity, huge, 4), TSR_ERR_NO_MEMORY);
    ck_assert_int_eq(tsr__grow(&array, &capacity, SIZE_MAX, 1), TSR_ERR_NO_MEMORY);

    ck_assert_ptr_eq(array, before);
    ck_assert_uint_eq(capacity, capacity_before);
    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(((unsigned char *)array)[i], 0x5a);
    tsr__free(array);
}
END_TEST

TESTS(alloc)
{
    tcase_add_test(tests, calloc_zeroes);
    tcase_add_test(tests, size_0_gives_a_pointer);
    tcase_add_test(tests, calloc_overflow_is_recorded);
    tcase_add_test(tests, the_nth_allocation_fails_once);
    tcase_add_test(tests, strdup_fails);
    tcase_add_test(tests, grow_keeps_the_elements);
    tcase_add_test(tests, grow_changes_nothing_on_failure);
}
