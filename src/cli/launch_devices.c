/* Which device each rank gets. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "tessera/device.h"

#define LARGEST_INDEX 4095

/* The usable devices of the best type there is: not a CPU driver next to a GPU. */
static void list_best(launch_devices *out)
{
    static const tsr_device_type best_first[] = {TSR_DEVICE_DISCRETE, TSR_DEVICE_INTEGRATED,
                                                 TSR_DEVICE_VIRTUAL, TSR_DEVICE_CPU,
                                                 TSR_DEVICE_OTHER};
    tsr_device_list list;
    if (tsr_device_list_init(&list) != TSR_OK)
        return; /* no Vulkan: ranks may not need any */
    for (size_t type = 0; type < sizeof best_first / sizeof best_first[0] && out->count == 0;
         type++)
        for (int i = 0; i < list.count; i++)
            if (list.devices[i].usable && list.devices[i].type == best_first[type] &&
                out->count < LAUNCH_MAX_RANKS)
                out->indices[out->count++] = list.devices[i].index;
    tsr_device_list_finish(&list);
}

/* In a process of its own: drivers start threads, and some crash. Finding none is no error. */
static void list_apart(launch_devices *out)
{
    int ends[2];
    if (pipe(ends) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        list_best(out);
        ssize_t written = write(ends[1], out, sizeof *out);
        _exit(written == (ssize_t)sizeof *out ? 0 : 1);
    }
    close(ends[1]);
    launch_devices found = {0};
    size_t got = 0;
    for (ssize_t count = 1;
         child > 0 && count > 0 && got<sizeof found; got += count> 0 ? (size_t)count : 0)
        count = read(ends[0], (char *)&found + got, sizeof found - got);
    close(ends[0]);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    if (got == sizeof found && found.count >= 0 && found.count <= LAUNCH_MAX_RANKS)
        *out = found;
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
            return cli_usage_error("launch: --device-map takes auto or indices from 0 to %d with "
                                   "commas between them, not '%.80s'",
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
