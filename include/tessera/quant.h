/* Block-quantised weights: the formats of GGUF files, and conversions of rows in host memory.
 *
 * A format stores blocks of `block_count` consecutive elements in `block_bytes` bytes: small
 * integers, one per element, and scales that they share. A row is a whole number of blocks, and
 * rows follow each other without gaps. Bytes and values are those of llama.cpp's reference
 * functions, bit for bit, on any machine. The functions are thread-safe and need no device. */
#ifndef TESSERA_QUANT_H
#define TESSERA_QUANT_H

#include "tessera/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_quant_format {
    tsr_dtype dtype;
    const char *name; /* as tsr_dtype_name and lists of parameters (shard.h) spell it: "q4_k" */
    int block_count;  /* elements of a block */
    int block_bytes;  /* bytes of a block */
    int gguf_type;    /* the number of the type in GGUF files */
    bool quantizes;   /* tsr_quantize supports the format; tsr_dequantize supports all */
} tsr_quant_format;

/* Returns the format of a dtype, or NULL if the dtype is not a block format. */
TSR_API const tsr_quant_format *tsr_quant_format_of(tsr_dtype dtype);
/* Returns block format number `index`, counted from 0, or NULL past the last one. For listing all
 * formats. */
TSR_API const tsr_quant_format *tsr_quant_format_at(int index);

/* Gives the bytes of `count` elements: of a row of `count` columns, or of any number of whole rows.
 * Errors: TSR_ERR_INVALID (dtype, negative count, count not a multiple of block_count),
 * TSR_ERR_OVERFLOW if the bytes do not fit 63 bits. */
TSR_API TSR_NODISCARD tsr_status tsr_quant_bytes(tsr_dtype dtype, int64_t count, uint64_t *out);

/* Converts `count` elements to blocks. `size_bytes`, the size of `blocks`, must be what
 * tsr_quant_bytes gives. A block depends only on its own elements.
 *
 * Errors: TSR_ERR_UNSUPPORTED if the format cannot be written (see `quantizes`); TSR_ERR_INVALID
 * (dtype, sizes; an element that is NaN or infinite; a block so large that its scale or minimum
 * does not fit the f16 in which it is stored), naming the element. On failure the contents of
 * `blocks` are unspecified. */
TSR_API TSR_NODISCARD tsr_status tsr_quantize(tsr_dtype dtype, const float *values, int64_t count,
                                              void *blocks, uint64_t size_bytes);

/* Converts `count` elements from blocks. `size_bytes` must be what tsr_quant_bytes gives; `blocks`
 * may have any alignment. A scale that is infinite or NaN gives infinite or NaN elements, which is
 * not an error. Errors: TSR_ERR_INVALID (dtype, sizes); `values` is then unchanged. */
TSR_API TSR_NODISCARD tsr_status tsr_dequantize(tsr_dtype dtype, const void *blocks,
                                                uint64_t size_bytes, float *values, int64_t count);

#ifdef __cplusplus
}
#endif

#endif
