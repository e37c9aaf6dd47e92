#include "launch/launched.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/tool_config.h"
#include "support/check_main.h"

#define MAX_ARGUMENTS 16

static char folder[64];

int output_to = -1;

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void sleep_for(double seconds)
{
    const int64_t ns = (int64_t)(seconds * 1e9);
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

void make_folder(void)
{
    strcpy(folder, "/tmp/tessera-launch-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("FOLDER", folder, 1);
    /* They may be ignored in the process that runs the tests: by nohup, or by a shell without a
     * terminal that runs them in the background. */
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
    for (int i = 0; i < 2000; i++) {
        if (access(in_folder(name), F_OK) == 0)
            return;
        sleep_for(0.005);
    }
    char *err = read_file("err");
    ck_abort_msg("no file %s; standard error: %s", name, err);
}

launched start_ready(const char *arguments)
{
    launched job = start(arguments);
    wait_for("pid.0");
    wait_for("pid.1");
    sleep_for(0.05); /* until its process has gone on after writing the file */
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
    for (int i = 0; i < 1000 && is_alive(name); i++)
        sleep_for(0.002);
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
