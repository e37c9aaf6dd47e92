#include <stddef.h>

#include "base/fault.h"
#include "support/check_main.h"

START_TEST(off_by_default)
{
    for (int i = 0; i < 10; i++) {
        ck_assert(!tsr__fault_hit(TSR__FAULT_ALLOC, "a"));
        ck_assert(!tsr__fault_hit(TSR__FAULT_VULKAN, "v"));
        ck_assert(!tsr__fault_hit(TSR__FAULT_NONE, "n"));
    }
    ck_assert_ptr_null(tsr__fault_site());
}
END_TEST

START_TEST(counts_its_own_kind_only)
{
    tsr__fault_arm(TSR__FAULT_VULKAN, 1, -3);
    ck_assert(!tsr__fault_hit(TSR__FAULT_ALLOC, "a"));
    ck_assert(!tsr__fault_hit(TSR__FAULT_VULKAN, "v0"));
    ck_assert(!tsr__fault_hit(TSR__FAULT_ALLOC, "a"));
    ck_assert(tsr__fault_hit(TSR__FAULT_VULKAN, "v1"));
    ck_assert_str_eq(tsr__fault_site(), "v1");
    ck_assert_int_eq(tsr__fault_code(), -3);
    for (int i = 0; i < 10; i++) /* the injected failure occurs only once */
        ck_assert(!tsr__fault_hit(TSR__FAULT_VULKAN, "v2"));
    ck_assert_str_eq(tsr__fault_site(), "v1");
}
END_TEST

START_TEST(arming_again_starts_over)
{
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 1);
    ck_assert(tsr__fault_hit(TSR__FAULT_ALLOC, "first"));
    tsr__fault_arm(TSR__FAULT_ALLOC, 1, 2);
    ck_assert_ptr_null(tsr__fault_site());
    ck_assert(!tsr__fault_hit(TSR__FAULT_ALLOC, "second"));
    ck_assert(tsr__fault_hit(TSR__FAULT_ALLOC, "third"));
    ck_assert_int_eq(tsr__fault_code(), 2);
}
END_TEST

START_TEST(disarm)
{
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 1);
    tsr__fault_disarm();
    ck_assert(!tsr__fault_hit(TSR__FAULT_ALLOC, "a"));
    ck_assert_ptr_null(tsr__fault_site());
}
END_TEST

TESTS(fault)
{
    tcase_add_test(tests, off_by_default);
    tcase_add_test(tests, counts_its_own_kind_only);
    tcase_add_test(tests, arming_again_starts_over);
    tcase_add_test(tests, disarm);
}
