#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "support/check_main.h"

/* Sets *user to whether the thread's text is empty. */
static void *look_at_text(void *user)
{
    *(bool *)user = *tsr_last_error() == '\0';
    return NULL;
}

/* Each thread has a text of its own, and other tests of this process may have recorded errors. */
START_TEST(text_is_empty_before_the_first_error)
{
    bool is_empty = false;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, look_at_text, &is_empty), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(is_empty);
}
END_TEST

START_TEST(fail_records_text_and_returns_the_status)
{
    ck_assert_int_eq(tsr__fail(TSR_ERR_IO, "%s: %d", "file", 3), TSR_ERR_IO);
    ck_assert_str_eq(tsr_last_error(), "file: 3");
    (void)tsr__fail(TSR_ERR_IO, "second");
    ck_assert_str_eq(tsr_last_error(), "second");
}
END_TEST

START_TEST(context_comes_first)
{
    (void)tsr__fail(TSR_ERR_IO, "disk full");
    ck_assert_int_eq(tsr__fail_context(TSR_ERR_DRIVER, "cache %d", 7), TSR_ERR_DRIVER);
    ck_assert_str_eq(tsr_last_error(), "cache 7: disk full");
}
END_TEST

START_TEST(the_old_text_may_be_an_argument)
{
    (void)tsr__fail(TSR_ERR_IO, "inner");
    (void)tsr__fail(TSR_ERR_IO, "outer (%s)", tsr_last_error());
    ck_assert_str_eq(tsr_last_error(), "outer (inner)");
    (void)tsr__fail_context(TSR_ERR_IO, "again %s", tsr_last_error());
    ck_assert_str_eq(tsr_last_error(), "again outer (inner): outer (inner)");
}
END_TEST

/* Tries every length around the limit, so that the limit is both between two-byte characters and
 * within one. */
START_TEST(long_texts_are_cut_between_characters)
{
    char text[3000];
    for (size_t lead = 0; lead < 3; lead++) {
        memset(text, 'x', lead);
        for (size_t i = lead; i + 2 < sizeof text; i += 2)
            memcpy(text + i, "é", sizeof "é");
        (void)tsr__fail(TSR_ERR_IO, "%s", text);
        const char *got = tsr_last_error();
        size_t length = strlen(got);
        ck_assert_uint_gt(length, 1000);
        ck_assert_uint_lt(length, 1024);
        ck_assert_str_eq(got + length - strlen("…"), "…");
        size_t kept = length - strlen("…");
        ck_assert_mem_eq(got, text, kept);
        ck_assert_uint_eq((kept - lead) % 2, 0);

        (void)tsr__fail_context(TSR_ERR_IO, "in a file");
        ck_assert_uint_lt(strlen(tsr_last_error()), 1024);
        ck_assert_int_eq(strncmp(tsr_last_error(), "in a file: ", 11), 0);
        (void)tsr__fail_context(TSR_ERR_IO, "%s", text);
        ck_assert_uint_lt(strlen(tsr_last_error()), 1024);
    }
}
END_TEST

START_TEST(a_text_is_taken_and_put_back)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)tsr__fail(TSR_ERR_IO, "%s", text);
    strcpy(text, tsr_last_error());

    const tsr__error kept = tsr__error_take();
    ck_assert_str_eq(tsr_last_error(), "");
    (void)tsr__fail(TSR_ERR_IO, "another");
    tsr__error_put_back(&kept);
    ck_assert_str_eq(tsr_last_error(), text);
}
END_TEST

static void *other_thread(void *seen)
{
    *(int *)seen = tsr_last_error()[0] == '\0';
    (void)tsr__fail(TSR_ERR_IO, "from the other thread");
    return NULL;
}

START_TEST(each_thread_has_its_own_text)
{
    (void)tsr__fail(TSR_ERR_IO, "mine");
    int started_empty = 0;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, &started_empty), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(started_empty);
    ck_assert_str_eq(tsr_last_error(), "mine");
}
END_TEST

static tsr_status needs_positive(int n)
{
    TSR__REQUIRE(n > 0, "n is %d", n);
    return TSR_OK;
}

static tsr_status passes_on(int n)
{
    TSR__TRY(needs_positive(n));
    return TSR_OK;
}

START_TEST(require_and_try)
{
    ck_assert_ok(passes_on(1));
    ck_assert_error(passes_on(-4), TSR_ERR_INVALID, "n is -4");
    ck_assert_ok(passes_on(1));
    ck_assert_str_eq(tsr_last_error(), "n is -4"); /* a success does not clear the text */
}
END_TEST

START_TEST(every_status_has_a_name)
{
    static const char *const names[] = {
        "TSR_OK",
        "TSR_ERR_INVALID",
        "TSR_ERR_NO_MEMORY",
        "TSR_ERR_DEVICE_MEMORY",
        "TSR_ERR_UNSUPPORTED",
        "TSR_ERR_NOT_FOUND",
        "TSR_ERR_DEVICE_LOST",
        "TSR_ERR_DRIVER",
        "TSR_ERR_IO",
        "TSR_ERR_OVERFLOW",
        "TSR_ERR_TIMEOUT",
        "TSR_ERR_PEER_LOST",
    };
    int count = (int)(sizeof names / sizeof names[0]);
    for (int i = 0; i < count; i++)
        ck_assert_str_eq(tsr_status_name((tsr_status)-i), names[i]);
    ck_assert_str_eq(tsr_status_name((tsr_status)1), "TSR_ERR_?");
    ck_assert_str_eq(tsr_status_name((tsr_status)-count), "TSR_ERR_?");
}
END_TEST

START_TEST(version_is_three_numbers)
{
    int major, minor, patch, end = 0;
    ck_assert_int_eq(sscanf(tsr_version(), "%d.%d.%d%n", &major, &minor, &patch, &end), 3);
    ck_assert_int_eq(tsr_version()[end], '\0');
}
END_TEST

TESTS(error)
{
    tcase_add_test(tests, text_is_empty_before_the_first_error);
    tcase_add_test(tests, fail_records_text_and_returns_the_status);
    tcase_add_test(tests, context_comes_first);
    tcase_add_test(tests, the_old_text_may_be_an_argument);
    tcase_add_test(tests, long_texts_are_cut_between_characters);
    tcase_add_test(tests, a_text_is_taken_and_put_back);
    tcase_add_test(tests, each_thread_has_its_own_text);
    tcase_add_test(tests, require_and_try);
    tcase_add_test(tests, every_status_has_a_name);
    tcase_add_test(tests, version_is_three_numbers);
}
