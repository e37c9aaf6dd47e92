/* Passes what is typed at a terminal on to rank 0. The rank cannot read the terminal itself: it is
 * in a process group of its own, and the kernel stops a background process that reads. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cli/launch/launch.h"

/* How often to check whether the launcher is in the foreground. Polling is needed because a shell's
 * `fg` sends no SIGCONT to a job that is already running. */
#define BACKGROUND_MS 200

bool launch_input_needed(int number)
{
    return number == 0 && isatty(STDIN_FILENO);
}

void launch_input_begin(launch_input *input, int to)
{
    *input = (launch_input){.to = to};
    if (to >= 0) /* the rank may never read its input */
        (void)fcntl(to, F_SETFL, O_NONBLOCK);
}

void launch_input_finish(launch_input *input)
{
    if (input->to >= 0)
        close(input->to);
    input->to = -1;
}

/* Returns whether the launcher may read the terminal: while the launcher is in the background, the
 * terminal belongs to another process group. A terminal that does not control the session belongs
 * to no group and may be read. */
static bool is_in_foreground(void)
{
    const pid_t group = tcgetpgrp(STDIN_FILENO);
    return group < 0 || group == getpgrp();
}

struct pollfd launch_input_poll(const launch_input *input, int *timeout_ms)
{
    if (input->to >= 0 && input->used > 0)
        return (struct pollfd){.fd = input->to, .events = POLLOUT};
    const bool reads = input->to >= 0 && is_in_foreground();
    if (input->to >= 0 && !reads && *timeout_ms > BACKGROUND_MS)
        *timeout_ms = BACKGROUND_MS;
    return (struct pollfd){.fd = reads ? STDIN_FILENO : -1, .events = POLLIN};
}

static bool is_temporary(int reason)
{
    return reason == EINTR || reason == EAGAIN;
}

void launch_input_pass(launch_input *input)
{
    ssize_t count;
    if (input->used == 0) {
        /* poll() reported a line, but another process may have read it since. The timer keeps
         * read() from blocking. */
        launch_interrupt_calls(true);
        count = read(STDIN_FILENO, input->bytes, sizeof input->bytes);
        launch_interrupt_calls(false);
        if (count > 0)
            input->used = (size_t)count;
        else if (count == 0 || (!is_temporary(errno) && is_in_foreground()))
            launch_input_finish(input); /* Ctrl-D, or the terminal is gone */
        return;
    }
    count = write(input->to, input->bytes + input->done, input->used - input->done);
    if (count < 0 && !is_temporary(errno)) {
        launch_input_finish(input); /* rank 0 does not read any more */
        return;
    }
    input->done += count > 0 ? (size_t)count : 0;
    if (input->done == input->used)
        input->done = input->used = 0;
}
