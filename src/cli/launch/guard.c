/* The guard is a process that ends the job's processes if the launcher is killed. In this case the
 * kernel kills the ranks (PR_SET_PDEATHSIG), but not the processes that the ranks have started. The
 * guard kills those too. It reads from a pipe whose other end closes when the launcher ends for any
 * reason. It recognises the job's processes by the TESSERA_TOKEN that they have inherited, even if
 * they have moved to other process groups and sessions. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/launch/launch.h"

/* The largest number of passes over all processes. One pass may miss processes that were started
 * while others were being killed. */
#define MAX_ROUNDS 50

/* Closes all files except `but`. The guard would otherwise keep the launcher's output pipe open,
 * and the reader of this pipe would wait for its end until the guard ends. */
static void close_files(int but)
{
    long most = sysconf(_SC_OPEN_MAX);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        (void)dup2(null, fd);
    for (int fd = 3; fd < (most > 0 && most < 65536 ? (int)most : 65536); fd++)
        if (fd != but)
            close(fd);
}

/* Overwrites the token of an outer launcher in the initial environment of this process. Otherwise
 * the outer launcher's guard would kill this guard too early. */
static void leave_outer_job(void)
{
    char *token = getenv("TESSERA_TOKEN");
    if (token != NULL)
        memset(token, '-', strlen(token));
}

/* Returns whether the initial environment of a process contains this "NAME=value". */
static bool has_variable(const char *pid, const char *variable)
{
    char path[300];
    char *line = NULL;
    size_t size = 0;
    bool has = false;
    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && !has && getdelim(&line, &size, '\0', file) > 0)
        has = strcmp(line, variable) == 0;
    if (file != NULL)
        fclose(file);
    free(line);
    return has;
}

/* Kills all processes whose initial environment contains this "NAME=value". Returns whether there
 * were any. */
static bool kill_some(const char *variable)
{
    DIR *all = opendir("/proc");
    bool found = false;
    if (all == NULL)
        return false;
    for (const struct dirent *one; (one = readdir(all)) != NULL;)
        if (isdigit((unsigned char)one->d_name[0]) && has_variable(one->d_name, variable)) {
            kill((pid_t)atoi(one->d_name), SIGKILL);
            found = true;
        }
    closedir(all);
    return found;
}

static void watch(int pipe, const char *variable)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    char dismissal;
    ssize_t got;
    do
        got = read(pipe, &dismissal, 1);
    while (got < 0 && errno == EINTR);
    for (int i = 0; got == 0 && i < MAX_ROUNDS && kill_some(variable); i++)
        nanosleep(&pause, NULL);
    _exit(0);
}

bool launch_guard_start(launch_guard *guard, const char *token)
{
    int ends[2];
    char variable[128];
    snprintf(variable, sizeof variable, "TESSERA_TOKEN=%s", token);
    *guard = (launch_guard){.pipe = -1};
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        (void)setsid(); /* signals to the launcher's process group must not reach the guard */
        leave_outer_job();
        close_files(ends[0]);
        watch(ends[0], variable);
    }
    close(ends[0]);
    if (child < 0 || fcntl(ends[1], F_SETFD, FD_CLOEXEC) < 0) {
        close(ends[1]);
        return false;
    }
    *guard = (launch_guard){ends[1], child};
    return true;
}

void launch_guard_dismiss(launch_guard *guard)
{
    if (guard->pipe < 0)
        return;
    while (write(guard->pipe, "", 1) < 0 && errno == EINTR)
        ;
    close(guard->pipe);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *guard = (launch_guard){.pipe = -1};
}
