/* The launcher's children: ranks, and what ranks that have ended have left to it. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch/launch.h"

/* The numbers of the launcher's children, as text. */
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

/* Their signals merge, so that each may stand for many; and a list that gets shorter while it is
 * read leaves some out. */
void launch_children_bury(const launch_rank *ranks, int count, pid_t guard)
{
    int buried, pid;
    do {
        FILE *file = open_children();
        buried = 0;
        while (file != NULL && fscanf(file, "%d", &pid) == 1)
            if (pid != guard && !is_rank(ranks, count, (pid_t)pid) &&
                waitpid((pid_t)pid, NULL, WNOHANG) == pid)
                buried++;
        if (file != NULL)
            fclose(file);
    } while (buried > 0);
}
