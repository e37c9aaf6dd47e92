#include "comm/ucx/ucx_errors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/environment.h"
#include "base/error.h"
#include "comm/ucx/transport.h"

/* The number of files that UCX 1.13 opens with its default transports, on a machine that has one
 * network in addition to loopback. If the limit allows fewer, UCX aborts the process or reports
 * "Endpoint timeout". */
#define MIN_DESCRIPTORS 18
/* If UCX fails and fewer than this many file descriptors are left, the lack of descriptors is
 * probably the cause. */
#define FEW_DESCRIPTORS 4

/* Counts the files that this process may still open, and reads the limit. Returns false if there is
 * no limit or if the numbers are unknown. */
static bool count_descriptors(uint64_t *left, uint64_t *limit)
{
    struct rlimit files;
    uint64_t used = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL && errno != EMFILE)
        return false;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) {
        if (folder != NULL)
            closedir(folder);
        return false;
    }
    *limit = files.rlim_cur;
    if (folder == NULL) {
        *left = 0;
        return true;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        used += entry->d_name[0] != '.';
    closedir(folder);
    used--; /* the folder that is being read is itself an open file */
    *left = used < *limit ? *limit - used : 0;
    return true;
}

tsr_status tsr__ucx_check_descriptors(void)
{
    uint64_t left, limit;
    /* no check if the user has chosen UCX's transports, which may need fewer files */
    if (tsr__env_text("UCX_TLS") != NULL)
        return TSR_OK;
    if (count_descriptors(&left, &limit) && left < MIN_DESCRIPTORS)
        return tsr__fail(TSR_ERR_IO,
                         "comm: UCX needs at least %d file descriptors, but this process has "
                         "%" PRIu64 " of %" PRIu64 " left: raise 'ulimit -n'",
                         MIN_DESCRIPTORS, left, limit);
    return TSR_OK;
}

static const char *posix_folder(void)
{
    const char *chosen = tsr__env_text("UCX_POSIX_DIR");
    return chosen != NULL ? chosen : "/dev/shm";
}

bool tsr__ucx_may_avoid_posix(void)
{
    return tsr__env_text("UCX_TLS") == NULL && tsr__env_text("UCX_POSIX_DIR") == NULL;
}

/* Returns whether a list such as "tcp,self" contains the name. */
static bool list_contains(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *item = list; item != NULL; item = strchr(item, ',')) {
        item += *item == ',';
        if (strncmp(item, name, length) == 0 && (item[length] == ',' || item[length] == '\0'))
            return true;
    }
    return false;
}

bool tsr__transport_has_shared_memory(void)
{
    const char *chosen = tsr__env_text("UCX_TLS");
    if (chosen == NULL)
        return true;
    const char *list = chosen + (*chosen == '^');
    const bool any = list_contains(list, "all") || list_contains(list, "shm") ||
                     list_contains(list, "sm") || list_contains(list, "mm");
    const bool posix = any || list_contains(list, "posix"),
               sysv = any || list_contains(list, "sysv");
    return list == chosen ? posix || sysv : !posix || !sysv;
}

uint64_t tsr__ucx_posix_bytes(uint64_t page_bytes)
{
    return tsr__align_up_u64(4292720, page_bytes) + tsr__align_up_u64(8447, page_bytes);
}

static uint64_t posix_bytes(void)
{
    const long page_bytes = sysconf(_SC_PAGESIZE);
    return tsr__ucx_posix_bytes(page_bytes > 0 ? (uint64_t)page_bytes : 4096);
}

bool tsr__ucx_posix_fits(void)
{
    struct statvfs found;
    return statvfs(posix_folder(), &found) == 0 && (found.f_flag & ST_RDONLY) == 0 &&
           (uint64_t)found.f_bavail * found.f_frsize >= posix_bytes();
}

bool tsr__ucx_is_out_of_resources(ucs_status_t status)
{
    return status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY ||
           status == UCS_ERR_SHMEM_SEGMENT;
}

static void describe_posix(char *text, size_t size)
{
    struct statvfs found;
    const char *folder = posix_folder();
    if (statvfs(folder, &found) != 0)
        snprintf(text, size, "; %.60s is missing: %s", folder, strerror(errno));
    else if ((found.f_flag & ST_RDONLY) != 0)
        snprintf(text, size, "; %.60s is read-only", folder);
    else
        snprintf(text, size,
                 "; %.60s has %.1f of %.1f MiB free, and UCX takes %.1f MiB for each process",
                 folder, (double)found.f_bavail * (double)found.f_frsize / 1048576,
                 (double)found.f_blocks * (double)found.f_frsize / 1048576,
                 (double)posix_bytes() / 1048576);
}

const char *tsr__ucx_describe(ucs_status_t status, char *text, size_t size)
{
    uint64_t left, limit;
    snprintf(text, size, "%s", ucs_status_string(status));
    size_t used = strlen(text);
    if (count_descriptors(&left, &limit) && left < FEW_DESCRIPTORS) {
        snprintf(text + used, size - used,
                 "; this process has %" PRIu64 " of %" PRIu64
                 " file descriptors left: raise 'ulimit -n'",
                 left, limit);
    } else if (tsr__ucx_is_out_of_resources(status) && !tsr__ucx_posix_fits()) {
        describe_posix(text + used, size - used);
        used = strlen(text);
        snprintf(text + used, size - used,
                 ": make it larger and writable (docker run --shm-size=1g), set UCX_POSIX_DIR to a "
                 "folder that has room, or do without it (UCX_TLS=^posix)");
    } else if (tsr__ucx_is_out_of_resources(status)) {
        snprintf(text + used, size - used,
                 "; this process may be short of memory ('ulimit -v', a container's limit)");
    }
    return text;
}

tsr_status tsr__ucx_check(ucs_status_t status, const char *what)
{
    char text[400];
    if (status == UCS_OK)
        return TSR_OK;
    return tsr__fail(status == UCS_ERR_NO_MEMORY ? TSR_ERR_NO_MEMORY : TSR_ERR_IO,
                     "comm: %s: UCX says: %s", what, tsr__ucx_describe(status, text, sizeof text));
}
