#include "model/convert/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "platform/paths.h"
#include "tokenizer/tokenizer_write.h"

/* The names of all files that a conversion to a folder can write, and of those that programs would
 * read instead. */
static const char *const names[] = {
    "model.safetensors.index.json", "model.safetensors", "generation_config.json",
    TSR__TOKENIZER_FILES,           "config.json",       NULL};

static tsr_status failed(const char *action, const char *path)
{
    return tsr__fail(TSR_ERR_IO, "convert: cannot %s %s: %s", action, path, strerror(errno));
}

/* Returns folder/name, or a copy of the folder's path if there is no name. NULL: no memory. */
static char *path_of(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + (name ? strlen(name) : 0) + 2;
    char *path = tsr__calloc(size, 1);
    if (path)
        snprintf(path, size, "%s%s%s", folder, name ? "/" : "", name ? name : "");
    return path;
}

static tsr_status check_destination(tsr__output *out, bool replace)
{
    struct stat info;
    if (stat(out->destination, &info) != 0)
        return errno == ENOENT ? TSR_OK : failed("write", out->destination);
    out->exists = true;
    TSR__REQUIRE(replace, "convert: %s exists", out->destination);
    TSR__REQUIRE(out->is_folder ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode),
                 "convert: %s exists and is no %s", out->destination,
                 out->is_folder ? "folder" : "regular file");
    return TSR_OK;
}

static tsr_status create_partial(tsr__output *out)
{
    if (out->is_folder ? mkdir(out->partial, 0777) != 0
                       : (out->descriptor = open(
                              out->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0) {
        const tsr_status status = failed("create", out->partial);
        tsr__free(out->partial); /* this process did not create it, so it must not remove it */
        out->partial = NULL;
        return status;
    }
    return TSR_OK;
}

tsr_status tsr__output_begin(const char *destination, bool is_folder, bool replace,
                             tsr__output *out)
{
    *out = (tsr__output){.is_folder = is_folder, .descriptor = -1};
    size_t length = strlen(destination);
    TSR__REQUIRE(length > 0, "convert: the destination has no name");
    const size_t size = length + 32;
    out->destination = tsr__strdup(destination);
    out->partial = tsr__calloc(size, 1);
    if (!out->destination || !out->partial)
        return TSR_ERR_NO_MEMORY;
    while (length > 1 && out->destination[length - 1] == '/')
        out->destination[--length] = '\0';
    snprintf(out->partial, size, "%s.partial-%ld", out->destination, (long)getpid());
    tsr_status status = check_destination(out, replace);
    if (status != TSR_OK) {
        tsr__free(out->partial);
        out->partial = NULL;
        return status;
    }
    return create_partial(out);
}

/* Files ---------------------------------------------------------------------------------------- */

static tsr_status write_all(int descriptor, const char *path, const void *data, uint64_t size,
                            uint64_t at)
{
    for (uint64_t done = 0; done < size;) {
        const ssize_t wrote =
            pwrite(descriptor, (const char *)data + done, size - done, (off_t)(at + done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return failed("write", path);
        done += (uint64_t)wrote;
    }
    return TSR_OK;
}

static tsr_status open_file(tsr__output *out, const char *name, int *descriptor)
{
    char *path = path_of(out->partial, name);
    if (!path)
        return TSR_ERR_NO_MEMORY;
    *descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const tsr_status status = *descriptor < 0 ? failed("create", path) : TSR_OK;
    tsr__free(path);
    return status;
}

tsr_status tsr__output_file(tsr__output *out, const char *name, const void *data, size_t size)
{
    int descriptor = -1;
    TSR__TRY(open_file(out, name, &descriptor));
    tsr_status status = write_all(descriptor, name, data, size, 0);
    if (status == TSR_OK && fsync(descriptor) != 0)
        status = failed("write", name);
    close(descriptor);
    out->written_bytes += size;
    return status;
}

tsr_status tsr__output_weights(tsr__output *out, const char *name, uint64_t size)
{
    if (out->is_folder)
        TSR__TRY(open_file(out, name, &out->descriptor));
    if (ftruncate(out->descriptor, (off_t)size) != 0)
        return tsr__fail(TSR_ERR_IO, "convert: cannot make %s %" PRIu64 " bytes long: %s",
                         out->partial, size, strerror(errno));
    out->written_bytes += size;
    return TSR_OK;
}

tsr_status tsr__output_write(tsr__output *out, const void *data, uint64_t size, uint64_t at)
{
    return write_all(out->descriptor, out->partial, data, size, at);
}

/* The end -------------------------------------------------------------------------------------- */

/* Replaces or removes one file of a folder that exists. */
static tsr_status replace_file(const tsr__output *out, const char *name)
{
    char *from = path_of(out->partial, name), *to = path_of(out->destination, name);
    tsr_status status = from && to ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && rename(from, to) != 0)
        status = errno != ENOENT                      ? failed("write", to)
                 : unlink(to) != 0 && errno != ENOENT ? failed("remove", to)
                                                      : TSR_OK;
    tsr__free(from);
    tsr__free(to);
    return status;
}

/* Returns the path of the folder that contains the destination. The caller must free it. NULL: no
 * memory. */
static char *folder_of(const tsr__output *out)
{
    const char *slash = tsr__path_last_separator(out->destination);
    char *folder = path_of(slash ? out->destination : ".", NULL);
    if (folder && slash)
        folder[slash == out->destination ? 1 : slash - out->destination] = '\0';
    return folder;
}

/* Synchronises a folder, so that the new names in it are on the disk. */
static void sync_folder(const char *folder)
{
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)fsync(descriptor);
        close(descriptor);
    }
}

/* Gives the files their names. */
static tsr_status rename_all(tsr__output *out)
{
    if (out->descriptor >= 0) {
        const bool synced = fsync(out->descriptor) == 0, closed = close(out->descriptor) == 0;
        out->descriptor = -1;
        if (!synced || !closed)
            return failed("write", out->partial);
    }
    if (out->is_folder && out->exists) {
        for (int i = 0; names[i]; i++)
            TSR__TRY(replace_file(out, names[i]));
        (void)rmdir(out->partial);
    } else if (rename(out->partial, out->destination) != 0) {
        return failed("write", out->destination);
    }
    tsr__free(out->partial);
    out->partial = NULL;
    return TSR_OK;
}

tsr_status tsr__output_commit(tsr__output *out)
{
    char *folder = folder_of(out);
    if (!folder)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = rename_all(out);
    if (status == TSR_OK)
        sync_folder(folder);
    tsr__free(folder);
    return status;
}

void tsr__output_finish(tsr__output *out)
{
    if (out->descriptor >= 0)
        close(out->descriptor);
    if (out->partial && out->is_folder) {
        for (int i = 0; names[i]; i++) {
            char *path = path_of(out->partial, names[i]);
            if (path)
                (void)unlink(path);
            tsr__free(path);
        }
        (void)rmdir(out->partial);
    } else if (out->partial) {
        (void)unlink(out->partial);
    }
    tsr__free(out->destination);
    tsr__free(out->partial);
    *out = (tsr__output){.descriptor = -1};
}
