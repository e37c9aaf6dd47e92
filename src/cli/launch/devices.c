/* Chooses the device of each rank. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/say.h"
#include "tessera/device.h"

#define LARGEST_INDEX 4095

/* Lists the usable devices of the best type, in the order of tsr_device_open. So if there is a GPU,
 * CPU drivers are not listed. */
static void list_best(launch_devices *out)
{
    static const tsr_device_type best_first[] = {TSR_DEVICE_DISCRETE, TSR_DEVICE_INTEGRATED,
                                                 TSR_DEVICE_VIRTUAL, TSR_DEVICE_OTHER,
                                                 TSR_DEVICE_CPU};
    tsr_device_list *list = NULL;
    if (tsr_device_list_create(&list) != TSR_OK)
        return; /* there is no Vulkan, but the ranks may not need it */
    for (size_t type = 0; type < sizeof best_first / sizeof best_first[0] && out->count == 0;
         type++)
        for (int i = 0; i < list->count; i++)
            if (list->devices[i]->usable && list->devices[i]->type == best_first[type] &&
                out->count < LAUNCH_MAX_RANKS)
                out->indices[out->count++] = list->devices[i]->index;
    tsr_device_list_destroy(&list);
}

/* The time limit for listing devices. Drivers may take seconds to list many GPUs, and some drivers
 * hang. */
#ifndef LIST_TIMEOUT_MS
#define LIST_TIMEOUT_MS 30000
#endif

static bool answers_in_time(int from)
{
    struct pollfd poll_one = {.fd = from, .events = POLLIN};
    int ready;
    do
        ready = poll(&poll_one, 1, LIST_TIMEOUT_MS);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

static bool read_all(int from, void *out, size_t size_bytes)
{
    for (size_t got = 0; got < size_bytes;) {
        ssize_t count = read(from, (char *)out + got, size_bytes - got);
        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        got += count > 0 ? (size_t)count : 0;
    }
    return true;
}

static void list_and_write(int to, pid_t launcher)
{
    launch_devices found = {0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher)
        _exit(1);
    list_best(&found);
    ssize_t written = write(to, &found, sizeof found);
    _exit(written == (ssize_t)sizeof found ? 0 : 1);
}

/* Lists devices in a child process, so that threads and crashes of drivers do not affect the
 * launcher. If no device is found, the list is empty, which is not an error. */
static void list_apart(launch_devices *out)
{
    int ends[2];
    if (pipe(ends) != 0)
        return;
    const pid_t launcher = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        list_and_write(ends[1], launcher);
    }
    close(ends[1]);
    launch_devices found = {0};
    const bool answers = child > 0 && answers_in_time(ends[0]);
    const bool is_whole = answers && read_all(ends[0], &found, sizeof found);
    close(ends[0]);
    if (child > 0) {
        /* a driver may hang in the child even after the child has answered */
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
    if (is_whole && found.count >= 0 && found.count <= LAUNCH_MAX_RANKS)
        *out = found;
    if (child > 0 && !answers)
        cli_say(
            "launch: no list of devices within %d s, perhaps because a driver hangs: every rank "
            "gets the best device, unless --device-map names others",
            LIST_TIMEOUT_MS / 1000);
}

static int read_map(const char *map, launch_devices *out)
{
    for (const char *rest = map;; rest++) {
        char one[16];
        int64_t index;
        size_t length = strcspn(rest, ",");
        if (length < sizeof one) {
            memcpy(one, rest, length);
            one[length] = '\0';
        }
        if (length >= sizeof one || !cli_read_integer(one, 0, LARGEST_INDEX, &index))
            return cli_usage_error("launch: --device-map takes auto or comma-separated indices "
                                   "from 0 to %d, not '%.80s'",
                                   LARGEST_INDEX, map);
        if (out->count == LAUNCH_MAX_RANKS)
            return cli_usage_error("launch: --device-map takes at most %d indices",
                                   LAUNCH_MAX_RANKS);
        out->indices[out->count++] = (int)index;
        rest += length;
        if (*rest == '\0')
            return CLI_DONE;
    }
}

int launch_devices_find(const char *map, launch_devices *out)
{
    if (strcmp(map, "auto") != 0)
        return read_map(map, out);
    list_apart(out);
    return CLI_DONE;
}
