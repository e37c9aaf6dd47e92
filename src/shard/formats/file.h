/* The beginning of a file, from memory or read piece by piece with pread, so that weights are never
 * read. The file is not mapped, because reading a mapping raises a signal if the file has become
 * shorter. */
#ifndef TSR_SHARD_FORMATS_FILE_H
#define TSR_SHARD_FORMATS_FILE_H

#include "base/error.h"
#include "tessera/shard.h"
#include "json/text.h"

/* The largest header in bytes. It limits what a hostile file can make the library read and
 * allocate. */
#define TSR__MAX_HEADER UINT64_C(100000000)

#define TSR__FILE_WINDOW 65536

typedef struct tsr__file {
    const char *what; /* the start of error texts: "gguf" */
    tsr__subject subject;
    uint64_t size;       /* of the whole file */
    const uint8_t *data; /* the beginning of the file; NULL: it is read from `descriptor` */
    uint64_t data_size;
    int descriptor;
    uint8_t *window; /* TSR__FILE_WINDOW bytes of the file at window_at */
    uint64_t window_at, window_size;
} tsr__file;

/* Opens a regular file. Errors: TSR_ERR_NOT_FOUND, TSR_ERR_IO, TSR_ERR_INVALID for anything but a
 * regular file, TSR_ERR_NO_MEMORY. */
tsr_status tsr__file_open(const char *path, tsr__file *out) TSR_NODISCARD;
void tsr__file_close(tsr__file *file);

/* Copies bytes at … at + size − 1 to `out`. `part` says what they are, for error texts. Errors:
 * TSR_ERR_INVALID for bytes outside the file, naming the offset and `part`; TSR_ERR_IO. */
tsr_status tsr__file_read(tsr__file *file, uint64_t at, uint64_t size, const char *part,
                          void *out) TSR_NODISCARD;

/* The same, into new memory, which the caller must free. A zero byte follows the bytes. */
tsr_status tsr__file_load(tsr__file *file, uint64_t at, uint64_t size, const char *part,
                          char **out) TSR_NODISCARD;

/* Records the error "what: offset N: subject: …". */
tsr_status tsr__file_fail(const tsr__file *file, tsr_status status, uint64_t at, const char *format,
                          ...) TSR__PRINTF(4, 5);

/* Reads a little-endian integer of `size` bytes. */
static inline uint64_t tsr__little_endian(const uint8_t *bytes, int size)
{
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

#endif
