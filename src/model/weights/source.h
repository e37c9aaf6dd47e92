/* The bytes of a model's tensors: read from its files, of which one is open at a time, or
 * generated. */
#ifndef TSR_MODEL_WEIGHTS_SOURCE_H
#define TSR_MODEL_WEIGHTS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/weights/files.h"

typedef struct tsr__weight_source {
    const char *who; /* the start of error texts; static storage */
    const tsr__model_files *files;
    const char *open_file;
    int descriptor;      /* -1: no file is open */
    uint64_t read_bytes; /* bytes of tensors that have been read so far */
} tsr__weight_source;

void tsr__weight_source_init(const char *who, const tsr__model_files *files,
                             tsr__weight_source *out);
void tsr__weight_source_finish(tsr__weight_source *source);

/* Reads `size` bytes of a tensor from byte `at` on. Errors: TSR_ERR_IO naming the file or the
 * tensor, TSR_ERR_NO_MEMORY. */
tsr_status tsr__weight_source_read(tsr__weight_source *source, const tsr_shard_param *param,
                                   uint64_t at, uint64_t size, void *out) TSR_NODISCARD;

/* tsr__weight_source_read in two steps, so that several threads can read from the open file.
 * Opening a file closes the one that was open. tsr__weight_source_read_open does not count bytes in
 * read_bytes. */
bool tsr__weight_source_is_open(const tsr__weight_source *source, const tsr_shard_param *param);
tsr_status tsr__weight_source_open(tsr__weight_source *source,
                                   const tsr_shard_param *param) TSR_NODISCARD;
tsr_status tsr__weight_source_read_open(const tsr__weight_source *source,
                                        const tsr_shard_param *param, uint64_t at, uint64_t size,
                                        void *out) TSR_NODISCARD;

/* Replaces staging memory that has less than `count` elements of `size` bytes. *have is the number
 * of its elements. The old contents are lost. */
tsr_status tsr__need_staging(void **memory, size_t *have, size_t count, size_t size) TSR_NODISCARD;
tsr_status tsr__need_bytes(uint8_t **memory, size_t *have, size_t count) TSR_NODISCARD;
tsr_status tsr__need_floats(float **memory, size_t *have, size_t count) TSR_NODISCARD;

#endif
