/* Replaces child.c and can_open.c on systems where the tool starts no child processes. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/cases/fresh.h"
#include "bench/cases/sample_memory.h"
#include "bench/harness/can_open.h"
#include "bench/harness/child.h"

bool bench_fresh_processes(bench_context *context)
{
    bench_leave_out(context, "launch", "fresh processes: this system starts no processes for them");
    return true;
}

bool bench_sample_memory(bench_context *context, double *peak_bytes)
{
    *peak_bytes = 0;
    bench_leave_out(context, "sample",
                    "the peak memory of 'tessera sample': this system starts no process for it");
    return true;
}

/* Opens the device in this process. The driver's memory does no harm, because on this system there
 * are no child processes whose peak memory would include it. */
bool bench_can_open(bench_context *context, const char *which)
{
    tsr_device *device = NULL;
    BENCH_TRY(context, tsr_device_open(tsr_device_params(.device = which), &device));
    tsr_device_close(&device);
    return true;
}

/* Temporary folders contain only files, because folders in them would be caches of child
 * processes. */

static char folder_in_use[BENCH_FOLDER_SIZE];

const char *bench_folder_parent(void)
{
    static const char *const variables[] = {"TMPDIR", "TEMP", "TMP"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *parent = getenv(variables[i]);
        if (parent != NULL && parent[0] != '\0')
            return parent;
    }
    return ".";
}

static void clear_away(int number)
{
    bench_folder_remove(folder_in_use);
    raise(number);
}

bool bench_folder_create(char path[BENCH_FOLDER_SIZE])
{
    if (snprintf(path, BENCH_FOLDER_SIZE, "%s/tessera-bench-XXXXXX", bench_folder_parent()) >=
        BENCH_FOLDER_SIZE) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (mkdtemp(path) == NULL)
        return false;
    strcpy(folder_in_use, path);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = clear_away}, NULL);
    return true;
}

void bench_folder_remove(const char *path)
{
    char file[BENCH_FOLDER_SIZE + sizeof(struct dirent)];
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        (void)unlink(file); /* fails for "." and "..", which need not be removed */
    }
    if (folder != NULL)
        closedir(folder);
    (void)rmdir(path);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}
