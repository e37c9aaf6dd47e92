#include "bench/cases/sample_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Reads a process's peak memory, VmHWM of Linux. wait4() cannot be used, because the peak that it
 * gives for a child includes the memory of the process that started the child. */
static bool read_peak(pid_t process, double *bytes)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)process);
    FILE *in = fopen(path, "r");
    while (in != NULL && kib == 0 && fgets(line, sizeof line, in) != NULL)
        if (sscanf(line, "VmHWM: %ld kB", &kib) != 1)
            kib = 0;
    if (in != NULL)
        fclose(in);
    *bytes = (double)kib * 1024;
    return kib > 0;
}

/* Reads the indices that the child prints. When 2 MiB of them are left, it reads the child's peak
 * memory. At that time the child has the complete order of the epoch in memory, and it still runs,
 * because a pipe has room for less than 2 MiB. */
static bool watch(pid_t child, int from, double *peak_bytes)
{
    static char buffer[1 << 16];
    const uint64_t left = UINT64_C(2) << 20, all = SAMPLE_ITEMS / SAMPLE_RANKS * sizeof(int64_t);
    uint64_t taken = 0;
    bool seen = false;
    ssize_t got;
    while ((got = read(from, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
        taken += got > 0 ? (uint64_t)got : 0;
        if (!seen && taken + left > all)
            seen = read_peak(child, peak_bytes);
    }
    return seen && taken == all;
}

bool bench_sample_memory(bench_context *context, double *peak_bytes)
{
    char *const arguments[] = {"tessera", "sample",   "distributed", "--n", "10000000",
                               "--ranks", "8",        "--rank",      "3",   "--order",
                               "torch",   "--format", "i64",         NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        return bench_fail(context, "bench sample: no pipe: %s", strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    int reason = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    bool seen = reason == 0 && watch(child, ends[0], peak_bytes);
    close(ends[0]);
    if (reason != 0)
        return bench_fail(context, "bench sample: no process: %s", strerror(reason));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return bench_fail(context, "bench sample: %s", strerror(errno));
    if (status != 0 || !seen)
        return bench_fail(context, "bench sample: tessera sample distributed failed");
    return true;
}
