/* What a file is, by its contents. All functions that open models, checkpoints, plans and
 * tokenizers ask this before they read a file, so that an error says what the file is instead of
 * what its bytes would mean in another format. */
#ifndef TSR_SHARD_FORMATS_FILE_KIND_H
#define TSR_SHARD_FORMATS_FILE_KIND_H

#include "shard/formats/header_file.h"

typedef enum tsr__file_kind {
    TSR__FILE_UNKNOWN,
    TSR__FILE_GGUF,
    TSR__FILE_SAFETENSORS,
    TSR__FILE_JSON,          /* an object or an array */
    TSR__FILE_SENTENCEPIECE, /* a tokenizer.model */
    TSR__FILE_LLAMA2C,       /* a vocabulary of llama2.c, tok….bin */
} tsr__file_kind;

/* The number of bytes from the start of a file that tell its kind. */
#define TSR__FILE_KIND_BYTES 64

/* Returns the kind of a file of file_bytes bytes that begins with start[size], where `size` is
 * TSR__FILE_KIND_BYTES or, if it is shorter, the size of the file. */
tsr__file_kind tsr__file_kind_of(const uint8_t *start, uint64_t size, uint64_t file_bytes);

/* Reads the start of a file and determines its kind. Errors: TSR_ERR_IO. */
tsr_status tsr__file_kind_read(tsr__file *file, tsr__file_kind *out) TSR_NODISCARD;

/* Returns the kind for error texts, such as "a GGUF file". */
const char *tsr__file_kind_name(tsr__file_kind kind);

/* Fails if the file is of a known kind other than `kind`. Errors: TSR_ERR_INVALID, with the names
 * of both kinds; TSR_ERR_IO. */
tsr_status tsr__file_kind_expect(tsr__file *file, tsr__file_kind kind) TSR_NODISCARD;

#endif
