#include "bench/harness/can_open.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs in the child process: tries to open the device, and writes the error to the pipe `end`. */
static void try_to_open(bench_context *context, const char *which, int end)
{
    bool opened = bench_open_device(context, which);
    size_t size = opened ? 0 : strlen(context->error);
    _exit(write(end, context->error, size) == (ssize_t)size && opened ? 0 : 1);
}

bool bench_can_open(bench_context *context, const char *which)
{
    int ends[2], status = 1;
    if (pipe(ends) != 0)
        return bench_fail(context, "device %s: %s", which, strerror(errno));
    pid_t child = fork();
    if (child == 0)
        try_to_open(context, which, ends[1]);
    int failed = errno;
    close(ends[1]);
    char reason[sizeof context->error];
    ssize_t got = child > 0 ? read(ends[0], reason, sizeof reason - 1) : 0;
    close(ends[0]);
    if (child > 0 && waitpid(child, &status, 0) == child && status == 0)
        return true;
    if (child < 0)
        return bench_fail(context, "device %s: %s", which, strerror(failed));
    if (got <= 0)
        return bench_fail(context,
                          "device %s: a process that opened it ended without an error text", which);
    return bench_fail(context, "%.*s", (int)got, reason);
}
