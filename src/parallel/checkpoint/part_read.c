/* Reading slices chunk by chunk. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "parallel/checkpoint/parts.h"
#include "json/text_check.h"

/* The most files that a rank keeps open. The usual limit of a process is 1024. */
#define MOST_OPEN 128

tsr_status tsr__part_reader_init(const char *who, const tsr__parts *parts, tsr__part_reader *out)
{
    *out = (tsr__part_reader){.who = who, .parts = parts};
    out->descriptors = tsr__calloc((size_t)parts->count, sizeof *out->descriptors);
    out->chunk = out->descriptors ? tsr__calloc(TSR__PART_CHUNK_BYTES, 1) : NULL;
    for (int i = 0; out->descriptors && i < parts->count; i++)
        out->descriptors[i] = -1;
    return out->chunk ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static void close_all(tsr__part_reader *reader)
{
    for (int i = 0; reader->descriptors && i < reader->parts->count; i++) {
        if (reader->descriptors[i] >= 0)
            close(reader->descriptors[i]);
        reader->descriptors[i] = -1;
    }
    reader->open = 0;
}

void tsr__part_reader_finish(tsr__part_reader *reader)
{
    close_all(reader);
    tsr__free(reader->descriptors);
    tsr__free(reader->chunk);
    *reader = (tsr__part_reader){0};
}

static tsr_status read_bytes(const tsr__part_reader *reader, int part, uint64_t at_bytes,
                             uint64_t size, void *out)
{
    for (uint64_t done = 0; done < size;) {
        const ssize_t got = pread(reader->descriptors[part], (uint8_t *)out + done, size - done,
                                  (off_t)(at_bytes + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return tsr__fail(TSR_ERR_IO, "%s: %s: cannot read at offset %" PRIu64 ": %s",
                             reader->who, reader->parts->paths[part], at_bytes + done,
                             got < 0 ? strerror(errno) : "the file has become shorter");
        done += (uint64_t)got;
    }
    return TSR_OK;
}

/* Checks that the header and size of the open file are those that were read before. */
static tsr_status check_header(const tsr__part_reader *reader, int part)
{
    const tsr__part *expected = &reader->parts->parts[part];
    struct stat info;
    char *header = tsr__calloc(expected->header_bytes, 1);
    if (!header)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = read_bytes(reader, part, 0, expected->header_bytes, header);
    if (status == TSR_OK &&
        (fstat(reader->descriptors[part], &info) != 0 ||
         (uint64_t)info.st_size != expected->size_bytes ||
         tsr__hash(TSR__HASH_START, header, expected->header_bytes) != expected->hash))
        status = tsr__fail(TSR_ERR_IO, "%s: %s has changed since its header was read", reader->who,
                           reader->parts->paths[part]);
    tsr__free(header);
    return status;
}

static tsr_status open_part(tsr__part_reader *reader, int part)
{
    if (reader->descriptors[part] >= 0)
        return TSR_OK;
    if (reader->open == MOST_OPEN)
        close_all(reader);
    const char *path = reader->parts->paths[part];
    reader->descriptors[part] = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (reader->descriptors[part] < 0)
        return tsr__fail(TSR_ERR_IO, "%s: cannot open %s: %s", reader->who, path, strerror(errno));
    reader->open++;
    return check_header(reader, part);
}

tsr_status tsr__part_reader_chunk(tsr__part_reader *reader, const tsr__slice *slice,
                                  uint64_t at_bytes, uint64_t size, uint32_t *state)
{
    char text[TSR__NAME_SHORT];
    TSR__TRY(open_part(reader, slice->part));
    TSR__TRY(read_bytes(reader, slice->part, slice->at_bytes + at_bytes, size, reader->chunk));
    if (!reader->parts->parts[slice->part].has_checksums)
        return TSR_OK;
    *state = tsr__crc32c_state(*state, reader->chunk, size);
    if (at_bytes + size < slice->size_bytes)
        return TSR_OK;
    const uint32_t sum = tsr__crc32c_of_state(*state, slice->size_bytes);
    TSR__REQUIRE(sum == slice->sum,
                 "%s: %s: the data of '%s' are damaged: their checksum is %08" PRIx32
                 ", not %08" PRIx32,
                 reader->who, reader->parts->paths[slice->part],
                 tsr__name_short(slice->of.name, text), sum, slice->sum);
    return TSR_OK;
}
