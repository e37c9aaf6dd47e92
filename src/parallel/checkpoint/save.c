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
#include "base/hash.h"
#include "base/struct_size.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/output.h"
#include "parallel/checkpoint/parts.h"

static const char who[] = "checkpoint_save";

typedef struct writer {
    tsr_comm *comm;
    int rank;
    bool checksums;
    tsr__checksum checksum; /* the checksum of this rank's region of the current tensor */
    tsr__checkpoint_output file;
} writer;

static tsr_status write_bytes(void *user, uint64_t at_bytes, uint64_t size, void *data)
{
    writer *w = user;
    if (w->checksums)
        tsr__checksum_add(&w->checksum, at_bytes, size, data);
    return tsr__checkpoint_output_write(&w->file, data, size, at_bytes);
}

/* The file ------------------------------------------------------------------------------------- */

/* On rank 0, creates the file with its header. */
static tsr_status make_file(writer *w, const tsr__checkpoint_layout *layout)
{
    TSR__TRY(tsr__checkpoint_output_create(&w->file, layout->size_bytes));
    return tsr__checkpoint_output_write(&w->file, layout->header, layout->header_bytes, 0);
}

/* On the other ranks, opens the file that rank 0 has created. Checks its size and header, to make
 * sure that it is the same file. */
static tsr_status join_file(writer *w, const tsr__checkpoint_layout *layout)
{
    struct stat info;
    w->file.descriptor = tsr__checkpoint_output_faulty("open")
                             ? -1
                             : open(w->file.partial, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (w->file.descriptor < 0)
        return tsr__fail(TSR_ERR_IO, "%s: cannot open %s, which rank 0 has created: %s", who,
                         w->file.partial, strerror(errno));
    char *header = tsr__calloc(layout->header_bytes, 1);
    if (!header)
        return TSR_ERR_NO_MEMORY;
    ssize_t got = pread(w->file.descriptor, header, layout->header_bytes, 0);
    bool same = fstat(w->file.descriptor, &info) == 0 &&
                (uint64_t)info.st_size == layout->size_bytes && got >= 0 &&
                (uint64_t)got == layout->header_bytes &&
                memcmp(header, layout->header, layout->header_bytes) == 0;
    tsr__free(header);
    if (!same)
        return tsr__fail(TSR_ERR_IO, "%s: %s is not the file that rank 0 has created", who,
                         w->file.partial);
    return TSR_OK;
}

/* Writes the regions for which mine[count] is true, and sets their states[count], the states of the
 * checksums. Both arrays are in the order of the entries. */
static tsr_status write_regions(writer *w, tsr_stream *stream, int count,
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
        TSR__TRY(tsr__checkpoint_transfer(stream, &entries[i], layout->at_bytes[i], true,
                                          write_bytes, w));
        states[i] = tsr__checksum_state(&w->checksum);
    }
    return tsr__checkpoint_output_sync(&w->file);
}

static tsr_status write_file(writer *w, tsr_stream *stream, int count,
                             const tsr_checkpoint_entry *entries, tsr__checkpoint_layout *layout,
                             const bool *mine, uint32_t *states)
{
    tsr_status status = w->rank == 0 ? make_file(w, layout) : TSR_OK;
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    status = w->rank == 0 ? TSR_OK : join_file(w, layout);
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    status = write_regions(w, stream, count, entries, layout, mine, states);
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    if (w->checksums) {
        TSR__TRY(tsr__checkpoint_combine(w->comm, who, count, states));
        status =
            w->rank == 0 ? tsr__checksums_put(&w->file, count, entries, layout, states) : TSR_OK;
        TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    }
    status = w->rank == 0 ? tsr__checkpoint_output_commit(&w->file) : TSR_OK;
    return tsr__checkpoint_agree(w->comm, who, status);
}

/* Saving --------------------------------------------------------------------------------------- */

/* Finds the file to replace or create, and follows symbolic links. Only a regular file may be
 * replaced. Replacing a device, for example, would remove the device for all programs. */
static tsr_status find_file(const char *path, writer *w)
{
    static const char ending[] = ".partial";
    struct stat info;
    if (tsr__checkpoint_output_faulty("lstat") || lstat(path, &info) != 0) {
        /* If the folder is missing, a later step fails when it creates the file. */
        if (errno != ENOENT && errno != ENOTDIR)
            return tsr__checkpoint_output_fail(who, errno, "look at", path);
        return tsr__checkpoint_output_init(&w->file, who, path, ending);
    }
    char *real = NULL;
    if (S_ISLNK(info.st_mode)) {
        real = tsr__checkpoint_output_faulty("realpath") ? NULL : realpath(path, NULL);
        if (!real || tsr__checkpoint_output_faulty("stat") || stat(real, &info) != 0) {
            tsr_status status = tsr__checkpoint_output_fail(who, errno, "follow", path);
            free(real);
            return status;
        }
    }
    tsr_status status = tsr__checkpoint_output_init(&w->file, who, real ? real : path, ending);
    free(real);
    TSR__TRY(status);
    if (!S_ISREG(info.st_mode))
        return tsr__fail(TSR_ERR_IO, "%s: %s is not a regular file", who, path);
    return TSR_OK;
}

static tsr_status check_arguments(const char *path, const tsr_stream *stream, int count,
                                  const tsr_checkpoint_entry *entries, const char *const *metadata)
{
    for (int i = 0; metadata && metadata[i]; i += 2) {
        TSR__REQUIRE(strcmp(metadata[i], TSR__PART_KEY) != 0,
                     "%s: the metadata '%s' is written by the library", who, metadata[i]);
        TSR__REQUIRE(metadata[i + 1], "%s: the metadata '%s' has no text", who, metadata[i]);
    }
    return tsr__checkpoint_check(who, path, stream, true, count, entries);
}

static tsr_status save_one_file(writer *w, const char *path, tsr_stream *stream, int count,
                                const tsr_checkpoint_entry *entries, const char *const *metadata)
{
    tsr__checkpoint_layout layout = {0};
    bool *mine = NULL;
    uint32_t *states = NULL;
    tsr_status status = check_arguments(path, stream, count, entries, metadata);
    if (status == TSR_OK)
        status = find_file(path, w);
    if (status == TSR_OK && (mine = tsr__calloc((size_t)count, sizeof *mine)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && (states = tsr__calloc((size_t)count, sizeof *states)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__checkpoint_lay_out(who, count, entries, metadata, w->checksums, &layout);
    status = tsr__checkpoint_agree(w->comm, who, status);
    if (status == TSR_OK)
        status = tsr__checkpoint_same_entries(w->comm, who, count, entries);
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

static tsr_status save_parts(const writer *w, const char *path, tsr_stream *stream, int count,
                             const tsr_checkpoint_entry *entries, const char *const *metadata)
{
    tsr_status status = check_arguments(path, stream, count, entries, metadata);
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    return tsr__parts_save(path, w->comm, stream, count, entries, metadata, w->checksums);
}

static tsr_status save_any(writer *w, const char *path, tsr_stream *stream, int count,
                           const tsr_checkpoint_entry *entries, const tsr_checkpoint_params *params)
{
    if (params->parts)
        return save_parts(w, path, stream, count, entries, params->metadata);
    return save_one_file(w, path, stream, count, entries, params->metadata);
}

/* Saves the entries of all stages. They are checked before they are merged. */
static tsr_status save_stages(writer *w, const char *path, tsr_stream *stream, int count,
                              const tsr_checkpoint_entry *entries,
                              const tsr_checkpoint_params *params)
{
    tsr__checkpoint_merged merged = {0};
    tsr_status status = check_arguments(path, stream, count, entries, params->metadata);
    TSR__TRY(tsr__checkpoint_agree(w->comm, who, status));
    status = tsr__checkpoint_merge(params->stages, who, count, entries, &merged);
    status = tsr__checkpoint_agree(w->comm, who, status);
    if (status == TSR_OK)
        status = save_any(w, path, stream, merged.count, merged.entries, params);
    tsr__checkpoint_merged_finish(&merged);
    return status;
}

tsr_status tsr_checkpoint_save(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                               const tsr_checkpoint_entry *entries,
                               const tsr_checkpoint_params *params)
{
    void *taken = NULL;
    TSR__TAKE(tsr_checkpoint_params, params);
    TSR__TRY(tsr__checkpoint_take(count, &entries, &taken));
    writer w = {.comm = comm,
                .rank = comm ? tsr_comm_rank(comm) : 0,
                .checksums = !params->skip_checksums,
                .file.descriptor = -1};
    tsr_status status = params->stages ? save_stages(&w, path, stream, count, entries, params)
                                       : save_any(&w, path, stream, count, entries, params);
    tsr__checkpoint_output_finish(&w.file);
    tsr__free(taken);
    return status;
}
