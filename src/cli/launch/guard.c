/* When a launcher is killed, the kernel kills the processes that it started, but not those that
 * these have started. The guard does: it holds one end of a pipe, whose other end closes with the
 * launcher, however that ends. It knows the job's processes by their token, which they have all
 * inherited, whatever groups and sessions they have moved to. */
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

/* New ones may appear while others are being killed. */
#define MOST_ROUNDS 50

/* Holds none of what the launcher has open: whoever reads the launcher's output must see its end.
 */
static void let_go_of_files(int but)
{
    long most = sysconf(_SC_OPEN_MAX);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        (void)dup2(null, fd);
    for (int fd = 3; fd < (most > 0 && most < 65536 ? (int)most : 65536); fd++)
        if (fd != but)
            close(fd);
}

/* The guard of a launcher around this one must not take this guard for one of its processes, and
 * kill it before it has killed its own: it looks at what this process was started with. */
static void leave_outer_job(void)
{
    char *token = getenv("TESSERA_TOKEN");
    if (token != NULL)
        memset(token, '-', strlen(token));
}

/* Whether a process was started with this "NAME=value". */
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
    for (int i = 0; got == 0 && i < MOST_ROUNDS && kill_some(variable); i++)
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
        (void)setsid(); /* no signal meant for the launcher's group reaches it */
        leave_outer_job();
        let_go_of_files(ends[0]);
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
