/* Jobs at a terminal. */
#define _XOPEN_SOURCE 700 /* ptsname */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli/tool_config.h"
#include "launch/launched.h"
#include "support/check_main.h"

/* A terminal, and the leader of its session, which is a job or has started one. */
typedef struct session {
    int screen;
    pid_t leader;
    char shown[4096]; /* what is on the screen */
} session;

/* Waits for a job in the background. When the file "front" is there, brings the job into the
 * foreground, as a shell's `fg` does. */
static int lead(pid_t job)
{
    struct stat file;
    signal(SIGTTOU, SIG_IGN); /* the leader is in the background afterwards */
    while (waitpid(job, NULL, WNOHANG) == 0) {
        if (stat(in_folder("front"), &file) == 0 && tcsetpgrp(STDIN_FILENO, job) != 0)
            return 98;
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    return 0;
}

/* Starts the job "launch --no-prefix -n RANKS sh -c SCRIPT" at a terminal that does not echo what
 * is typed. If `behind`, the job is in the background. */
static session open_session(const char *ranks, const char *script, bool behind)
{
    session s = {.screen = open_screen()};
    struct termios settings;
    int terminal = open(ptsname(s.screen), O_RDWR | O_NOCTTY);
    ck_assert_int_eq(tcgetattr(terminal, &settings), 0);
    settings.c_lflag &= ~(tcflag_t)ECHO;
    settings.c_lflag |= TOSTOP;
    ck_assert_int_eq(tcsetattr(terminal, TCSANOW, &settings), 0);
    s.leader = fork();
    ck_assert_int_ge(s.leader, 0);
    if (s.leader == 0) {
        setsid();
        terminal = open(ptsname(s.screen), O_RDWR); /* becomes the session's terminal */
        for (int i = 0; i < 3; i++)
            dup2(terminal, i);
        const pid_t job = behind ? fork() : 0;
        if (job != 0)
            _exit(lead(job));
        if (behind)
            setpgid(0, 0);
        execl(TEST_TOOL, TEST_TOOL, "launch", "--no-prefix", "-n", ranks, "sh", "-c", script,
              (char *)NULL);
        _exit(99);
    }
    close(terminal);
    return s;
}

static void type(const session *s, const char *text)
{
    ck_assert_int_eq((int)write(s->screen, text, strlen(text)), (int)strlen(text));
}

/* Waits until the screen has shown `text`, for a minute at most. */
static void wait_for_shown(session *s, const char *text)
{
    struct pollfd ready = {.fd = s->screen, .events = POLLIN};
    size_t used = strlen(s->shown);
    while (strstr(s->shown, text) == NULL && poll(&ready, 1, 60 * 1000) > 0) {
        ssize_t got = read(s->screen, s->shown + used, sizeof s->shown - 1 - used);
        ck_assert_int_gt(got, 0);
        used += (size_t)got;
    }
}

/* Asserts what the screen has shown, and that the session's leader succeeds. */
static void close_session(session *s, const char *shown)
{
    int status;
    if (strstr(s->shown, shown) == NULL)
        kill(s->leader, SIGKILL);
    ck_assert_str_eq(s->shown, shown);
    ck_assert_int_eq(waitpid(s->leader, &status, 0), s->leader);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(s->screen);
}

/* A terminal with tostop stops background processes that write to it, and ranks are in the
 * background. */
START_TEST(writes_to_a_terminal_that_stops)
{
    session s = open_session("1", "echo out; echo err >&2; echo went on", false);
    wait_for_shown(&s, "went on\r\n");
    close_session(&s, "out\r\nerr\r\nwent on\r\n");
}
END_TEST

/* Lines that are typed must reach rank 0 one by one, before the end of the input, which Ctrl-D
 * is. */
START_TEST(passes_on_what_is_typed)
{
    session s =
        open_session("2", "if [ $RANK = 1 ]; then cat; exit; fi; read a; echo $a?; cat", false);
    type(&s, "one\n");
    wait_for_shown(&s, "one?\r\n");
    type(&s, "two\nthree\n");
    wait_for_shown(&s, "three\r\n");
    type(&s, "\x04");
    close_session(&s, "one?\r\ntwo\r\nthree\r\n");
}
END_TEST

/* The kernel would stop a background process that reads a terminal. In the foreground, the job gets
 * what was typed. */
START_TEST(reads_no_terminal_in_the_background)
{
    session s = open_session("2",
                             "echo $RANK >$FOLDER/$RANK; until [ -s $FOLDER/go ]; do sleep "
                             "0.02; done; echo $RANK >$FOLDER/end.$RANK; if [ $RANK = 0 ]; then "
                             "read a; echo $a >$FOLDER/line; fi; until [ -s $FOLDER/line ]; do "
                             "sleep 0.02; done",
                             true);
    wait_for("0");
    wait_for("1");
    type(&s, "one\n");
    write_file("go", "on");
    wait_for("end.0");
    wait_for("end.1");
    write_file("front", "on");
    wait_for("line");
    char *line = read_file("line");
    ck_assert_str_eq(line, "one\n");
    free(line);
    close_session(&s, "");
}
END_TEST

TESTS(terminal)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, writes_to_a_terminal_that_stops);
    tcase_add_test(tests, passes_on_what_is_typed);
    tcase_add_test(tests, reads_no_terminal_in_the_background);
}
