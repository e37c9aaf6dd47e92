/* Tests that a job of tessera generate ends with an error message if one of its ranks is killed. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/tool_config.h"
#include "launch/launched.h"
#include "support/check_main.h"

#define MODEL TEST_DATA "/model/stories260K-f16.gguf"
/* Asks for more tokens than any machine generates while the test runs. */
#define GENERATE "\"$0\" generate " MODEL " -p Once --ignore-end --max-tokens 50000 --context 60000"

/* Starts a job, waits for its first tokens, and kills generate on rank 1. */
static launched kill_one(const char *script)
{
    char arguments[1536];
    snprintf(arguments, sizeof arguments, "-n~3~--no-prefix~sh~-c~%s~" TEST_TOOL, script);
    launched job = start(arguments);
    for (bool begun = false; !begun;) { /* ends, because the test's time is limited */
        char *text = read_file("out");
        begun = strlen(text) > strlen("Once upon");
        free(text);
        pause_briefly();
    }
    char *number = read_file("pid.1");
    ck_assert_int_gt(atoi(number), 0);
    ck_assert_int_eq(kill(atoi(number), SIGKILL), 0);
    free(number);
    finish(&job);
    ck_assert_int_eq(strncmp(job.out, "Once upon", 9), 0);
    return job;
}

START_TEST(a_killed_rank_ends_the_job)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    launched job = kill_one("echo $$ >$FOLDER/pid.$RANK; exec " GENERATE);
    ck_assert_int_eq(job.status, 128 + SIGKILL);
    assert_has(job.err, "tessera: launch: rank 1 (process ");
    assert_has(job.err, ") was ended by signal 9, Killed; stopping the others\n");
    assert_gone("pid.0");
    assert_gone("pid.2");
    done(&job);
}
END_TEST

/* The launcher does not see that rank 1 is gone: its child is a shell, which continues until the
 * other ranks have ended by themselves. */
START_TEST(the_others_name_the_lost_rank)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    launched job = kill_one("if [ $RANK = 1 ]; then " GENERATE " & echo $! >$FOLDER/pid.1; wait; "
                            "until [ -s $FOLDER/end.0 ] && [ -s $FOLDER/end.2 ]; do sleep 0.02; "
                            "done; else " GENERATE "; echo $? >$FOLDER/end.$RANK; fi");
    ck_assert_int_eq(job.status, 0);
    for (int rank = 0; rank < 3; rank += 2) {
        char name[16];
        snprintf(name, sizeof name, "end.%d", rank);
        char *status = read_file(name);
        ck_assert_str_eq(status, "1\n");
        free(status);
    }
    ck_assert_int_eq(count(job.err, "tessera: generate: "), 2);
    assert_has(job.err, "rank 1 is lost");
    done(&job);
}
END_TEST

/* Each pair of options decides when texts end. Ranks that have different ones fail at once. */
START_TEST(ranks_end_texts_in_the_same_way)
{
    static const struct {
        const char *first, *second, *error;
    } cases[] = {
        {"--stop time", "--stop little",
         "generate: not all ranks have the same --stop; this one has 1, the first is 'time'"},
        {"--stop time", "--stop time --stop was",
         "generate: not all ranks have the same --stop; this one has 1, the first is 'time'"},
        {"", "--stop time", "generate: not all ranks have the same --stop; this one has none"},
        {"--max-tokens 9 --context 60", "--max-tokens 10 --context 60",
         "not all ranks end sequences in the same way; sequence 0 of this rank has at most "},
        {"--ignore-end --max-tokens 9", "--max-tokens 9",
         "not all ranks end sequences in the same way; sequence 0 of this rank has at most "},
        {"--context 50", "--context 60", "not all ranks have the same params; this one has "},
    };
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[1536];
        snprintf(arguments, sizeof arguments,
                 "-n~2~--no-prefix~sh~-c~if [ $RANK = 0 ]; then set -- %s; else set -- %s; fi; "
                 "\"$0\" generate " MODEL " -p Once --timeout 60 \"$@\"; code=$?; "
                 "echo $code >$FOLDER/end.$RANK; until [ -s $FOLDER/end.0 ] && "
                 "[ -s $FOLDER/end.1 ]; do sleep 0.02; done; exit $code~" TEST_TOOL,
                 cases[i].first, cases[i].second);
        launched job = launch(arguments);
        ck_assert_int_eq(job.status, 1);
        ck_assert_str_eq(job.out, "");
        ck_assert_int_eq(count(job.err, "tessera: generate: "), 2);
        assert_has(job.err, cases[i].error);
        done(&job);
        for (int rank = 0; rank < 2; rank++)
            unlink(in_folder(rank == 0 ? "end.0" : "end.1"));
    }
}
END_TEST

/* Rank 0 says why it ends before it leaves the others, so the launcher cannot end it first. */
START_TEST(a_full_disk_ends_all_ranks)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    output_to = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(output_to, 0);
    launched job = launch("-n~2~--no-prefix~sh~-c~" GENERATE "; code=$?; echo $code >$FOLDER/"
                          "end.$RANK; until [ -s $FOLDER/end.0 ] && [ -s $FOLDER/end.1 ]; do "
                          "sleep 0.02; done; exit $code~" TEST_TOOL);
    close(output_to);
    output_to = -1;
    ck_assert_int_eq(job.status, 1);
    const char *reason =
        strstr(job.err, "tessera: cannot write to standard output: No space left on device\n");
    const char *other = strstr(job.err, "tessera: generate: ");
    ck_assert_msg(reason && other && reason < other, "wrong texts: %s", job.err);
    assert_has(other, "rank 0 has destroyed the communicator");
    ck_assert_int_eq(count(job.err, "No space left on device"), 1);
    for (int rank = 0; rank < 2; rank++) {
        char *status = read_file(rank == 0 ? "end.0" : "end.1");
        ck_assert_str_eq(status, "1\n");
        free(status);
    }
    done(&job);
}
END_TEST

TESTS(generate_ends)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, a_killed_rank_ends_the_job);
    tcase_add_test(tests, the_others_name_the_lost_rank);
    tcase_add_test(tests, ranks_end_texts_in_the_same_way);
    tcase_add_test(tests, a_full_disk_ends_all_ranks);
}
