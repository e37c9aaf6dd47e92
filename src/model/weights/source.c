#include "model/weights/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
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

tsr_status tsr__weight_source_read_open(const tsr__weight_source *s, const tsr_shard_param *param,
                                        uint64_t at, uint64_t size, void *out)
{
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
