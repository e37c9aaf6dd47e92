#include "shard/formats/header_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"

tsr_status tsr__file_fail(const tsr__file *file, tsr_status status, uint64_t offset,
                          const char *format, ...)
{
    char reason[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return tsr__fail(status, "%s: offset %" PRIu64 ": %s%s", file->what, offset, file->subject.text,
                     reason);
}

tsr_status tsr__file_open(const char *path, tsr__file *out)
{
    struct stat info;
    tsr__file file = {.what = "shard"};
    /* Open with O_NONBLOCK. Otherwise opening a pipe would block before the
     * function can reject it. */
    file.descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file.descriptor < 0)
        return tsr__fail(errno == ENOENT || errno == ENOTDIR ? TSR_ERR_NOT_FOUND : TSR_ERR_IO,
                         "shard: cannot open %s: %s", path, strerror(errno));
    tsr_status status = TSR_OK;
    if (fstat(file.descriptor, &info) != 0)
        status = tsr__fail(TSR_ERR_IO, "shard: cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = tsr__fail(TSR_ERR_INVALID, "shard: %s is not a regular file", path);
    else if ((file.window = tsr__calloc(TSR__FILE_WINDOW, 1)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    if (status != TSR_OK) {
        close(file.descriptor);
        return status;
    }
    file.size = (uint64_t)info.st_size;
    *out = file;
    return TSR_OK;
}

void tsr__file_close(tsr__file *file)
{
    if (file->data == NULL)
        close(file->descriptor);
    tsr__free(file->window);
    *file = (tsr__file){.descriptor = -1};
}

static tsr_status read_descriptor(tsr__file *file, uint64_t offset, uint64_t size, void *out)
{
    uint64_t done = 0;
    while (done < size) {
        ssize_t got =
            pread(file->descriptor, (char *)out + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tsr__fail(TSR_ERR_IO, "%s: cannot read at offset %" PRIu64 ": %s", file->what,
                             offset + done, strerror(errno));
        if (got == 0)
            return tsr__fail(TSR_ERR_IO, "%s: the file has become shorter than %" PRIu64 " bytes",
                             file->what, file->size);
        done += (uint64_t)got;
    }
    return TSR_OK;
}

static tsr_status check_inside(const tsr__file *file, uint64_t offset, uint64_t size,
                               const char *content)
{
    if (offset > file->size || size > file->size - offset)
        return tsr__file_fail(file, TSR_ERR_INVALID, offset,
                              "the file of %" PRIu64 " bytes ends within %s", file->size, content);
    if (file->data != NULL && (offset > file->data_size || size > file->data_size - offset))
        return tsr__file_fail(file, TSR_ERR_INVALID, offset,
                              "only %" PRIu64 " bytes of the file are given, which end within %s",
                              file->data_size, content);
    return TSR_OK;
}

tsr_status tsr__file_read(tsr__file *file, uint64_t offset, uint64_t size, const char *content,
                          void *out)
{
    TSR__TRY(check_inside(file, offset, size, content));
    if (size == 0)
        return TSR_OK;
    if (file->data != NULL) {
        memcpy(out, file->data + offset, size);
        return TSR_OK;
    }
    if (size > TSR__FILE_WINDOW)
        return read_descriptor(file, offset, size, out);
    if (offset < file->window_at || offset + size > file->window_at + file->window_size) {
        file->window_size = 0;
        uint64_t wanted = tsr__min_u64(TSR__FILE_WINDOW, file->size - offset);
        TSR__TRY(read_descriptor(file, offset, wanted, file->window));
        file->window_at = offset;
        file->window_size = wanted;
    }
    memcpy(out, file->window + (offset - file->window_at), size);
    return TSR_OK;
}

tsr_status tsr__file_load(tsr__file *file, uint64_t offset, uint64_t size, const char *content,
                          char **out)
{
    TSR__TRY(check_inside(file, offset, size, content));
    char *memory = tsr__calloc(size + 1, 1);
    if (memory == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__file_read(file, offset, size, content, memory);
    if (status != TSR_OK) {
        tsr__free(memory);
        return status;
    }
    *out = memory;
    return TSR_OK;
}
