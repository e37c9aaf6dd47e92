/* Tests signals that the launcher receives. */
#include <signal.h>
#include <stdio.h>

#include "launch/launched.h"
#include "support/check_main.h"

static const char with_traps[] =
    "-n~2~--grace~20~sh~-c~trap 'echo USR1' USR1; trap 'echo HUP; exit 5' HUP; "
    "trap 'echo TERM; exit 0' TERM; trap 'echo INT; exit 0' INT; echo $$ >$FOLDER/pid.$RANK; "
    "while :; do sleep 0.02; done";

static const struct {
    int signal, status;
    const char *said;
} signals[] = {{SIGTERM, 0, "TERM"}, {SIGINT, 0, "INT"}, {SIGHUP, 5, "HUP"}};

START_TEST(passes_signals_on)
{
    launched job = start_ready(with_traps);
    kill(job.pid, SIGUSR1);
    wait_for_text("out", "USR1\n", 2);
    kill(job.pid, signals[_i].signal);
    finish(&job);
    ck_assert_int_eq(job.status, signals[_i].status);
    for (int rank = 0; rank < 2; rank++) {
        char line[32];
        snprintf(line, sizeof line, "[%d] USR1\n", rank);
        assert_has(job.out, line);
        snprintf(line, sizeof line, "[%d] %s\n", rank, signals[_i].said);
        assert_has(job.out, line);
    }
    done(&job);
}
END_TEST

START_TEST(its_status_says_that_it_was_interrupted)
{
    launched job = start_ready("-n~2~sh~-c~echo $$ >$FOLDER/pid.$RANK; exec sleep 60");
    kill(job.pid, SIGINT);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGINT);
    ck_assert_str_eq(job.err, "");
    assert_gone("pid.0");
    assert_gone("pid.1");
    done(&job);
}
END_TEST

START_TEST(a_second_signal_kills)
{
    launched job = start_ready("-n~2~--grace~600~sh~-c~trap 'echo INT' INT; "
                               "echo $$ >$FOLDER/pid.$RANK; while :; do sleep 1; done");
    kill(job.pid, SIGINT);
    wait_for_text("out", "INT\n", 2);
    ck_assert(is_alive("pid.0") && is_alive("pid.1"));
    kill(job.pid, SIGINT);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGKILL);
    ck_assert_double_lt(job.seconds, 300); /* shorter than the grace period */
    assert_gone("pid.0");
    assert_gone("pid.1");
    done(&job);
}
END_TEST

START_TEST(a_signal_ignored_stays_ignored)
{
    signal(SIGHUP, SIG_IGN); /* nohup */
    launched job = start_ready("-n~2~sh~-c~kill -HUP $$; echo $$ >$FOLDER/pid.$RANK; "
                               "until [ -s $FOLDER/sent ]; do sleep 0.02; done");
    send_signal(&job, SIGHUP);
    write_file("sent", "\n");
    finish(&job);
    ck_assert_int_eq(job.status, 0);
    done(&job);
}
END_TEST

TESTS(signals)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, passes_signals_on, 0, (int)(sizeof signals / sizeof signals[0]));
    tcase_add_test(tests, its_status_says_that_it_was_interrupted);
    tcase_add_test(tests, a_second_signal_kills);
    tcase_add_test(tests, a_signal_ignored_stays_ignored);
}
