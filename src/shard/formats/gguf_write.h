/* Builds the header of a GGUF file in memory: metadata, and the tensors' descriptions. The caller
 * writes the header, and then the weights at the offsets from tsr__gguf_put_tensor. */
#ifndef TSR_SHARD_FORMATS_GGUF_WRITE_H
#define TSR_SHARD_FORMATS_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tessera/shard.h"

#define TSR__GGUF_ALIGNMENT 32 /* the alignment of the weights in bytes */

/* A header that is being built. {0} is an empty header. */
typedef struct tsr__gguf_writer {
    tsr__bytes metadata, tensors;
    uint64_t metadata_count, tensor_count;
    uint64_t weights_bytes; /* where the next tensor starts, from the start of the weights */
} tsr__gguf_writer;

void tsr__gguf_writer_finish(tsr__gguf_writer *writer);

/* Add a key with a value. Strings may contain any bytes. The caller adds each key once. Errors:
 * TSR_ERR_NO_MEMORY. */
tsr_status tsr__gguf_put_u32(tsr__gguf_writer *writer, const char *key,
                             uint32_t value) TSR_NODISCARD;
tsr_status tsr__gguf_put_f32(tsr__gguf_writer *writer, const char *key, float value) TSR_NODISCARD;
tsr_status tsr__gguf_put_bool(tsr__gguf_writer *writer, const char *key, bool value) TSR_NODISCARD;
tsr_status tsr__gguf_put_string(tsr__gguf_writer *writer, const char *key, const char *text,
                                size_t size) TSR_NODISCARD;
/* Adds a key with an array of `count` elements. The caller then adds the elements: strings with
 * tsr__gguf_put_element_string, values of 4 bytes with tsr__gguf_put_element_bits. */
tsr_status tsr__gguf_put_array(tsr__gguf_writer *writer, const char *key, uint32_t type,
                               uint64_t count) TSR_NODISCARD;
tsr_status tsr__gguf_put_element_string(tsr__gguf_writer *writer, const char *text,
                                        size_t size) TSR_NODISCARD;
tsr_status tsr__gguf_put_element_bits(tsr__gguf_writer *writer, uint32_t bits) TSR_NODISCARD;
tsr_status tsr__gguf_put_element_bool(tsr__gguf_writer *writer, bool value) TSR_NODISCARD;

/* Adds a tensor. Uses only the members name, dtype, ndim and shape of `param`. Gives the tensor's
 * size, and its offset from the start of the weights. Errors: TSR_ERR_UNSUPPORTED for a dtype that
 * GGUF does not have, those of tsr__param_resolve, TSR_ERR_NO_MEMORY. */
tsr_status tsr__gguf_put_tensor(tsr__gguf_writer *writer, const tsr_shard_param *param,
                                uint64_t *offset, uint64_t *size_bytes) TSR_NODISCARD;

/* Gives the complete header. Its size is a multiple of the alignment, so that the weights can
 * follow it. The caller must free it. Errors: TSR_ERR_INVALID if it is longer than readers accept,
 * TSR_ERR_NO_MEMORY. */
tsr_status tsr__gguf_header(const tsr__gguf_writer *writer, uint8_t **out,
                            size_t *size) TSR_NODISCARD;

#endif
