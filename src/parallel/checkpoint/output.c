#define _POSIX_C_SOURCE 200809L
#include "parallel/checkpoint/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "platform/paths.h"

tsr_status tsr__checkpoint_output_fail(const char *who, int error, const char *what,
                                       const char *path)
{
    tsr_status status = error == ENOENT || error == ENOTDIR ? TSR_ERR_NOT_FOUND : TSR_ERR_IO;
    return tsr__fail(status, "%s: cannot %s %s: %s", who, what, path, strerror(error));
}

bool tsr__checkpoint_output_faulty(const char *site)
{
    if (!tsr__fault_hit(TSR__FAULT_IO, site))
        return false;
    errno = tsr__fault_code();
    return true;
}

tsr_status tsr__checkpoint_output_init(tsr__checkpoint_output *output, const char *who,
                                       const char *path, const char *ending)
{
    const char *slash = tsr__path_last_separator(path);
    const size_t length = strlen(path), folder = slash ? (size_t)(slash - path) + 1 : 0;
    *output = (tsr__checkpoint_output){.who = who, .descriptor = -1};
    output->path = tsr__strdup(path);
    output->partial = output->path ? tsr__calloc(length + strlen(ending) + 1, 1) : NULL;
    output->folder = output->partial ? tsr__calloc(folder + 2, 1) : NULL;
    if (!output->folder)
        return TSR_ERR_NO_MEMORY;
    memcpy(output->partial, path, length);
    memcpy(output->partial + length, ending, strlen(ending) + 1);
    memcpy(output->folder, folder ? path : ".", folder ? folder : 1);
    return TSR_OK;
}

void tsr__checkpoint_output_finish(tsr__checkpoint_output *output)
{
    if (output->path && output->descriptor >= 0)
        close(output->descriptor);
    if (output->made)
        unlink(output->partial);
    tsr__free(output->path);
    tsr__free(output->partial);
    tsr__free(output->folder);
    *output = (tsr__checkpoint_output){.descriptor = -1};
}

tsr_status tsr__checkpoint_output_create(tsr__checkpoint_output *output, uint64_t size_bytes)
{
    if (unlink(output->partial) != 0 && errno != ENOENT)
        return tsr__checkpoint_output_fail(output->who, errno, "replace", output->partial);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    output->descriptor =
        tsr__checkpoint_output_faulty("create") ? -1 : open(output->partial, flags, 0666);
    if (output->descriptor < 0)
        return tsr__checkpoint_output_fail(output->who, errno, "create", output->partial);
    output->made = true;
    int error = tsr__checkpoint_output_faulty("allocate")
                    ? errno
                    : posix_fallocate(output->descriptor, 0, (off_t)size_bytes);
    if (error == EOPNOTSUPP || error == EINVAL)
        error = ftruncate(output->descriptor, (off_t)size_bytes) == 0 ? 0 : errno;
    return error == 0
               ? TSR_OK
               : tsr__checkpoint_output_fail(output->who, error, "make room in", output->partial);
}

tsr_status tsr__checkpoint_output_write(tsr__checkpoint_output *output, const void *data,
                                        uint64_t size, uint64_t at_bytes)
{
    const uint8_t *bytes = data;
    while (size > 0) {
        ssize_t done = tsr__checkpoint_output_faulty("write")
                           ? -1
                           : pwrite(output->descriptor, bytes, size, (off_t)at_bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return tsr__checkpoint_output_fail(output->who, errno, "write", output->partial);
        bytes += done;
        at_bytes += (uint64_t)done;
        size -= (uint64_t)done;
    }
    return TSR_OK;
}

tsr_status tsr__checkpoint_output_sync(tsr__checkpoint_output *output)
{
    if (tsr__checkpoint_output_faulty("fsync") || fsync(output->descriptor) != 0)
        return tsr__checkpoint_output_fail(output->who, errno, "write", output->partial);
    return TSR_OK;
}

tsr_status tsr__checkpoint_output_sync_folder(const tsr__checkpoint_output *output)
{
    int folder = tsr__checkpoint_output_faulty("open folder")
                     ? -1
                     : open(output->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return tsr__checkpoint_output_fail(output->who, errno, "open", output->folder);
    int result = tsr__checkpoint_output_faulty("fsync folder") ? -1 : fsync(folder), error = errno;
    close(folder);
    /* EINVAL means that the file system neither supports nor needs this call. */
    return result == 0 || error == EINVAL
               ? TSR_OK
               : tsr__checkpoint_output_fail(output->who, error, "write", output->folder);
}

tsr_status tsr__checkpoint_output_commit(tsr__checkpoint_output *output)
{
    if (tsr__checkpoint_output_faulty("rename") || rename(output->partial, output->path) != 0)
        return tsr__checkpoint_output_fail(output->who, errno, "replace", output->path);
    output->made = false;
    return tsr__checkpoint_output_sync_folder(output);
}
