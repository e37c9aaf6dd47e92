#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "support/check_main.h"

static struct {
    int count;
    void *user;
    tsr_log_level level;
    char text[64];
} got;

static void keep(void *user, tsr_log_level level, const char *message)
{
    got.count++;
    got.user = user;
    got.level = level;
    snprintf(got.text, sizeof got.text, "%s", message);
}

START_TEST(off_at_the_start_and_when_fn_is_null)
{
    tsr__log(TSR_LOG_ERROR, "nobody listens");
    tsr_log_set(keep, NULL, TSR_LOG_DEBUG);
    tsr_log_set(NULL, NULL, TSR_LOG_DEBUG);
    tsr__log(TSR_LOG_ERROR, "nobody listens");
    ck_assert_int_eq(got.count, 0);
}
END_TEST

START_TEST(messages_reach_the_function)
{
    int mine = 0;
    tsr_log_set(keep, &mine, TSR_LOG_WARNING);
    tsr__log(TSR_LOG_WARNING, "%s %d", "slab", 3);
    ck_assert_int_eq(got.count, 1);
    ck_assert_ptr_eq(got.user, &mine);
    ck_assert_int_eq(got.level, TSR_LOG_WARNING);
    ck_assert_str_eq(got.text, "slab 3");
}
END_TEST

START_TEST(only_up_to_the_level)
{
    tsr_log_set(keep, NULL, TSR_LOG_WARNING);
    tsr__log(TSR_LOG_INFO, "too detailed");
    tsr__log(TSR_LOG_DEBUG, "too detailed");
    ck_assert_int_eq(got.count, 0);
    tsr__log(TSR_LOG_ERROR, "worse is shown");
    ck_assert_int_eq(got.count, 1);
}
END_TEST

static size_t last_length;

static void keep_length(void *user, tsr_log_level level, const char *message)
{
    (void)user, (void)level;
    last_length = strlen(message);
}

START_TEST(long_messages_are_cut)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    tsr_log_set(keep_length, NULL, TSR_LOG_DEBUG);
    tsr__log(TSR_LOG_INFO, "%s", text);
    ck_assert_uint_eq(last_length, 1023);
}
END_TEST

static void logs_again(void *user, tsr_log_level level, const char *message)
{
    (void)user, (void)message;
    got.count++;
    if (level == TSR_LOG_ERROR)
        tsr__log(TSR_LOG_WARNING, "from inside");
    else
        tsr_log_set(NULL, NULL, TSR_LOG_ERROR);
}

START_TEST(the_function_may_call_the_library)
{
    tsr_log_set(logs_again, NULL, TSR_LOG_DEBUG);
    tsr__log(TSR_LOG_ERROR, "outer");
    tsr__log(TSR_LOG_ERROR, "after it turned logging off");
    ck_assert_int_eq(got.count, 2);
}
END_TEST

static void ignore(void *user, tsr_log_level level, const char *message)
{
    (void)level, (void)message;
    if (user != &got)
        ck_abort_msg("a function was called with another's user pointer");
}

static void *log_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++)
        tsr__log(TSR_LOG_INFO, "%d", i);
    return NULL;
}

START_TEST(setting_while_others_log)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, log_many, NULL), 0);
    for (int i = 0; i < 20000; i++) {
        tsr_log_set(ignore, &got, TSR_LOG_DEBUG);
        tsr_log_set(NULL, NULL, TSR_LOG_ERROR);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

/* Where the system has no fork, tests share a process, so each starts by resetting the log. */
static void reset(void)
{
    tsr_log_set(NULL, NULL, TSR_LOG_ERROR);
    memset(&got, 0, sizeof got);
}

TESTS(log)
{
    tcase_add_checked_fixture(tests, reset, NULL);
    tcase_add_test(tests, off_at_the_start_and_when_fn_is_null);
    tcase_add_test(tests, messages_reach_the_function);
    tcase_add_test(tests, only_up_to_the_level);
    tcase_add_test(tests, long_messages_are_cut);
    tcase_add_test(tests, the_function_may_call_the_library);
    tcase_add_test(tests, setting_while_others_log);
}
