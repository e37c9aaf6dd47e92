/* Tests output that nobody reads, or that is read late. */
#define _XOPEN_SOURCE 700 /* ptsname */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "launch/launched.h"
#include "support/check_main.h"

/* Starts a job whose output goes to a pipe. `out` gets the end to read from, and `in` the end to
 * write to. */
static launched start_into_pipe(const char *arguments, int flags, int *out, int *in)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, O_WRONLY | flags), 0);
    ck_assert_int_eq(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
    output_to = ends[1];
    launched job = start(arguments);
    output_to = -1;
    *out = ends[0];
    *in = ends[1];
    return job;
}

/* Waits until a pipe has no more room. */
static void wait_until_full(int in)
{
    struct pollfd room = {.fd = in, .events = POLLOUT};
    for (double start = now(); poll(&room, 1, 0) > 0; pause_briefly())
        ck_assert_msg(now() < start + 60, "the pipe does not fill up");
}

/* Waits until a terminal accepts no more output: its contents no longer grow. */
static void wait_until_stuck(int screen)
{
    int held = 0, before = -1;
    double start = now(), grown = start;
    while (held == 0 || now() < grown + 0.5) {
        ck_assert_int_eq(ioctl(screen, FIONREAD, &held), 0);
        if (held != before)
            grown = now();
        before = held;
        ck_assert_msg(now() < start + 60, "the terminal does not fill up");
        pause_briefly();
    }
}

/* Reads until the end of a pipe. `size` gets the number of bytes. */
static char *read_all(int from, size_t *size)
{
    size_t capacity = 1 << 23;
    char *text = calloc(capacity, 1);
    ck_assert_ptr_nonnull(text);
    *size = 0;
    for (ssize_t got; (got = read(from, text + *size, capacity - 1 - *size)) > 0;)
        *size += (size_t)got;
    close(from);
    return text;
}

static const struct {
    const char *arguments;
    int signals, status;
    bool ended; /* the ranks have ended, and only their output is left */
} unread[] = {
    {"-n~2~--grace~1~sh~-c~echo $$ >$FOLDER/pid.$RANK; exec yes", 1, 128 + SIGTERM, false},
    {"-n~2~--grace~1~sh~-c~trap '' TERM; echo $$ >$FOLDER/pid.$RANK; yes", 1, 128 + SIGKILL, false},
    {"-n~2~--grace~600~sh~-c~trap '' TERM; echo $$ >$FOLDER/pid.$RANK; yes", 2, 128 + SIGKILL,
     false},
    {"-n~2~--grace~1~sh~-c~echo $$ >$FOLDER/pid.$RANK; yes | head -n 20000", 1, 1, true},
};

START_TEST(ends_where_nobody_reads)
{
    int out, in;
    launched job = start_into_pipe(unread[_i].arguments, 0, &out, &in);
    wait_for("pid.0");
    wait_for("pid.1");
    wait_until_full(in);
    close(in);
    if (unread[_i].ended) {
        assert_gone("pid.0");
        assert_gone("pid.1");
    }
    for (int i = 0; i < unread[_i].signals; i++)
        send_signal(&job, SIGTERM);
    finish(&job);
    ck_assert_double_lt(job.seconds,
                        300); /* the job waits neither for a reader nor for a long grace period */
    ck_assert_int_eq(job.status, unread[_i].status);
    ck_assert_str_eq(job.err,
                     "tessera: launch: nobody reads standard output: the rest of it is lost\n");
    assert_gone("pid.0");
    assert_gone("pid.1");
    done(&job);
    close(out);
}
END_TEST

/* poll() reports a terminal as writable even if it has room for less than a line. So the
 * launcher must not rely on that. */
START_TEST(ends_where_a_terminal_is_stuck)
{
    int screen = open_screen();
    output_to = open(ptsname(screen), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(output_to, 0);
    launched job = start_ready("-n~2~--grace~1~sh~-c~echo $$ >$FOLDER/pid.$RANK; exec yes");
    wait_until_stuck(screen);
    kill(job.pid, SIGTERM);
    finish(&job);
    ck_assert_double_lt(job.seconds, 300);
    ck_assert_int_eq(job.status, 128 + SIGTERM);
    ck_assert_str_eq(job.err,
                     "tessera: launch: nobody reads standard output: the rest of it is lost\n");
    ck_assert_int_eq(fcntl(output_to, F_GETFL) & O_NONBLOCK, 0); /* the shell uses it, too */
    assert_gone("pid.0");
    assert_gone("pid.1");
    done(&job);
    close(output_to);
    close(screen);
}
END_TEST

/* Unless the launcher is signalled, output waits for its reader without a deadline. */
START_TEST(waits_for_a_late_reader)
{
    static const int flags[] = {0, O_NONBLOCK};
    int out, in;
    size_t size, expected = 0;
    launched job = start_into_pipe("-n~1~--grace~0~sh~-c~seq 40000; exit 3", flags[_i], &out, &in);
    wait_until_full(in);
    close(in);
    char *text = read_all(out, &size);
    finish(&job);
    for (int i = 1; i <= 40000; i++)
        expected += (size_t)snprintf(NULL, 0, "[0] %d\n", i);
    ck_assert_int_eq(job.status, 3);
    ck_assert_uint_eq(size, expected);
    assert_has(job.err, "exited with status 3\n");
    ck_assert_int_eq(count(job.err, "\n"), 1);
    free(text);
    done(&job);
}
END_TEST

TESTS(unread)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, ends_where_nobody_reads, 0, (int)(sizeof unread / sizeof unread[0]));
    tcase_add_test(tests, ends_where_a_terminal_is_stuck);
    tcase_add_loop_test(tests, waits_for_a_late_reader, 0, 2);
}
