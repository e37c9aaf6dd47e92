/* Tests what the launcher does with the reports of ranks: when it ends a job whose members are
 * gone, when it starts all ranks again, and how it explains the end of a rank. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/launched.h"
#include "support/check_main.h"

/* Shell functions for the scripts: report WORDS; until_has FILE TEXT. */
#define FUNCTIONS                                                                                  \
    "report() { echo \"${TESSERA_LAUNCH##*:} $*\" >/proc/self/fd/${TESSERA_LAUNCH%%%%:*}; }; "     \
    "until_has() { until grep -q \"$2\" $FOLDER/$1; do sleep 0.02; done; }; "

static launched run(const char *options, const char *script)
{
    char arguments[1900];
    snprintf(arguments, sizeof arguments, "%s~sh~-c~" FUNCTIONS "%s", options, script);
    launched job = launch(arguments);
    ck_assert_double_lt(job.seconds, 50);
    return job;
}

START_TEST(ends_without_members)
{
    launched job = run("-n~2~--respawn~9", "if [ $TESSERA_BOOT = join ]; then exec sleep 60; fi; "
                                           "kill -9 $$");
    ck_assert_int_eq(job.status, 128 + SIGKILL);
    ck_assert_int_le(count(job.err, " joins as "), 1); /* the last member is not replaced */
    if (count(job.err, " joins as ") == 1)
        assert_has(job.err, "tessera: launch: no member of the job is left; ending 1 process that "
                            "waits to join\n");
    ck_assert_int_eq(count(job.err, "was ended by signal 9"), 2);
    done(&job);
    job = run("-n~1~--respawn~9", "exit 3");
    ck_assert_int_eq(job.status, 3);
    ck_assert_int_eq(count(job.err, " joins as "), 0);
    done(&job);
}
END_TEST

START_TEST(a_process_that_has_joined_is_a_member)
{
    launched job = run("-n~1~--keep-going~--respawn~1~--device-map~0",
                       "true"); /* options in any order, and a rank that succeeds */
    ck_assert_int_eq(job.status, 0);
    done(&job);
    job = run("-n~2~--respawn~1",
              "if [ $TESSERA_BOOT = join ]; then report member; echo >$FOLDER/joined; "
              "until_has err 'rank 0 (process .*9, Killed'; echo went on; exit 0; fi; "
              "if [ $RANK = 0 ]; then until_has joined ''; fi; kill -9 $$");
    ck_assert_int_eq(job.status, 0);
    ck_assert_str_eq(job.out, "[2] went on\n");
    ck_assert_int_eq(count(job.err, "no member"), 0);
    done(&job);
}
END_TEST

START_TEST(does_not_wait_for_who_waits_to_join)
{
    launched job = run("-n~2~--respawn~5", "if [ $TESSERA_BOOT = join ]; then exec sleep 60; fi; "
                                           "if [ $RANK = 0 ]; then exit 5; fi; "
                                           "until_has err 'joins as'");
    ck_assert_int_eq(job.status, 0);
    assert_has(job.err, "tessera: launch: the job is complete; ending 1 process that waits to "
                        "join\n");
    done(&job);
}
END_TEST

START_TEST(starts_all_again)
{
    launched job =
        run("-n~2~--respawn~3", "if [ -n \"${TESSERA_RESTART-}\" ]; then "
                                "echo again $RANK with $TESSERA_RESTART $TESSERA_BOOT; exit 0; fi; "
                                "if [ $TESSERA_BOOT = join ]; then exec sleep 60; fi; "
                                "report member; if [ $RANK = 0 ]; then report restartable 0; "
                                "report restartable step 7; fi; kill -9 $$");
    ck_assert_int_eq(job.status, 0);
    assert_has(job.out, "[0] again 0 with step 7 env\n");
    assert_has(job.out, "[1] again 1 with step 7 env\n");
    assert_has(job.err, "tessera: launch: no member of the job is left: starting all 2 ranks again "
                        "with TESSERA_RESTART=step 7\n");
    done(&job);
}
END_TEST

START_TEST(starts_again_only_as_often_as_allowed)
{
    launched job = run("-n~1~--respawn~3", "report restartable x; report member; kill -9 $$");
    ck_assert_int_eq(job.status, 128 + SIGKILL);
    ck_assert_int_eq(count(job.err, "starting all 1 ranks again"), 3);
    done(&job);
    /* A rank that ends by itself would do so again. */
    job = run("-n~1~--respawn~3", "report restartable x; report member; exit 6");
    ck_assert_int_eq(job.status, 6);
    ck_assert_int_eq(count(job.err, "starting all"), 0);
    done(&job);
}
END_TEST

START_TEST(starts_again_when_the_state_is_lost)
{
    launched job = run("-n~3~--respawn~1~--grace~0.5",
                       "if [ -n \"${TESSERA_RESTART-}\" ]; then echo again; exit 0; fi; "
                       "report member; echo >$FOLDER/pid.$RANK; "
                       "if [ $RANK = 2 ]; then trap '' TERM; while :; do sleep 0.1; done; fi; "
                       "until_has pid.2 ''; report restartable 1; report state-lost; exit 1");
    ck_assert_int_eq(job.status, 0);
    ck_assert_int_eq(count(job.out, "again\n"), 3);
    assert_has(job.err,
               "tessera: launch: the ranks have lost the job's state: starting all 3 ranks "
               "again with TESSERA_RESTART=1\n");
    done(&job);
}
END_TEST

START_TEST(starts_again_if_the_ranks_could_not_meet)
{
    launched job =
        run("-n~2~--respawn~1", "if [ -n \"${TESSERA_RESTART-}\" ]; then echo again; exit 0; fi; "
                                "report restartable 0; "
                                "if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 60");
    ck_assert_int_eq(job.status, 0);
    ck_assert_int_eq(count(job.out, "again\n"), 2);
    assert_has(job.err, "tessera: launch: a rank was lost before all had met: starting all 2 ranks "
                        "again with TESSERA_RESTART=0\n");
    done(&job);
}
END_TEST

START_TEST(ignores_reports_without_sense)
{
    launched job =
        run("-n~1~--respawn~1",
            "report restartable; report unknown word; report; "
            "report restartable $(seq 60 | tr -d '\\n'); report restartable $(printf 'a\\tb'); "
            "p=/proc/self/fd/${TESSERA_LAUNCH%%%%:*}; echo >$p; echo restartable x >$p; "
            "echo 99 restartable x >$p; echo $(seq 999) >$p; report signal x; "
            "report grace; report grace x; report grace -1; report grace 1e9; exit 7");
    ck_assert_int_eq(job.status, 7);
    ck_assert_int_eq(count(job.err, "again"), 0);
    assert_has(job.err, "exited with status 7\n");
    done(&job);
}
END_TEST

START_TEST(names_who_got_the_signal)
{
    launched job = run("-n~2", "if [ $RANK = 1 ]; then report signal 15; echo >$FOLDER/told; "
                               "exec sleep 60; fi; echo $$ >$FOLDER/pid.0; until_has told ''; "
                               "exit 130");
    ck_assert_int_eq(job.status, 130);
    assert_has(job.err, ") exited with status 130 because rank 1 (process ");
    assert_has(job.err, ") got signal 15, Terminated; stopping the others\n");
    done(&job);
    job = run("-n~1", "report signal 2; exit 130");
    ck_assert_int_eq(job.status, 130);
    assert_has(job.err, ") exited with status 130 after signal 2, Interrupt\n");
    done(&job);
}
END_TEST

START_TEST(names_a_stopped_rank)
{
    launched job = run("-n~2", "if [ $RANK = 1 ]; then kill -STOP $$; exec sleep 60; fi; "
                               "until_has err 'was stopped by signal 19'; exit 4");
    ck_assert_int_eq(job.status, 4);
    assert_has(job.err, "tessera: launch: rank 1 (process ");
    assert_has(job.err, " lets it continue\n");
    assert_has(job.err, ") exited with status 4 while rank 1 (process ");
    assert_has(job.err, ") was stopped; stopping the others\n");
    done(&job);
    /* One that continues counts no more. */
    job = run("-n~2", "if [ $RANK = 1 ]; then kill -STOP $$; echo >$FOLDER/on; exec sleep 60; fi; "
                      "until_has err 'was stopped by signal 19'; kill -CONT $(sed -n "
                      "\"s/.*kill -CONT \\([0-9]*\\).*/\\1/p\" $FOLDER/err); until_has on ''; "
                      "sleep 0.3; exit 4");
    ck_assert_int_eq(job.status, 4);
    assert_has(job.err, ") exited with status 4; stopping the others\n");
    done(&job);
}
END_TEST

/* Ranks that end by themselves 6 s after a signal, which they announce with a report. */
static launched interrupt_slow(const char *options, const char *reported)
{
    char arguments[1900];
    snprintf(arguments, sizeof arguments,
             "-n~2~%s~sh~-c~" FUNCTIONS
             "trap 'sleep 6; echo saved; exit 0' TERM; if [ $RANK = 1 ]; then report grace %s; fi; "
             "echo $$ >$FOLDER/pid.$RANK; while :; do sleep 0.02; done",
             options, reported);
    launched job = start_ready(arguments);
    kill(job.pid, SIGTERM);
    finish(&job);
    return job;
}

START_TEST(waits_as_long_as_the_ranks_ask_for)
{
    launched job = interrupt_slow("--no-prefix", "60");
    ck_assert_int_eq(job.status, 0);
    ck_assert_int_eq(count(job.out, "saved\n"), 2);
    done(&job);
}
END_TEST

START_TEST(the_option_decides_how_long_to_wait)
{
    launched job = interrupt_slow("--grace~0.2", "60");
    ck_assert_int_eq(job.status, 128 + SIGKILL);
    ck_assert_int_eq(count(job.out, "saved\n"), 0);
    done(&job);
}
END_TEST

START_TEST(a_failure_waits_for_no_report)
{
    launched job = run("-n~2", "if [ $RANK = 1 ]; then report grace 600; trap '' TERM; "
                               "echo >$FOLDER/told; while :; do sleep 0.1; done; fi; "
                               "until_has told ''; exit 4");
    ck_assert_int_eq(job.status, 4);
    done(&job);
}
END_TEST

TESTS(members)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, ends_without_members);
    tcase_add_test(tests, a_process_that_has_joined_is_a_member);
    tcase_add_test(tests, does_not_wait_for_who_waits_to_join);
    tcase_add_test(tests, starts_all_again);
    tcase_add_test(tests, starts_again_only_as_often_as_allowed);
    tcase_add_test(tests, starts_again_when_the_state_is_lost);
    tcase_add_test(tests, starts_again_if_the_ranks_could_not_meet);
    tcase_add_test(tests, ignores_reports_without_sense);
    tcase_add_test(tests, names_who_got_the_signal);
    tcase_add_test(tests, names_a_stopped_rank);
    tcase_add_test(tests, waits_as_long_as_the_ranks_ask_for);
    tcase_add_test(tests, the_option_decides_how_long_to_wait);
    tcase_add_test(tests, a_failure_waits_for_no_report);
}
