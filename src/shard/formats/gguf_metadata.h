/* Reads the metadata of GGUF files: a list of keys with values. The readers of weights and of
 * tokenizers share it. */
#ifndef TSR_SHARD_FORMATS_GGUF_METADATA_H
#define TSR_SHARD_FORMATS_GGUF_METADATA_H

#include <stdbool.h>

#include "shard/formats/header_file.h"

/* The numbers of the types of metadata values that callers need by name. The types 0 to 5, 10 and
 * 11 are integers. */
enum {
    TSR__GGUF_U32 = 4,
    TSR__GGUF_I32 = 5,
    TSR__GGUF_F32 = 6,
    TSR__GGUF_BOOL = 7,
    TSR__GGUF_STRING = 8,
    TSR__GGUF_ARRAY = 9,
    TSR__GGUF_F64 = 12
};

/* A reader at an offset, `at`, in the header of a file, and the last name that it has read. */
typedef struct tsr__gguf {
    tsr__file *file;
    uint64_t at;
    char name[TSR_SHARD_MAX_NAME + 1];
} tsr__gguf;

/* Reads the start of the file: the magic number, the version, and the numbers of tensors and of
 * keys. */
tsr_status tsr__gguf_head(tsr__gguf *gguf, uint64_t *tensors, uint64_t *metadata) TSR_NODISCARD;

/* Read bytes or an integer at the reader's offset, and move past them. `content` describes what is
 * read, for error texts. */
tsr_status tsr__gguf_take(tsr__gguf *gguf, uint64_t size, const char *content,
                          void *out) TSR_NODISCARD;
tsr_status tsr__gguf_u32(tsr__gguf *gguf, const char *content, uint32_t *out) TSR_NODISCARD;
tsr_status tsr__gguf_u64(tsr__gguf *gguf, const char *content, uint64_t *out) TSR_NODISCARD;
/* Reads a name into gguf->name: not empty, UTF-8, no control characters, at most
 * TSR_SHARD_MAX_NAME bytes. */
tsr_status tsr__gguf_name(tsr__gguf *gguf, const char *content) TSR_NODISCARD;
/* Reads a string of any bytes into text[capacity], and adds a zero byte. */
tsr_status tsr__gguf_string(tsr__gguf *gguf, const char *content, size_t capacity, char *text,
                            size_t *size) TSR_NODISCARD;
/* Skips a value. It is an error if the file does not contain all of it. */
tsr_status tsr__gguf_skip(tsr__gguf *gguf, uint32_t type) TSR_NODISCARD;

/* A key that the caller looks up in the metadata, and the type, number and place of its values. */
typedef struct tsr__gguf_value {
    const char *key;
    bool found, is_array;
    uint32_t type;  /* type of the value, or of the elements of an array */
    uint64_t count; /* the number of elements; 1 if the value is not an array */
    uint64_t at;    /* where the value, or the first element, starts in the file */
} tsr__gguf_value;

/* Reads the metadata and fills in `values`, whose keys the caller has set. The file contains all
 * bytes of the values that are found. It is an error if the metadata contains one of these keys
 * twice. Sets file->what. */
tsr_status tsr__gguf_find(tsr__file *file, tsr__gguf_value *values, size_t count) TSR_NODISCARD;

/* All keys of a file's metadata, so that they can be looked up after the header has been read. {0}
 * has none. */
typedef struct tsr__gguf_keys {
    struct tsr__gguf_value *items; /* [count]; each owns its key */
    size_t count, capacity;
} tsr__gguf_keys;

/* Adds the key gguf->name, whose value has this type and starts at the reader's offset. Errors:
 * TSR_ERR_INVALID if there are TSR_SHARD_MAX_PARAMS already. */
tsr_status tsr__gguf_keys_add(tsr__gguf_keys *keys, const tsr__gguf *gguf,
                              uint32_t type) TSR_NODISCARD;
void tsr__gguf_keys_finish(tsr__gguf_keys *keys);
/* Fills in `values` as tsr__gguf_find does, without reading the file, which must be the one whose
 * keys these are. */
tsr_status tsr__gguf_look_up(tsr__file *file, const tsr__gguf_keys *keys, tsr__gguf_value *values,
                             size_t count) TSR_NODISCARD;

/* Checks that a value that was found is an array of this type; `wanted` names it, as in "an array
 * of strings". */
tsr_status tsr__gguf_check_array(tsr__file *file, const tsr__gguf_value *value, uint32_t type,
                                 const char *wanted) TSR_NODISCARD;

/* Read a value that tsr__gguf_find has found. A value of another type is an error. */
tsr_status tsr__gguf_integer(tsr__file *file, const tsr__gguf_value *value,
                             int64_t *out) TSR_NODISCARD;
/* Reads a float, or an integer, which is converted. */
tsr_status tsr__gguf_real(tsr__file *file, const tsr__gguf_value *value, double *out) TSR_NODISCARD;
tsr_status tsr__gguf_bool(tsr__file *file, const tsr__gguf_value *value, bool *out) TSR_NODISCARD;
tsr_status tsr__gguf_name_of(tsr__file *file, const tsr__gguf_value *value,
                             char name[TSR_SHARD_MAX_NAME + 1]) TSR_NODISCARD;

#endif
