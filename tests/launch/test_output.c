/* Tests how the output of ranks is passed on. */
#define _GNU_SOURCE /* O_DIRECT */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/tool_config.h"
#include "launch/launched.h"
#include "support/check_main.h"

START_TEST(keeps_lines_whole)
{
    launched job = launch("-n~4~sh~-c~for i in 1 2 3 4 5; do "
                          "seq -f \"$RANK: %05.0f of a line of some length\" 400; done");
    ck_assert_str_eq(job.err, "");
    ck_assert_int_eq(job.status, 0);
    int lines[4] = {0};
    for (char *line = strtok(job.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        int prefix, rank, number;
        char expected[128];
        ck_assert(sscanf(line, "[%d] %d: %d of a line", &prefix, &rank, &number) == 3);
        ck_assert(prefix == rank && rank >= 0 && rank < 4);
        ck_assert(number == lines[rank] % 400 + 1); /* the lines are in order */
        snprintf(expected, sizeof expected, "[%d] %d: %05d of a line of some length", rank, rank,
                 number);
        ck_assert(strcmp(line, expected) == 0);
        lines[rank]++;
    }
    for (int rank = 0; rank < 4; rank++)
        ck_assert_int_eq(lines[rank], 2000);
    done(&job);
}
END_TEST

START_TEST(prints_the_same_message_once)
{
    /* Rank 2 prints the message twice, and a message of its own. Other lines are not messages. */
    launched job = launch("-n~4~sh~-c~echo 'tessera: same' >&2; echo 'tessera: same'; "
                          "echo 'other: same' >&2; if [ $RANK = 2 ]; then "
                          "echo 'tessera: same' >&2; echo 'tessera: same, too' >&2; fi");
    ck_assert_int_eq(job.status, 0);
    ck_assert_int_eq(count(job.err, "] tessera: same\n"), 2);
    ck_assert_int_eq(count(job.err, "] tessera: same, too\n"), 1);
    ck_assert_int_eq(count(job.err, "] other: same\n"), 4);
    ck_assert_int_eq(count(job.out, "] tessera: same\n"), 4);
    done(&job);
    /* more different messages than are remembered */
    job = launch("-n~2~sh~-c~for i in $(seq 80); do echo \"tessera: $i\" >&2; done");
    ck_assert_int_eq(count(job.err, "] tessera: 64\n"), 1);
    ck_assert_int_eq(count(job.err, "] tessera: 65\n"), 2);
    ck_assert_int_eq(count(job.err, "] tessera: 80\n"), 2);
    done(&job);
}
END_TEST

/* All commands that read a file, with a file that is missing. --keep-going: no rank is ended before
 * it can print its message. */
START_TEST(prints_the_error_of_all_ranks_once)
{
    static const struct {
        const char *arguments, *message;
    } commands[] = {
        {"tokenize~missing.gguf", ": cannot open missing.gguf: No such file or directory\n"},
        {"checkpoint~show~missing", "cannot open missing: No such file or directory, and no part"},
        {"plan~--ranks~2~missing.gguf", ": cannot open missing.gguf: No such file or directory\n"},
        {"convert~missing.gguf~out", ": cannot open missing.gguf: No such file or directory\n"},
        {"generate~--prompt~x~missing.gguf",
         ": cannot open missing.gguf: No such file or directory\n"},
        {"generate~missing.gguf", "and standard input is empty\n"},
        {"generate~--promt~x~missing.gguf", "unknown option '--promt'"},
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char arguments[512];
        if (strcmp(commands[i].arguments, "generate~missing.gguf") == 0 && !TEST_HAVE_UCX)
            continue; /* the ranks meet before they read a prompt */
        snprintf(arguments, sizeof arguments, "-n~4~--keep-going~%s~%s", TEST_TOOL,
                 commands[i].arguments);
        launched job = launch(arguments);
        ck_assert_int_ne(job.status, 0);
        ck_assert_msg(count(job.err, commands[i].message) == 1 && count(job.err, "] ") == 1,
                      "%s: %s", commands[i].arguments, job.err);
        done(&job);
    }
}
END_TEST

/* A pipe with O_DIRECT keeps the boundaries of writes: each must consist of complete lines and be
 * no longer than PIPE_BUF, so that the lines of several writers do not mix. */
START_TEST(writes_whole_lines)
{
    int ends[2];
    char packet[2 * PIPE_BUF];
    size_t size = 0, packets = 0;
    ck_assert_int_eq(pipe2(ends, O_DIRECT), 0);
    ck_assert_int_eq(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
    output_to = ends[1];
    launched job = start("-n~1~seq~20000");
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], packet, sizeof packet)) > 0; packets++) {
        ck_assert(got <= PIPE_BUF && packet[0] == '[' && packet[got - 1] == '\n');
        size += (size_t)got;
    }
    finish(&job);
    ck_assert_int_eq(job.status, 0);
    ck_assert_uint_eq(size, 108894 + 20000 * strlen("[0] "));
    ck_assert_uint_lt(packets, 1000);
    done(&job);
    close(ends[0]);
}
END_TEST

START_TEST(keeps_output_and_error_apart)
{
    launched job = launch("-n~12~sh~-c~if [ $RANK = 3 ]; then echo out; printf 'no end' >&2; fi; "
                          "if [ $RANK = 11 ]; then echo; fi");
    ck_assert_int_eq(job.status, 0);
    assert_has(job.out, "[ 3] out\n");
    assert_has(job.out, "[11] \n");
    ck_assert_uint_eq(strlen(job.out), strlen("[ 3] out\n[11] \n"));
    ck_assert_str_eq(job.err, "[ 3] no end\n");
    done(&job);
    job = launch("-n~1~--no-prefix~sh~-c~printf 'as it'; printf ' is' >&2");
    ck_assert_str_eq(job.out, "as it");
    ck_assert_str_eq(job.err, " is");
    done(&job);
}
END_TEST

/* A process outside the job, such as a service that a rank has started, holds the pipe open. The
 * job must end nevertheless. */
START_TEST(does_not_wait_for_processes_outside_the_job)
{
    char path[64];
    launched job = start("-n~1~sh~-c~echo $$ >$FOLDER/pid; mv $FOLDER/pid $FOLDER/pid.0; "
                         "while [ ! -e $FOLDER/go ]; do sleep 0.01; done; printf end");
    wait_for("pid.0");
    char *pid = read_file("pid.0");
    snprintf(path, sizeof path, "/proc/%d/fd/1", atoi(pid));
    int held = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(held, 0);
    fclose(fopen(in_folder("go"), "w"));
    finish(&job);
    ck_assert_int_eq(job.status, 0);
    ck_assert_str_eq(job.out, "[0] end\n");
    done(&job);
    free(pid);
    close(held);
}
END_TEST

START_TEST(cuts_lines_without_end)
{
    launched job = launch("-n~1~sh~-c~head -c 3000000 /dev/zero | tr '\\0' x");
    ck_assert_int_eq(job.status, 0);
    ck_assert_int_eq(count(job.out, "[0] "), 3); /* lines of 1 MiB, except the last */
    ck_assert_uint_eq(strlen(job.out), 3000000 + 3 * strlen("[0] \n"));
    done(&job);
}
END_TEST

START_TEST(a_full_disk_is_a_failure)
{
    char command[512];
    snprintf(command, sizeof command,
             "'%s' launch -n 2 --grace 1 sh -c 'echo $$ >$FOLDER/pid.$RANK; while [ ! -s "
             "$FOLDER/pid.0 ] "
             "|| [ ! -s $FOLDER/pid.1 ]; do sleep 0.01; done; yes' >/dev/full 2>'%s'",
             TEST_TOOL, in_folder("err"));
    ck_assert_int_eq(system(command), 1 << 8);
    char *err = read_file("err");
    ck_assert_str_eq(err,
                     "tessera: launch: cannot write to standard output: No space left on device\n");
    free(err);
    assert_gone("pid.0");
    assert_gone("pid.1");
}
END_TEST

/* `tessera launch … | head` ends without a message when the pipe is closed, like any program. */
START_TEST(a_closed_pipe_is_silent)
{
    char command[512];
    snprintf(command, sizeof command,
             "{ '%s' launch -n 2 --grace 1 sh -c 'echo $$ >$FOLDER/pid.$RANK; while [ ! -s "
             "$FOLDER/pid.0 ] || [ ! -s $FOLDER/pid.1 ]; do sleep 0.01; done; yes' 2>'%s'; "
             "echo $? >'%s'; } | head -n 3 >$FOLDER/out",
             TEST_TOOL, in_folder("err"), in_folder("status"));
    ck_assert_int_eq(system(command), 0);
    char *err = read_file("err"), *status = read_file("status"), *out = read_file("out");
    ck_assert_str_eq(err, "");
    ck_assert_int_eq(atoi(status), 128 + SIGPIPE);
    ck_assert_int_eq(count(out, "] y\n"), 3);
    free(err);
    free(status);
    free(out);
    assert_gone("pid.0");
    assert_gone("pid.1");
}
END_TEST

/* If SIGPIPE is ignored, a closed pipe must be an error of the launcher, as for other programs. */
START_TEST(a_closed_pipe_is_named_if_sigpipe_is_ignored)
{
    char command[512];
    snprintf(command, sizeof command,
             "( trap '' PIPE; '%s' launch -n 1 yes 2>'%s' ) | head -n 1 >&2", TEST_TOOL,
             in_folder("err"));
    ck_assert_int_eq(system(command), 0);
    char *err = read_file("err");
    assert_has(err, "tessera: launch: cannot write to standard output: Broken pipe\n");
    free(err);
}
END_TEST

/* The launcher's own pipes must not get the descriptor number of a closed standard output. */
START_TEST(a_closed_output_is_a_failure)
{
    char command[256];
    snprintf(command, sizeof command, "'%s' launch -n 2 echo hello >&- 2>'%s'", TEST_TOOL,
             in_folder("err"));
    ck_assert_int_eq(system(command), 1 << 8);
    char *err = read_file("err");
    ck_assert_str_eq(err,
                     "tessera: launch: cannot write to standard output: Bad file descriptor\n");
    free(err);
}
END_TEST

TESTS(output)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, keeps_lines_whole);
    tcase_add_test(tests, writes_whole_lines);
    tcase_add_test(tests, prints_the_same_message_once);
    tcase_add_test(tests, prints_the_error_of_all_ranks_once);
    tcase_add_test(tests, keeps_output_and_error_apart);
    tcase_add_test(tests, does_not_wait_for_processes_outside_the_job);
    tcase_add_test(tests, cuts_lines_without_end);
    tcase_add_test(tests, a_full_disk_is_a_failure);
    tcase_add_test(tests, a_closed_pipe_is_silent);
    tcase_add_test(tests, a_closed_pipe_is_named_if_sigpipe_is_ignored);
    tcase_add_test(tests, a_closed_output_is_a_failure);
}
