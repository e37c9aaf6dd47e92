#define _XOPEN_SOURCE 700 /* posix_openpt */
#include "launch/launched.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/tool_config.h"
#include "support/check_main.h"

#define MAX_ARGUMENTS 40
#define LIMIT_S 60 /* how long a test waits for an event */

static char folder[64];

int output_to = -1;

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void pause_briefly(void)
{
    nanosleep(&(struct timespec){0, 5000000}, NULL);
}

void make_folder(void)
{
    strcpy(folder, "/tmp/tessera-launch-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("FOLDER", folder, 1);
    /* Restores the default effect of these signals, which the process that runs the tests may
     * ignore: because of nohup, or because a shell without a terminal runs it in the background. */
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
}

void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

const char *in_folder(const char *name)
{
    static char path[2][128];
    static int next;
    snprintf(path[next ^= 1], sizeof path[0], "%s/%s", folder, name);
    return path[next];
}

int open_screen(void)
{
    int screen = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert(screen >= 0 && grantpt(screen) == 0 && unlockpt(screen) == 0);
    return screen;
}

char *read_file(const char *name)
{
    FILE *file = fopen(in_folder(name), "r");
    size_t size = 1 << 23;
    char *text = calloc(size, 1);
    ck_assert_ptr_nonnull(text);
    if (file != NULL) {
        size_t got = fread(text, 1, size - 1, file);
        text[got] = '\0';
        fclose(file);
    }
    return text;
}

void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");
    ck_assert_ptr_nonnull(file);
    ck_assert(fputs(text, file) >= 0 && fclose(file) == 0);
}

launched start(const char *arguments)
{
    char copy[2048], *argv[MAX_ARGUMENTS + 3] = {(char[]){TEST_TOOL}, (char[]){"launch"}};
    int argc = 2;
    ck_assert_uint_lt(strlen(arguments), sizeof copy);
    strcpy(copy, arguments);
    for (char *word = strtok(copy, "~"); word != NULL; word = strtok(NULL, "~")) {
        ck_assert_int_lt(argc, MAX_ARGUMENTS + 2);
        argv[argc++] = word;
    }
    launched job = {.seconds = now()};
    job.pid = fork();
    ck_assert_int_ge(job.pid, 0);
    if (job.pid == 0) {
        int out = open(in_folder("out"), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
        int err = open(in_folder("err"), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
        int in = access(in_folder("in"), R_OK) == 0 ? open(in_folder("in"), O_RDONLY)
                                                    : open("/dev/null", O_RDONLY);
        dup2(in, 0);
        dup2(output_to >= 0 ? output_to : out, 1);
        dup2(err, 2);
        close(output_to);
        execv(argv[0], argv);
        _exit(99);
    }
    return job;
}

void finish(launched *job)
{
    int status;
    ck_assert_int_eq(waitpid(job->pid, &status, 0), job->pid);
    job->seconds = now() - job->seconds;
    job->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    job->out = read_file("out");
    job->err = read_file("err");
}

launched launch(const char *arguments)
{
    launched job = start(arguments);
    finish(&job);
    return job;
}

void done(launched *job)
{
    free(job->out);
    free(job->err);
}

void wait_for(const char *name)
{
    struct stat file;
    for (double start = now(); now() < start + LIMIT_S; pause_briefly())
        if (stat(in_folder(name), &file) == 0 && file.st_size > 0)
            return;
    char *err = read_file("err");
    ck_abort_msg("no file %s; standard error: %s", name, err);
}

void wait_for_text(const char *name, const char *what, int times)
{
    for (double start = now(); now() < start + LIMIT_S; pause_briefly()) {
        char *text = read_file(name);
        int found = count(text, what);
        free(text);
        if (found >= times)
            return;
    }
    char *text = read_file(name);
    ck_abort_msg("not %d times '%s' in: %.2000s", times, what, text);
}

/* Returns whether a signal is pending: it has been sent to the process, which has not yet
 * received it. */
static bool is_pending(pid_t pid, int number)
{
    char path[64], line[256];
    unsigned long long pending = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL && sscanf(line, "ShdPnd: %llx", &pending) != 1)
        ;
    fclose(file);
    return (pending >> (number - 1) & 1) != 0;
}

void send_signal(const launched *job, int number)
{
    ck_assert_int_eq(kill(job->pid, number), 0);
    for (double start = now(); is_pending(job->pid, number); pause_briefly())
        ck_assert_msg(now() < start + LIMIT_S, "the launcher does not take signal %d", number);
}

launched start_ready(const char *arguments)
{
    launched job = start(arguments);
    wait_for("pid.0");
    wait_for("pid.1");
    return job;
}

bool is_alive(const char *name)
{
    char *number = read_file(name), path[64], line[512] = "";
    ck_assert_msg(atoi(number) > 0, "no number in %s", name);
    snprintf(path, sizeof path, "/proc/%d/stat", atoi(number));
    free(number);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool got = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *state = strrchr(line, ')');
    return got && state != NULL && state[2] != 'Z' && state[2] != 'X';
}

void assert_gone(const char *name)
{
    for (double start = now(); is_alive(name) && now() < start + LIMIT_S;)
        pause_briefly();
    ck_assert_msg(!is_alive(name), "process %s is still there", name);
}

int count(const char *text, const char *what)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        found++;
    return found;
}

void assert_has(const char *text, const char *what)
{
    ck_assert_msg(strstr(text, what) != NULL, "no '%s' in: %.2000s", what, text);
}
