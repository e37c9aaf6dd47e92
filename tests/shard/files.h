/* Builds model files byte by byte, as their specifications say. */
#ifndef TESTS_SHARD_FILES_H
#define TESTS_SHARD_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check_main.h"

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static inline void put_bytes(bytes *to, const void *data, size_t size)
{
    /* Copies the bytes to memory of exactly this size, so that sanitizers detect reads past the
     * end. */
    to->data = realloc(to->data, to->size + size > 0 ? to->size + size : 1);
    ck_assert_ptr_nonnull(to->data);
    if (size > 0)
        memcpy(to->data + to->size, data, size);
    to->size += size;
}

/* Appends an integer in little-endian order. */
static inline void put_integer(bytes *to, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        put_bytes(to, &(uint8_t){(uint8_t)(value >> (8 * i))}, 1);
}

static inline void put_zeros(bytes *to, size_t size)
{
    if (size == 0)
        return;
    to->data = realloc(to->data, to->size + size);
    ck_assert_ptr_nonnull(to->data);
    memset(to->data + to->size, 0, size);
    to->size += size;
}

/* Returns a file that consists of a header and `weights` zero bytes; free(result.data). */
static inline bytes safetensors_file(const char *header, size_t weights)
{
    bytes file = {0};
    put_integer(&file, strlen(header), 8);
    put_bytes(&file, header, strlen(header));
    put_zeros(&file, weights);
    return file;
}

/* Appends a GGUF string: a length of 8 bytes, and the text. */
static inline void put_text(bytes *to, const char *text)
{
    put_integer(to, strlen(text), 8);
    put_bytes(to, text, strlen(text));
}

static inline void put_gguf_head(bytes *to, uint32_t version, uint64_t tensors, uint64_t metadata)
{
    put_bytes(to, "GGUF", 4);
    put_integer(to, version, 4);
    put_integer(to, tensors, 8);
    put_integer(to, metadata, 8);
}

/* Appends a tensor of two dimensions, of which the contiguous one comes first. */
static inline void put_gguf_tensor(bytes *to, const char *name, uint64_t columns, uint64_t rows,
                                   uint32_t type, uint64_t offset)
{
    put_text(to, name);
    put_integer(to, 2, 4);
    put_integer(to, columns, 8);
    put_integer(to, rows, 8);
    put_integer(to, type, 4);
    put_integer(to, offset, 8);
}

/* A temporary folder of the test, and files in it. */
typedef struct folder {
    char path[64];
} folder;

static inline folder folder_create(void)
{
    folder made;
    strcpy(made.path, "/tmp/tessera-shard-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(made.path));
    return made;
}

/* Writes a file; returns `path`, which becomes the file's path. */
static inline char *folder_write(const folder *in, const char *name, const void *data, size_t size,
                                 char path[160])
{
    snprintf(path, 160, "%s/%s", in->path, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

static inline void folder_destroy(const folder *in)
{
    tests_remove(in->path);
}

#endif
