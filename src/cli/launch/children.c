/* The children of the launcher. These are the ranks, and the orphans of ranks that have ended. The
 * kernel makes these orphans children of the launcher, because the launcher is a subreaper. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch/launch.h"

/* Opens the kernel's list of the launcher's children, which contains process numbers as text. */
static FILE *open_children(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    return fopen(path, "re");
}

int launch_children_signal(pid_t guard, int signal)
{
    int pid, count = 0;
    FILE *file = open_children();
    while (file != NULL && fscanf(file, "%d", &pid) == 1)
        if (pid != guard) {
            kill((pid_t)pid, signal);
            count++;
        }
    if (file != NULL)
        fclose(file);
    return count;
}

static bool is_rank(const launch_rank *ranks, int count, pid_t pid)
{
    bool is = false;
    for (int i = 0; i < count && !is; i++)
        is = ranks[i].pid == pid;
    return is;
}

/* Reaps until the kernel's list has no child left that has ended. One pass is not enough: one
 * SIGCHLD may stand for several children, and the list may lack some children if others are removed
 * while it is being read. */
void launch_children_reap(const launch_rank *ranks, int count, pid_t guard)
{
    int reaped, pid;
    do {
        FILE *file = open_children();
        reaped = 0;
        while (file != NULL && fscanf(file, "%d", &pid) == 1)
            if (pid != guard && !is_rank(ranks, count, (pid_t)pid) &&
                waitpid((pid_t)pid, NULL, WNOHANG) == pid)
                reaped++;
        if (file != NULL)
            fclose(file);
    } while (reaped > 0);
}
