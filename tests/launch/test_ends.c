/* Tests how a job ends when ranks fail, and that none of its processes is left. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/tool_config.h"
#include "launch/launched.h"
#include "support/check_main.h"

START_TEST(fails_as_the_first_that_failed)
{
    launched job = launch("-n~3~sh~-c~echo $$ >$FOLDER/pid.$RANK; if [ $RANK = 1 ]; then "
                          "while [ ! -s $FOLDER/pid.0 ] || [ ! -s $FOLDER/pid.2 ]; do sleep 0.01; "
                          "done; exit 7; fi; exec sleep 60");
    ck_assert_int_eq(job.status, 7);
    ck_assert_double_lt(job.seconds, 40);
    char expected[128], *pid = read_file("pid.1");
    snprintf(expected, sizeof expected,
             "tessera: launch: rank 1 (process %d) exited with status 7; stopping the others\n",
             atoi(pid));
    ck_assert_str_eq(job.err, expected);
    free(pid);
    assert_gone("pid.0");
    assert_gone("pid.2");
    done(&job);
}
END_TEST

START_TEST(fails_with_128_and_the_signal)
{
    launched job = launch("-n~2~sh~-c~if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 60");
    ck_assert_int_eq(job.status, 128 + 9);
    assert_has(job.err, "tessera: launch: rank 0 (process ");
    assert_has(job.err, ") was ended by signal 9, Killed; stopping the others\n");
    done(&job);
    job = launch("-n~1~sh~-c~kill -6 $$");
    ck_assert_int_eq(job.status, 128 + 6);
    assert_has(job.err, ") was ended by signal 6, Aborted\n");
    done(&job);
}
END_TEST

START_TEST(keeps_going_without_a_rank)
{
    launched job = launch("-n~3~--keep-going~sh~-c~if [ $RANK = 1 ]; then kill -9 $$; fi; "
                          "if [ $RANK = 2 ]; then exit 5; fi; "
                          "until [ \"$(grep -c 'the others continue' $FOLDER/err)\" = 2 ]; do "
                          "sleep 0.02; done; echo alive");
    ck_assert_int_eq(job.status, 0);
    ck_assert_str_eq(job.out, "[0] alive\n");
    assert_has(job.err, ") was ended by signal 9, Killed; the others continue\n");
    assert_has(job.err, ") exited with status 5; the others continue\n");
    done(&job);
    /* No rank succeeds, so the job must end. */
    job = launch("-n~2~--keep-going~sh~-c~exit 3");
    ck_assert_int_eq(job.status, 3);
    assert_has(job.err, ") exited with status 3; the others continue\n");
    done(&job);
    /* A signal stops the job. */
    job = start_ready("-n~2~--keep-going~sh~-c~echo $$ >$FOLDER/pid.$RANK; exec sleep 60");
    kill(job.pid, SIGTERM);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGTERM);
    done(&job);
}
END_TEST

START_TEST(replaces_a_rank)
{
    launched job = launch("-n~2~--respawn~1~sh~-c~case $TESSERA_BOOT-${RANK-none} in "
                          "env-1) kill -9 $$;; join-none) echo new; exit 4;; "
                          "*) until grep -q 'launch: rank 2 (process ' $FOLDER/err; do "
                          "sleep 0.02; done; echo alive;; esac");
    ck_assert_int_eq(job.status, 0);
    ck_assert_ptr_nonnull(strstr(job.out, "[2] new\n"));
    ck_assert_ptr_nonnull(strstr(job.out, "[0] alive\n"));
    assert_has(job.err, ") was ended by signal 9, Killed; the others continue\n");
    assert_has(job.err, " joins as [2] in the place of rank 1\n");
    assert_has(job.err, "launch: rank 2 (process ");
    ck_assert_int_eq(count(job.err, " joins as "), 1); /* the replacement is not replaced */
    done(&job);
}
END_TEST

START_TEST(kills_a_rank_that_does_not_end)
{
    launched job =
        launch("-n~3~--grace~0.5~sh~-c~echo $$ >$FOLDER/pid.$RANK; trap 'echo asked' TERM; "
               "if [ $RANK = 1 ]; then while [ ! -s $FOLDER/pid.0 ] || [ ! -s $FOLDER/pid.2 ]; do "
               "sleep 0.01; done; exit 3; fi; if [ $RANK = 2 ]; then kill -STOP $$; fi; "
               "while :; do sleep 0.05; done");
    ck_assert_int_eq(job.status, 3);
    ck_assert_double_ge(job.seconds, 0.5);
    ck_assert_double_lt(job.seconds, 40);
    assert_has(job.out, "[0] asked\n");
    assert_gone("pid.0");
    assert_gone("pid.2");
    done(&job);
}
END_TEST

/* Each rank starts a process in its own process group, and one in a session of its own. Both
 * must end with the job. */
static const char with_children[] =
    "-n~2~--grace~0.3~sh~-c~trap '' TERM; "
    "sh -c 'echo $$ >$FOLDER/child.$RANK; trap \"\" TERM; while :; do sleep 1; done' & "
    "setsid sh -c 'trap \"\" TERM; echo $$ >$FOLDER/session.$RANK; while :; do sleep 1; done' & "
    "while [ ! -s $FOLDER/child.$RANK ] || [ ! -s $FOLDER/session.$RANK ]; do sleep 0.01; done; "
    "echo $$ >$FOLDER/pid.$RANK; if [ ${STAY-no} = yes ]; then while :; do sleep 1; done; fi; ";

static void assert_all_gone(void)
{
    static const char *const names[] = {"pid.0",   "pid.1",     "child.0",
                                        "child.1", "session.0", "session.1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_gone(names[i]);
}

START_TEST(leaves_nothing_behind)
{
    launched job = launch(with_children);
    ck_assert_int_eq(job.status, 0);
    ck_assert_double_lt(job.seconds, 40);
    assert_all_gone();
    done(&job);
}
END_TEST

START_TEST(kills_all_when_it_is_killed)
{
    setenv("STAY", "yes", 1);
    launched job = start(with_children);
    wait_for("pid.0");
    wait_for("pid.1");
    kill(job.pid, SIGKILL);
    finish(&job);
    ck_assert_int_eq(job.status, -9);
    assert_all_gone();
    done(&job);
}
END_TEST

/* Returns the number of the process's children, including zombies. */
static int count_children(pid_t pid)
{
    char path[64];
    int found = 0, child;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (fscanf(file, "%d", &child) == 1)
        found++;
    fclose(file);
    return found;
}

/* Orphans become children of the launcher until it reaps them. They end when the test opens the
 * gate. Orphans that had not reached the gate by then end when the test opens it again. */
START_TEST(reaps_orphans_that_end_together)
{
    enum { ORPHANS = 300 };
    launched job = start(
        "-n~1~sh~-c~mkfifo $FOLDER/gate; for j in 1 2 3 4 5; do sh -c 'for i in $(seq 60); do "
        "read line <$FOLDER/gate & done'; done; echo >$FOLDER/orphans; "
        "until [ -s $FOLDER/reaped ]; do sleep 0.02; done");
    wait_for("orphans");
    const int before = count_children(job.pid);
    ck_assert_int_ge(before, ORPHANS);
    for (double start = now(); count_children(job.pid) > before - ORPHANS; pause_briefly()) {
        ck_assert_msg(now() < start + 60, "%d children are left", count_children(job.pid));
        int gate = open(in_folder("gate"), O_WRONLY | O_NONBLOCK);
        if (gate >= 0)
            close(gate);
    }
    write_file("reaped", "\n");
    finish(&job);
    ck_assert_int_eq(job.status, 0);
    done(&job);
}
END_TEST

/* A launcher is a rank of another launcher. Each has a guard, a process that kills the ranks if the
 * launcher dies. When both launchers are killed, the inner guard must survive to kill the inner
 * ranks, because the outer guard kills only the inner launcher. */
START_TEST(kills_an_inner_launcher_when_it_is_killed)
{
    /* The ranks wait until the inner guard has overwritten its copy of the token. Then only the
     * inner launcher has the outer token in its environment. */
    launched job = start("-n~1~sh~-c~export OUTER=$TESSERA_TOKEN; exec \"$0\" launch -n 1 sh -c '"
                         "until [ $(grep -lzx TESSERA_TOKEN=$OUTER /proc/[0-9]*/environ "
                         "2>/dev/null | wc -l) = 1 ]; do sleep 0.05; done; "
                         "echo $$ >$FOLDER/pid.0; setsid sleep 60 & echo $! >$FOLDER/session.0; "
                         "sleep 60'~" TEST_TOOL);
    wait_for("session.0");
    kill(job.pid, SIGKILL);
    finish(&job);
    assert_gone("pid.0");
    assert_gone("session.0");
    done(&job);
}
END_TEST

TESTS(ends)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, fails_as_the_first_that_failed);
    tcase_add_test(tests, fails_with_128_and_the_signal);
    tcase_add_test(tests, keeps_going_without_a_rank);
    tcase_add_test(tests, replaces_a_rank);
    tcase_add_test(tests, kills_a_rank_that_does_not_end);
    tcase_add_test(tests, leaves_nothing_behind);
    tcase_add_test(tests, kills_all_when_it_is_killed);
    tcase_add_test(tests, reaps_orphans_that_end_together);
    tcase_add_test(tests, kills_an_inner_launcher_when_it_is_killed);
}
