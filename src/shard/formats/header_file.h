/* Reads the beginning of a file, which contains its header. The bytes come from memory, or are read
 * with pread, TSR__FILE_WINDOW at a time; the weights are never read. The file is not mapped into
 * memory, because reading a mapping raises a signal if the file has become shorter. */
#ifndef TSR_SHARD_FORMATS_HEADER_FILE_H
#define TSR_SHARD_FORMATS_HEADER_FILE_H

#include "base/error.h"
#include "tessera/shard.h"
#include "json/text_check.h"

/* The maximum size of a header in bytes. It limits how much a file from an adversary can make the
 * library read and allocate. */
#define TSR__MAX_HEADER UINT64_C(100000000)

#define TSR__FILE_WINDOW 65536

typedef struct tsr__file {
    const char *what; /* error texts start with it, for example "gguf" */
    tsr__subject subject;
    uint64_t size; /* the file's total size in bytes */
    /* the beginning of the file in memory; NULL if the file is read from `descriptor` */
    const uint8_t *data;
    uint64_t data_size;
    int descriptor;
    /* a buffer of TSR__FILE_WINDOW bytes, which contains the bytes of the file from window_at on */
    uint8_t *window;
    uint64_t window_at, window_size;
} tsr__file;

/* Opens a regular file. Errors: TSR_ERR_NOT_FOUND, TSR_ERR_IO, TSR_ERR_NO_MEMORY, and
 * TSR_ERR_INVALID if it is not a regular file. */
tsr_status tsr__file_open(const char *path, tsr__file *out) TSR_NODISCARD;
void tsr__file_close(tsr__file *file);

/* Copies the bytes from `offset` to offset + size − 1 to `out`. `content` describes these bytes for
 * error texts. Errors: TSR_ERR_INVALID if some of the bytes are outside the file, with a text that
 * contains the offset and `content`; TSR_ERR_IO. */
tsr_status tsr__file_read(tsr__file *file, uint64_t offset, uint64_t size, const char *content,
                          void *out) TSR_NODISCARD;

/* Does the same as tsr__file_read, but allocates the memory, which the caller must free. A zero
 * byte follows the bytes. */
tsr_status tsr__file_load(tsr__file *file, uint64_t offset, uint64_t size, const char *content,
                          char **out) TSR_NODISCARD;

/* Records the error "what: offset N: subject: …". */
tsr_status tsr__file_fail(const tsr__file *file, tsr_status status, uint64_t offset,
                          const char *format, ...) TSR__PRINTF(4, 5);

/* Reads a little-endian integer of `size` bytes. */
static inline uint64_t tsr__little_endian(const uint8_t *from, int size)
{
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | from[i];
    return value;
}

#endif
