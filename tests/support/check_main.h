/* Unit tests with Check. A test file has tests and one list of them:
 *
 *     START_TEST(adds) { ck_assert_int_eq(1 + 1, 2); }
 *     END_TEST
 *
 *     TESTS(arithmetic)
 *     {
 *         tcase_add_test(tests, adds);
 *     }
 *
 * main() is in check_main.c. Every test runs in a process of its own, so a crash is one failure.
 * Objects that must not cross fork(), such as a Vulkan device, are opened in a checked fixture:
 * tcase_add_checked_fixture(tests, open_device, close_device).
 *
 * To run one list alone: CK_RUN_CASE=arithmetic build/…/test-base. The words of a list's name are
 * its tags, by which CK_INCLUDE_TAGS and CK_EXCLUDE_TAGS select lists. In a debugger, also set
 * CK_FORK=no. */
#ifndef TESTS_SUPPORT_CHECK_MAIN_H
#define TESTS_SUPPORT_CHECK_MAIN_H

#include <stdlib.h>

#include "support/check.h"

typedef void (*tests_add_fn)(TCase *tests);

void tests_register(const char *name, tests_add_fn add);

/* Defines the list called `name` and makes it known before main() starts. */
#define TESTS(name)                                                                                \
    static void add_##name(TCase *tests);                                                          \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        tests_register(#name, add_##name);                                                         \
    }                                                                                              \
    static void add_##name(TCase *tests)

/* Removes a file, or a folder with everything in it. */
void tests_remove(const char *path);

/* Skips the rest of the calling test; the arguments are those of printf and give the reason. The
 * result reads "ok N - name # SKIP reason". It returns, so it must be used in the test function
 * itself.
 *
 *     if (compiler == NULL)
 *         SKIP("the library was built without shaderc"); */
#define SKIP(...)                                                                                  \
    do {                                                                                           \
        tests_skip(__VA_ARGS__);                                                                   \
        return;                                                                                    \
    } while (0)

/* Skips a test that takes gigabytes or minutes, unless TESSERA_TEST_HUGE is set. */
#define SKIP_UNLESS_HUGE(needs)                                                                    \
    do {                                                                                           \
        if (getenv("TESSERA_TEST_HUGE") == NULL)                                                   \
            SKIP("needs %s; TESSERA_TEST_HUGE=1 runs it", needs);                                  \
    } while (0)

/* Marks the running test as skipped. This is for helper functions; the test itself must then
 * return. If it fails, it counts as failed. A reason is cut after 255 bytes, and its line breaks
 * become spaces. */
void tests_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Requires that two numbers are equal. If they are not, the test fails with both values, for which
 * the arguments are evaluated again. */
#define ck_assert_equal(got, want)                                                                 \
    ck_assert_msg((got) == (want), "%s is %.17g, not %.17g", #got, (double)(got), (double)(want))

/* Requires that a status is TSR_OK. If it is not, the test fails with the library's error text. */
#define ck_assert_ok(call)                                                                         \
    do {                                                                                           \
        tsr_status ck_status_ = (call);                                                            \
        if (ck_status_ != TSR_OK)                                                                  \
            ck_abort_msg("%s: %s: %s", #call, tsr_status_name(ck_status_), tsr_last_error());      \
    } while (0)

/* Requires that a call fails with this status and exactly this error text. */
#define ck_assert_error(call, status, text)                                                        \
    do {                                                                                           \
        tsr_status ck_status_ = (call);                                                            \
        ck_assert_str_eq(tsr_status_name(ck_status_), #status);                                    \
        ck_assert_str_eq(tsr_last_error(), text);                                                  \
    } while (0)

#endif
