/* Numbers in 8 bits, for slow connections. `count` elements are packed in whole blocks of TSR_Q8_0,
 * as tsr_quantize makes them. The last four bytes of the last block are not elements but a factor,
 * an f32 that is a power of two: the elements are the values of the blocks times the factor. It is
 * chosen so that the largest element of the tensor is near the largest value that a block can hold.
 * Without it, small gradients would become 0, because scales of blocks are f16. If an element is
 * NaN or infinite, the factor is NaN, and so are all values.
 *
 * Two blocks are 17 words of 32 bits. The number of blocks is even, and the number of words is
 * tsr__packed_words. This header contains no Vulkan types, so that parallel/ can include it. */
#ifndef TSR_GPU_QUANT_PACK_H
#define TSR_GPU_QUANT_PACK_H

#include "tessera/stream.h"

/* The number of 32-bit words for `count` packed elements; 0 if there are none. */
int64_t tsr__packed_words(int64_t count);

/* Records packing x, a contiguous tensor of f32, f16 or bf16, to y, contiguous and u32
 * [tsr__packed_words]. On every device, the bytes are those that the host would write, with one
 * exception: if a block's scale is subnormal in f32, so that it is 0 in f16, all elements of the
 * block are 0. */
tsr_status tsr__pack(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x) TSR_NODISCARD;

/* Records y = the sum of `contributions` packed tensors that follow each other in x, contiguous and
 * u32. y is contiguous, and f32, f16 or bf16. The sum is computed in f32, in this order, and
 * rounded once to y's dtype. */
tsr_status tsr__unpack_sum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                           int contributions) TSR_NODISCARD;

#endif
