/* Converts tensors in block formats to floats, on the device. */
#ifndef TSR_GPU_QUANT_DEQUANTIZE_H
#define TSR_GPU_QUANT_DEQUANTIZE_H

#include "gpu/stream/stream.h"
#include "shaders/params/quant.h"

/* Writes the specialization constants that describe a block format to shaders. */
void tsr__quant_describe(tsr_dtype dtype, uint32_t spec[TSR_QUANT_SPECS]);

/* True for the formats with blocks of 32 elements that matmul_blocks.comp reads. The blocks consist
 * of an f16 scale and then the bits of the elements, which take a multiple of 4 bytes. */
bool tsr__quant_is_scaled_words(tsr_dtype dtype);

/* How matmul_blocks.comp reads a format with blocks of 256 elements. */
typedef enum tsr__quant_large {
    TSR__QUANT_NOT_LARGE, /* it does not */
    /* in vectors, because scales and planes start at multiples of 16 bytes in a block: q4_k, q5_k
     */
    TSR__QUANT_VECTORS,
    TSR__QUANT_STAGED /* through shared memory: q6_k */
} tsr__quant_large;
tsr__quant_large tsr__quant_large_planes(tsr_dtype dtype);

/* True for all formats that matmul_blocks.comp reads. */
bool tsr__quant_has_chunks(tsr_dtype dtype);

/* Records y = x, where x is in blocks and y is a float tensor of the same shape. y's strides may
 * have any values. */
tsr_status tsr__dequantize(tsr_stream *stream, const tsr_tensor *y,
                           const tsr_tensor *x) TSR_NODISCARD;

/* Records y[i,:] = x[indices[i] - first,:], or zeros if x does not have that row. The tensors are y
 * [n,width], x [rows,width] in blocks, and indices [n]. */
tsr_status tsr__dequantize_rows(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *x,
                                const tsr_tensor *indices, int64_t first) TSR_NODISCARD;

#endif
