/* Sleeps until something happens. An epoll descriptor watches UCX's event descriptor and the other
 * processes of this host. */
#define _DEFAULT_SOURCE /* for syscall and nanosleep */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/ucx/ucx_state.h"

/* The longest sleep. It is limited, because UCX detects lost peers only while it progresses. */
#define MAX_SLEEP_NS (TSR__SECOND / 4)
/* If a message in this process's queue is still incomplete after this time, its sender counts as
 * having ended in the middle of writing. A running process completes a message much sooner. */
#define STUCK_NS (TSR__SECOND / 5)

/* UCX refuses to sleep when there is something to do. It also refuses while a message waits for
 * room in the queue of another process, and that process may need the processor to make room. So
 * after MAX_REFUSALS refusals without progress, each call pauses for PAUSE_NS. */
#define MAX_REFUSALS 16
#define PAUSE_NS 500000

static tsr_status fail_with_errno(const char *what)
{
    int error = errno;
    char text[128];
    if (strerror_r(error, text, sizeof text) != 0)
        text[0] = '\0';
    return tsr__fail(TSR_ERR_IO, "comm: %s: %s", what, text);
}

tsr_status tsr__ucx_wake_open(tsr__transport *transport)
{
    int fd = -1;
    ucs_status_t status = ucp_worker_get_efd(transport->worker, &fd);
    if (status != UCS_OK)
        return tsr__fail(TSR_ERR_IO, "comm: ucp_worker_get_efd: UCX says: %s",
                         ucs_status_string(status));
    transport->wake = epoll_create1(EPOLL_CLOEXEC);
    if (transport->wake < 0)
        return fail_with_errno("epoll_create1");
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = NULL}};
    if (epoll_ctl(transport->wake, EPOLL_CTL_ADD, fd, &event) != 0)
        return fail_with_errno("epoll_ctl");
    return TSR_OK;
}

void tsr__ucx_wake_close(tsr__transport *transport)
{
    for (int i = 0; i < transport->size; i++) {
        if (transport->peers[i].process >= 0)
            close(transport->peers[i].process);
    }
    if (transport->wake >= 0)
        close(transport->wake);
}

static int open_process(int64_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
#else
    (void)pid;
    return -1;
#endif
}

bool tsr__transport_watch(tsr__transport *transport, int peer, int64_t pid)
{
    tsr__peer *watched = &transport->peers[peer];
    int fd = open_process(pid);
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = watched}};
    if (fd >= 0 && epoll_ctl(transport->wake, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        fd = -1;
    }
    watched->process = fd;
    watched->pid = pid;
    if (fd < 0)
        tsr__log(TSR_LOG_DEBUG, "comm: the end of process %lld cannot be watched", (long long)pid);
    return fd >= 0;
}

tsr_status tsr__transport_watch_file(tsr__transport *transport, int file)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = transport}};
    return epoll_ctl(transport->wake, EPOLL_CTL_ADD, file, &event) == 0
               ? TSR_OK
               : fail_with_errno("epoll_ctl");
}

bool tsr__transport_take_readable(tsr__transport *transport)
{
    const bool is_readable = transport->is_readable;
    transport->is_readable = false;
    return is_readable;
}

static void process_ended(tsr__peer *peer)
{
    tsr__ucx_mark_lost(peer, "its process has ended");
    peer->ended = true;
    peer->transport->is_readable =
        true;             /* read what the process has sent to the mailbox before its end */
    close(peer->process); /* closing the pidfd also removes it from the epoll descriptor */
    peer->process = -1;
}

static void wait_for_events(tsr__transport *transport, int ms)
{
    struct epoll_event events[16];
    int count = epoll_wait(transport->wake, events, (int)(sizeof events / sizeof events[0]), ms);
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == transport)
            transport->is_readable = true;
        else if (events[i].data.ptr)
            process_ended(events[i].data.ptr);
    }
}

void tsr__transport_poll_processes(tsr__transport *transport)
{
    wait_for_events(transport, 0);
}

bool tsr__transport_has_ended(const tsr__transport *transport, int peer)
{
    return transport->peers[peer].ended;
}

bool tsr__transport_is_stopped(const tsr__transport *transport, int peer)
{
    char path[64], text[512];
    if (transport->peers[peer].process < 0)
        return false;
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)transport->peers[peer].pid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    text[bytes > 0 ? bytes : 0] = '\0';
    /* The state follows the program's name, which is in parentheses and may contain some. */
    const char *end = strrchr(text, ')');
    return end != NULL && (strncmp(end, ") T ", 4) == 0 || strncmp(end, ") t ", 4) == 0);
}

/* Makes UCX signal its event descriptor at the next event. Returns false if there already is
 * something to do, so this process must not sleep. */
static bool arm_worker(const tsr__transport *transport)
{
    return !transport->is_deaf && ucp_worker_arm(transport->worker) == UCS_OK;
}

bool tsr__transport_is_stuck(tsr__transport *transport)
{
    if (transport->lost_closed == 0 || arm_worker(transport)) {
        transport->stuck_since_ns = 0;
        return false;
    }
    const uint64_t now = tsr__now_ns();
    if (transport->stuck_since_ns == 0)
        transport->stuck_since_ns = now;
    return now - transport->stuck_since_ns > STUCK_NS;
}

void tsr__transport_deafen(tsr__transport *transport)
{
    transport->is_deaf = true;
}

void tsr__transport_sleep(tsr__transport *transport, uint64_t until_ns)
{
    if (arm_worker(transport)) {
        const uint64_t longest = tsr__deadline_ns(MAX_SLEEP_NS);
        transport->refusals = 0;
        wait_for_events(transport, tsr__poll_ms(until_ns < longest ? until_ns : longest));
    } else if (++transport->refusals > MAX_REFUSALS) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        wait_for_events(transport, 0);
    }
}
