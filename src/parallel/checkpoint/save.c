/* Saves a checkpoint. Ranks write into PATH.partial. This file is renamed to PATH when it is
 * complete and synchronised to the disk. */
#define _XOPEN_SOURCE 700 /* for realpath */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "base/hash.h"
#include "parallel/checkpoint/checkpoint.h"
#include "platform/paths.h"

static const char who[] = "checkpoint_save";

/* System calls --------------------------------------------------------------------------------- */

/* Returns the status of a failed system call on a file. `what` is the verb in the error text, such
 * as "write". */
static tsr_status fail_call(int error, const char *what, const char *path)
{
    tsr_status status = error == ENOENT || error == ENOTDIR ? TSR_ERR_NOT_FOUND : TSR_ERR_IO;
    return tsr__fail(status, "%s: cannot %s %s: %s", who, what, path, strerror(error));
}

/* Returns whether a test wants the next system call to fail. It is called before each system
 * call. */
static bool faulty(const char *site)
{
    if (!tsr__fault_hit(TSR__FAULT_IO, site))
        return false;
    errno = tsr__fault_code();
    return true;
}

typedef struct writer {
    tsr_comm *comm;
    int rank;
    bool checksums;
    tsr__checksum checksum; /* the checksum of this rank's part of the current tensor */
    char *path, *partial, *folder;
    int descriptor;
    bool made; /* this rank has created `partial`, which has not been renamed yet */
} writer;

static tsr_status write_all(writer *w, const void *data, uint64_t size, uint64_t at)
{
    const uint8_t *bytes = data;
    while (size > 0) {
        ssize_t done = faulty("write") ? -1 : pwrite(w->descriptor, bytes, size, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail_call(errno, "write", w->partial);
        bytes += done;
        at += (uint64_t)done;
        size -= (uint64_t)done;
    }
    return TSR_OK;
}

static tsr_status move_out(void *user, uint64_t at, uint64_t size, void *data)
{
    writer *w = user;
    if (w->checksums)
        tsr__checksum_add(&w->checksum, at, size, data);
    return write_all(w, data, size, at);
}

static tsr_status sync_file(writer *w)
{
    if (faulty("fsync") || fsync(w->descriptor) != 0)
        return fail_call(errno, "write", w->partial);
    return TSR_OK;
}

/* Synchronises the folder to the disk. A new file can be found after a crash only if its folder is
 * on the disk too. */
static tsr_status sync_folder(const writer *w)
{
    int folder = faulty("open folder") ? -1 : open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return fail_call(errno, "open", w->folder);
    int result = faulty("fsync folder") ? -1 : fsync(folder), error = errno;
    close(folder);
    /* EINVAL means that the file system neither supports nor needs this call. */
    return result == 0 || error == EINVAL ? TSR_OK : fail_call(error, "write", w->folder);
}

/* The file ------------------------------------------------------------------------------------- */

/* On rank 0, creates the file with its header and reserves space for its full size, so that a disk
 * that is too small fails here. First unlinks an older file of this name. A process that still
 * writes to the older file then cannot change the new one. */
static tsr_status make_file(writer *w, const tsr__checkpoint_layout *layout)
{
    if (unlink(w->partial) != 0 && errno != ENOENT)
        return fail_call(errno, "replace", w->partial);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    w->descriptor = faulty("create") ? -1 : open(w->partial, flags, 0666);
    if (w->descriptor < 0)
        return fail_call(errno, "create", w->partial);
    w->made = true;
    int error =
        faulty("allocate") ? errno : posix_fallocate(w->descriptor, 0, (off_t)layout->size_bytes);
    if (error == EOPNOTSUPP || error == EINVAL)
        error = ftruncate(w->descriptor, (off_t)layout->size_bytes) == 0 ? 0 : errno;
    if (error != 0) {
        errno = error;
        return fail_call(error, "make room in", w->partial);
    }
    return write_all(w, layout->header, layout->header_bytes, 0);
}

/* On the other ranks, opens the file that rank 0 has created. Checks its size and header, to make
 * sure that it is the same file. */
static tsr_status join_file(writer *w, const tsr__checkpoint_layout *layout)
{
    struct stat info;
    w->descriptor = faulty("open") ? -1 : open(w->partial, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (w->descriptor < 0)
        return tsr__fail(TSR_ERR_IO, "%s: cannot open %s, which rank 0 has created: %s", who,
                         w->partial, strerror(errno));
    char *header = tsr__calloc(layout->header_bytes, 1);
    if (!header)
        return TSR_ERR_NO_MEMORY;
    ssize_t got = pread(w->descriptor, header, layout->header_bytes, 0);
    bool same = fstat(w->descriptor, &info) == 0 && (uint64_t)info.st_size == layout->size_bytes &&
                got >= 0 && (uint64_t)got == layout->header_bytes &&
                memcmp(header, layout->header, layout->header_bytes) == 0;
    tsr__free(header);
    if (!same)
        return tsr__fail(TSR_ERR_IO, "%s: %s is not the file that rank 0 has created", who,
                         w->partial);
    return TSR_OK;
}

/* Writes this rank's parts. Sets states[count], the states of the parts' checksums, in the order of
 * the entries. */
static tsr_status write_parts(writer *w, tsr_stream *stream, int count,
                              const tsr_checkpoint_entry *entries,
                              const tsr__checkpoint_layout *layout, const bool *mine,
                              uint32_t *states)
{
    for (int i = 0; i < count; i++) {
        if (!mine[i])
            continue;
        w->checksum = (tsr__checksum){
            .at_bytes = layout->at_bytes[i],
            .size_bytes =
                tsr__checkpoint_elements(&entries[i]) * tsr__checkpoint_width(entries[i].dtype),
        };
        TSR__TRY(
            tsr__checkpoint_transfer(stream, &entries[i], layout->at_bytes[i], true, move_out, w));
        states[i] = tsr__checksum_state(&w->checksum);
    }
    return sync_file(w);
}

/* On rank 0, writes the header again, now with the checksums of all tensors. */
static tsr_status write_checksums(writer *w, int count, const tsr_checkpoint_entry *entries,
                                  tsr__checkpoint_layout *layout, const uint32_t *states)
{
    uint32_t *tensors = tsr__calloc((size_t)count, sizeof *tensors);
    if (!tensors)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        const tsr_checkpoint_entry *entry = &entries[layout->order[i]];
        tensors[i] =
            tsr__crc32c_of_state(states[layout->order[i]], tsr__checkpoint_elements(entry) *
                                                               tsr__checkpoint_width(entry->dtype));
    }
    tsr__checksums_write(layout->header, layout->header_bytes, count, tensors);
    tsr__free(tensors);
    TSR__TRY(write_all(w, layout->header, layout->header_bytes, 0));
    return sync_file(w);
}

static tsr_status give_name(writer *w)
{
    if (faulty("rename") || rename(w->partial, w->path) != 0)
        return fail_call(errno, "replace", w->path);
    w->made = false;
    return sync_folder(w);
}

static tsr_status write_file(writer *w, tsr_stream *stream, int count,
                             const tsr_checkpoint_entry *entries, tsr__checkpoint_layout *layout,
                             const bool *mine, uint32_t *states)
{
    tsr_status status = w->rank == 0 ? make_file(w, layout) : TSR_OK;
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    status = w->rank == 0 ? TSR_OK : join_file(w, layout);
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    status = write_parts(w, stream, count, entries, layout, mine, states);
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    if (w->checksums) {
        TSR__TRY(tsr__checkpoint_combine(w->comm, who, count, states));
        status = w->rank == 0 ? write_checksums(w, count, entries, layout, states) : TSR_OK;
        TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    }
    status = w->rank == 0 ? give_name(w) : TSR_OK;
    return tsr__checkpoint_agree(w->comm, who, status);
}

/* Checks that ranks agree ------------------------------------------------------------------------
 */

static uint64_t hash_entry(const tsr_checkpoint_entry *entry)
{
    /* A shard_dim of -1 means that the part is the full tensor, which is all of dimension 0. */
    const int64_t dim = entry->shard_dim < 0 ? 0 : entry->shard_dim;
    const int64_t kind[3] = {(int64_t)entry->dtype, entry->ndim, dim};
    uint64_t hash = tsr__hash(TSR__HASH_START, entry->name, strlen(entry->name) + 1);
    hash = tsr__hash(hash, kind, sizeof kind);
    return tsr__hash(hash, entry->shape, (size_t)entry->ndim * sizeof *entry->shape);
}

static tsr_status compare_entries(int count, const tsr_checkpoint_entry *entries,
                                  const uint64_t *first)
{
    for (int i = 0; i < count; i++) {
        const tsr_checkpoint_entry *e = &entries[i];
        char shape[TSR_SHAPE_TEXT];
        TSR__REQUIRE(hash_entry(e) == first[i],
                     "%s: entry %d, '%s' %s %s with shard_dim %d, is different on rank 0", who, i,
                     e->name, tsr__checkpoint_dtype(e->dtype),
                     tsr_shape_format(e->ndim, e->shape, shape, sizeof shape), e->shard_dim);
    }
    return TSR_OK;
}

static tsr_status check_same(tsr_comm *comm, int count, const tsr_checkpoint_entry *entries)
{
    if (!comm || tsr_comm_size(comm) == 1)
        return TSR_OK;
    int32_t first_count = count;
    TSR__TRY(tsr_comm_broadcast(comm, &first_count, 1, TSR_I32, 0));
    tsr_status status = TSR_OK;
    if (count != first_count)
        status = tsr__fail(TSR_ERR_INVALID, "%s: %d entries, but rank 0 has %d", who, count,
                           (int)first_count);
    TSR__TRY(tsr__checkpoint_agree(comm, who, status));
    uint64_t *hashes = tsr__calloc((size_t)count, sizeof *hashes);
    status = tsr__checkpoint_agree(comm, who, hashes ? TSR_OK : TSR_ERR_NO_MEMORY);
    for (int i = 0; i < count && status == TSR_OK; i++)
        hashes[i] = hash_entry(&entries[i]);
    if (status == TSR_OK)
        status = tsr_comm_broadcast(comm, hashes, (uint64_t)count, TSR_I64, 0);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(comm, who, compare_entries(count, entries, hashes));
    tsr__free(hashes);
    return status;
}

/* Saving --------------------------------------------------------------------------------------- */

/* Finds the file to replace or create, and follows symbolic links. Only a regular file may be
 * replaced. Replacing a device, for example, would remove the device for all programs. */
static tsr_status find_file(const char *path, writer *w)
{
    struct stat info;
    if (faulty("lstat") || lstat(path, &info) != 0) {
        /* If the folder is missing, a later step fails when it creates the file. */
        if (errno != ENOENT && errno != ENOTDIR)
            return fail_call(errno, "look at", path);
        w->path = tsr__strdup(path);
        return w->path ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    char *real = NULL;
    if (S_ISLNK(info.st_mode)) {
        real = faulty("realpath") ? NULL : realpath(path, NULL);
        if (!real || faulty("stat") || stat(real, &info) != 0) {
            tsr_status status = fail_call(errno, "follow", path);
            free(real);
            return status;
        }
    }
    w->path = tsr__strdup(real ? real : path);
    free(real);
    if (!w->path)
        return TSR_ERR_NO_MEMORY;
    if (!S_ISREG(info.st_mode))
        return tsr__fail(TSR_ERR_IO, "%s: %s is not a regular file", who, path);
    return TSR_OK;
}

static tsr_status name_files(writer *w)
{
    static const char ending[] = ".partial";
    const char *path = w->path, *slash = tsr__path_last_separator(path);
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    w->partial = tsr__calloc(strlen(path) + sizeof ending, 1);
    w->folder = tsr__calloc(folder + 2, 1);
    if (!w->partial || !w->folder)
        return TSR_ERR_NO_MEMORY;
    memcpy(w->partial, path, strlen(path));
    memcpy(w->partial + strlen(path), ending, sizeof ending);
    memcpy(w->folder, folder ? path : ".", folder ? folder : 1);
    return TSR_OK;
}

static tsr_status save(writer *w, const char *path, tsr_stream *stream, int count,
                       const tsr_checkpoint_entry *entries, const char *const *metadata)
{
    tsr__checkpoint_layout layout = {0};
    bool *mine = NULL;
    uint32_t *states = NULL;
    tsr_status status = tsr__checkpoint_check(who, path, stream, true, count, entries);
    if (status == TSR_OK)
        status = find_file(path, w);
    if (status == TSR_OK)
        status = name_files(w);
    if (status == TSR_OK && (mine = tsr__calloc((size_t)count, sizeof *mine)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && (states = tsr__calloc((size_t)count, sizeof *states)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__checkpoint_lay_out(who, count, entries, metadata, w->checksums, &layout);
    status = tsr__checkpoint_agree(w->comm, who, status);
    if (status == TSR_OK)
        status = check_same(w->comm, count, entries);
    if (status == TSR_OK)
        status =
            tsr__checkpoint_same(w->comm, who, "the metadata are",
                                 tsr__hash(TSR__HASH_START, layout.header, layout.header_bytes));
    if (status == TSR_OK)
        status = tsr__checkpoint_divide(w->comm, who, count, entries, mine);
    if (status == TSR_OK)
        status = write_file(w, stream, count, entries, &layout, mine, states);
    tsr__checkpoint_layout_finish(&layout);
    tsr__free(states);
    tsr__free(mine);
    return status;
}

/* Saves the entries of all stages. They are checked before they are merged. */
static tsr_status save_stages(writer *w, const char *path, tsr_stream *stream, int count,
                              const tsr_checkpoint_entry *entries,
                              const tsr_checkpoint_params *params)
{
    tsr__checkpoint_merged merged = {0};
    tsr_status status = tsr__checkpoint_check(who, path, stream, true, count, entries);
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    status = tsr__checkpoint_merge(params->stages, who, count, entries, &merged);
    status = tsr__checkpoint_agree(w->comm, who, status);
    if (status == TSR_OK)
        status = save(w, path, stream, merged.count, merged.entries, params->metadata);
    tsr__checkpoint_merged_finish(&merged);
    return status;
}

tsr_status tsr_checkpoint_save(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                               const tsr_checkpoint_entry *entries,
                               const tsr_checkpoint_params *params)
{
    writer w = {.comm = comm,
                .rank = comm ? tsr_comm_rank(comm) : 0,
                .checksums = !(params && params->no_checksums),
                .descriptor = -1};
    tsr_status status =
        params && params->stages
            ? save_stages(&w, path, stream, count, entries, params)
            : save(&w, path, stream, count, entries, params ? params->metadata : NULL);
    if (w.descriptor >= 0)
        close(w.descriptor);
    if (w.made)
        unlink(w.partial);
    tsr__free(w.path);
    tsr__free(w.partial);
    tsr__free(w.folder);
    return status;
}
