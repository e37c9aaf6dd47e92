#include "model/weights/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/weights/mxfp4.h"
#include "model/weights/random.h"

void tsr__weight_source_init(const char *who, const tsr__model_files *files,
                             tsr__weight_source *out)
{
    *out = (tsr__weight_source){.who = who, .files = files, .descriptor = -1};
}

void tsr__weight_source_finish(tsr__weight_source *s)
{
    if (s->descriptor >= 0)
        close(s->descriptor);
    s->descriptor = -1;
    s->open_file = NULL;
}

bool tsr__weight_source_is_open(const tsr__weight_source *s, const tsr_shard_param *param)
{
    return s->files->random ||
           (s->descriptor >= 0 &&
            (s->open_file == param->file ||
             (s->open_file && param->file && strcmp(s->open_file, param->file) == 0)));
}

tsr_status tsr__weight_source_open(tsr__weight_source *s, const tsr_shard_param *param)
{
    if (tsr__weight_source_is_open(s, param))
        return TSR_OK;
    tsr__weight_source_finish(s);
    char *path = tsr__model_files_path(s->files, param);
    if (!path)
        return TSR_ERR_NO_MEMORY;
    s->descriptor = open(path, O_RDONLY | O_CLOEXEC);
    tsr_status status = TSR_OK;
    if (s->descriptor < 0)
        status = tsr__fail(TSR_ERR_IO, "%s: %s: %s", s->who, path, strerror(errno));
    s->open_file = param->file;
    tsr__free(path);
    return status;
}

static tsr_status read_file(const tsr__weight_source *s, const tsr_shard_param *param, uint64_t at,
                            uint64_t size, void *out)
{
    for (uint64_t done = 0; done < size;) {
        const ssize_t got = pread(s->descriptor, (char *)out + done, size - done,
                                  (off_t)(param->offset_bytes + at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tsr__fail(TSR_ERR_IO, "%s: cannot read tensor %s: %s", s->who, param->name,
                             strerror(errno));
        if (got == 0)
            return tsr__fail(TSR_ERR_IO,
                             "%s: the file has become shorter: tensor %s ends after %" PRIu64
                             " of %" PRIu64 " bytes",
                             s->who, param->name, at + done, param->size_bytes);
        done += (uint64_t)got;
    }
    return TSR_OK;
}

/* Reads whole blocks of a matrix in MXFP4, whose scales may be in another file than its blocks. */
static tsr_status read_joined(const tsr__weight_source *s, const tsr_shard_param *param,
                              const tsr__joined *pair, uint64_t at, uint64_t size, uint8_t *out)
{
    const tsr_shard_param *items = s->files->list->params.items, *scales = &items[pair->scales];
    const uint64_t block = param->block_bytes, first = at / block, count = size / block;
    uint8_t few[256], *bytes = few;
    tsr__weight_source other;
    TSR__REQUIRE(at % block == 0 && size % block == 0, "%s: tensor %s is read in parts of blocks",
                 s->who, param->name);
    TSR__TRY(read_file(s, &items[pair->blocks], first * 16, count * 16, out + count));
    if (count > sizeof few)
        bytes = tsr__calloc(count, 1);
    if (!bytes)
        return TSR_ERR_NO_MEMORY;
    tsr__weight_source_init(s->who, s->files, &other);
    tsr_status status = TSR_OK;
    const bool same = tsr__weight_source_is_open(s, scales);
    if (!same)
        status = tsr__weight_source_open(&other, scales);
    if (status == TSR_OK)
        status = read_file(same ? s : &other, scales, first, count, bytes);
    tsr__weight_source_finish(&other);
    if (status == TSR_OK)
        tsr__mxfp4_from_pair(out, bytes, count);
    if (bytes != few)
        tsr__free(bytes);
    return status;
}

tsr_status tsr__weight_source_read_open(const tsr__weight_source *s, const tsr_shard_param *param,
                                        uint64_t at, uint64_t size, void *out)
{
    const tsr__joined *pair = tsr__mxfp4_pair(s->files, param);
    if (pair)
        return read_joined(s, param, pair, at, size, out);
    if (!s->files->random)
        return read_file(s, param, at, size, out);
    tsr__random_read(s->files->random, param, at, size, out);
    return TSR_OK;
}

tsr_status tsr__weight_source_read(tsr__weight_source *s, const tsr_shard_param *param, uint64_t at,
                                   uint64_t size, void *out)
{
    TSR__TRY(tsr__weight_source_open(s, param));
    TSR__TRY(tsr__weight_source_read_open(s, param, at, size, out));
    s->read_bytes += size;
    return TSR_OK;
}

tsr_status tsr__need_staging(void **memory, size_t *have, size_t count, size_t size)
{
    if (*have >= count)
        return TSR_OK;
    tsr__free(*memory);
    *have = 0;
    *memory = tsr__calloc(count, size);
    if (!*memory)
        return TSR_ERR_NO_MEMORY;
    *have = count;
    return TSR_OK;
}

tsr_status tsr__need_bytes(uint8_t **memory, size_t *have, size_t count)
{
    void *bytes = *memory;
    const tsr_status status = tsr__need_staging(&bytes, have, count, 1);
    *memory = bytes; /* after a failure it is NULL, because the old memory has been freed */
    return status;
}

tsr_status tsr__need_floats(float **memory, size_t *have, size_t count)
{
    void *floats = *memory;
    const tsr_status status = tsr__need_staging(&floats, have, count, sizeof(float));
    *memory = floats;
    return status;
}
