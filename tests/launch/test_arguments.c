/* The options of tessera launch, and programs that cannot be started. */
#include <stdio.h>
#include <sys/resource.h>

#include "launch/launched.h"
#include "support/check_main.h"

static const struct {
    const char *arguments, *error;
} mistakes[] = {
    {"", "tessera: launch: missing -n N, the number of processes\n"},
    {"true", "tessera: launch: missing -n N, the number of processes\n"},
    {"-n~2", "tessera: launch: missing PROGRAM after the options\n"},
    {"-n~2~--", "tessera: launch: missing PROGRAM after the options\n"},
    {"-n~0~true", "tessera: launch: -n takes an integer from 1 to 1024, not '0'\n"},
    {"--ranks=1025~true", "tessera: launch: --ranks takes an integer from 1 to 1024, not '1025'\n"},
    {"-n~two~true", "tessera: launch: -n takes an integer from 1 to 1024, not 'two'\n"},
    {"-n", "tessera: launch: missing value: -n N\n"},
    {"--ranks", "tessera: launch: missing value: --ranks N\n"},
    {"-x~true", "tessera: launch: unknown option '-x'; see 'tessera help launch'\n"},
    {"-n~2~--grace~-1~true", "tessera: launch: --grace takes a number from 0 to 86400, not '-1'\n"},
#define MAP                                                                                        \
    "tessera: launch: --device-map takes auto or comma-separated indices from 0 to 4095, not "
    {"-n~2~--device-map~0,a~true", MAP "'0,a'\n"},
    {"-n~2~--device-map~0,~true", MAP "'0,'\n"},
    {"-n~2~--device-map~-1~true", MAP "'-1'\n"},
};

START_TEST(refuses_wrong_arguments)
{
    launched job = launch(mistakes[_i].arguments);
    ck_assert_str_eq(job.err, mistakes[_i].error);
    ck_assert_str_eq(job.out, "");
    ck_assert_int_eq(job.status, 2);
    done(&job);
}
END_TEST

START_TEST(leaves_arguments_to_the_program)
{
    static const char *const ways[] = {
        "-n~1~echo~-n~--help~--json~--~x",
        "-n~1~--~echo~-n~--help~--json~--~x",
        "--ranks=1~--grace=1~--~echo~-n~--help~--json~--~x",
        "--nproc-per-node~1~echo~-n~--help~--json~--~x",
    };
    for (int i = 0; i < 4; i++) {
        launched job = launch(ways[i]);
        ck_assert_str_eq(job.err, "");
        ck_assert_str_eq(job.out, "[0] --help --json -- x\n");
        ck_assert_int_eq(job.status, 0);
        done(&job);
    }
    launched job = launch("-n~1~--help");
    assert_has(job.out, "usage: tessera launch -n N [options] [--] PROGRAM [arguments]\n");
    ck_assert_int_eq(job.status, 0);
    done(&job);
}
END_TEST

START_TEST(says_what_cannot_be_run)
{
    launched job = launch("-n~3~/proc/nonexistent/program");
    ck_assert_str_eq(job.err,
                     "tessera: launch: cannot run '/proc/nonexistent/program': No such file or "
                     "directory\n");
    ck_assert_int_eq(job.status, 127);
    done(&job);
    job = launch("-n~3~/etc/passwd");
    ck_assert_str_eq(job.err, "tessera: launch: cannot run '/etc/passwd': Permission denied\n");
    ck_assert_int_eq(job.status, 126);
    done(&job);
}
END_TEST

/* The launcher raises its limit of open files, but the ranks keep the original limit. */
START_TEST(starts_more_than_files_may_be_open)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_ge(limit.rlim_max, 256);
    limit.rlim_cur = 32;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    launched job = launch("-n~40~--device-map~0~sh~-c~ulimit -Sn");
    ck_assert_str_eq(job.err, "");
    ck_assert_int_eq(count(job.out, "] 32\n"), 40);
    ck_assert_int_eq(job.status, 0);
    done(&job);

    limit.rlim_max = 32;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    job = launch("-n~40~--device-map~0~sleep~60");
    int rank = 0;
    ck_assert_int_eq(sscanf(job.err, "tessera: launch: cannot start rank %d of 40: ", &rank), 1);
    ck_assert(rank > 0 && rank < 16);
    assert_has(job.err, ": too many open files; each rank takes two: raise 'ulimit -Hn'\n");
    ck_assert_int_eq(count(job.err, "\n"), 1);
    ck_assert_int_eq(job.status, 1);
    done(&job);
}
END_TEST

TESTS(arguments)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof mistakes[0]));
    tcase_add_test(tests, leaves_arguments_to_the_program);
    tcase_add_test(tests, says_what_cannot_be_run);
    tcase_add_test(tests, starts_more_than_files_may_be_open);
}
