/* The beginning of a file: from memory, or read piece by piece, so that weights are never touched.
 * pread rather than a mapping, which would be a signal if the file became shorter meanwhile. */
#ifndef TSR_SHARD_FORMATS_FILE_H
#define TSR_SHARD_FORMATS_FILE_H

#include "base/error.h"
#include "tessera/shard.h"
#include "json/text.h"

/* No header may be larger, so that no file makes us read or allocate without end. */
#define TSR__MAX_HEADER UINT64_C(100000000)

#define TSR__FILE_WINDOW 65536

typedef struct tsr__file {
    const char *what; /* what the errors start with: "gguf" */
    tsr__subject subject;
    uint64_t size;       /* of the whole file */
    const uint8_t *data; /* the beginning of the file; NULL when there is a descriptor */
    uint64_t data_size;
    int descriptor;
    uint8_t *window; /* TSR__FILE_WINDOW bytes of the file at window_at */
    uint64_t window_at, window_size;
} tsr__file;

/* Opens a regular file. Errors: TSR_ERR_NOT_FOUND, TSR_ERR_IO, TSR_ERR_INVALID for something that
 * is no file, TSR_ERR_NO_MEMORY. */
tsr_status tsr__file_open(const char *path, tsr__file *out) TSR_NODISCARD;
void tsr__file_close(tsr__file *file);

/* Bytes at … at + size − 1 into `out`. Errors: TSR_ERR_INVALID when they are outside, naming the
 * offset and `part`, what they are; TSR_ERR_IO. */
tsr_status tsr__file_read(tsr__file *file, uint64_t at, uint64_t size, const char *part,
                          void *out) TSR_NODISCARD;

/* The same in memory of its own, which the caller frees; a zero byte follows. */
tsr_status tsr__file_load(tsr__file *file, uint64_t at, uint64_t size, const char *part,
                          char **out) TSR_NODISCARD;

/* "what: offset N: subject: …". */
tsr_status tsr__file_fail(const tsr__file *file, tsr_status status, uint64_t at, const char *format,
                          ...) TSR__PRINTF(4, 5);

/* Little-endian integers. */
static inline uint64_t tsr__little_endian(const uint8_t *bytes, int size)
{
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

#endif
