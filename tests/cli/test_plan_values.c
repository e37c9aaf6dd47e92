/* Tests how values of the options of tessera plan are read. */
#include "cli/lib/numbers.h"
#include "cli/plan/plan.h"
#include "support/check_main.h"

static const struct {
    const char *text;
    uint64_t bytes;
} sizes[] = {
    {"0", 0},
    {"1", 1},
    {"8G", UINT64_C(8) << 30},
    {"8GiB", UINT64_C(8) << 30},
    {"1.5T", UINT64_C(3) << 39},
    {"0.5K", 512},
    {"512M", UINT64_C(512) << 20},
    {"9007199254740992", UINT64_C(1) << 53},
    {"8192T", UINT64_C(1) << 53},
    {"1e9", 1000000000},
    {"0.0T", 0},
    {"0.001K", 1},
};

START_TEST(sizes_in_bytes)
{
    uint64_t bytes = 7;
    ck_assert(cli_read_bytes(sizes[_i].text, &bytes));
    ck_assert_uint_eq(bytes, sizes[_i].bytes);
}
END_TEST

static const char *const no_sizes[] = {"",    "G",    "-1",   "+1",     "8 G",     "8g",      "8GB",
                                       "8Gi", "8GG",  "0x10", "inf",    "8193T",   "1e99",    ".5G",
                                       "nan", "1..5", "0.5",  "1e-400", "0.0001K", "1048576T"};

START_TEST(invalid_sizes)
{
    uint64_t bytes = 7;
    ck_assert(!cli_read_bytes(no_sizes[_i], &bytes));
    ck_assert_uint_eq(bytes, 7);
}
END_TEST

START_TEST(rates)
{
    static const char *const wrong[] = {"", "-1", "1x", "0x10", "inf", "nan", "1e999", " 1", "1,2"};
    double rate = 7;
    ck_assert(plan_read_rate("2.5e-1", &rate));
    ck_assert_double_eq(rate, 0.25);
    ck_assert(plan_read_rate("0", &rate));
    ck_assert_double_eq(rate, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(!plan_read_rate(wrong[i], &rate), "%s", wrong[i]);
}
END_TEST

START_TEST(lists)
{
    plan_list list = {0};
    ck_assert(plan_list_add(&list, "a"));
    ck_assert(plan_list_add(&list, "b*,!c d"));
    ck_assert_uint_eq(list.count, 3);
    ck_assert_str_eq(list.texts[1], "b*");
    ck_assert_str_eq(list.texts[2], "!c d");
    ck_assert_ptr_null(list.texts[3]);
    ck_assert(!plan_list_add(&list, ""));
    ck_assert(!plan_list_add(&list, ",a"));
    ck_assert(!plan_list_add(&list, "a,"));
    plan_list_free(&list);
    ck_assert(list.count == 0 && list.texts == NULL);
    plan_list_free(&list);
}
END_TEST

TESTS(plan_values)
{
    tcase_add_loop_test(tests, sizes_in_bytes, 0, (int)(sizeof sizes / sizeof *sizes));
    tcase_add_loop_test(tests, invalid_sizes, 0, (int)(sizeof no_sizes / sizeof *no_sizes));
    tcase_add_test(tests, rates);
    tcase_add_test(tests, lists);
}
