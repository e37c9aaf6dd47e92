/* Properties of dtypes that are not in the public header. */
#ifndef TSR_TENSOR_DTYPE_H
#define TSR_TENSOR_DTYPE_H

#include "tessera/layout.h"
#include "tessera/quant.h"

#define TSR__MAX_DTYPE TSR_TQ2_0 /* the largest number of a dtype */

/* Returns whether this is a floating-point dtype that tensors can have. */
static inline bool tsr__dtype_is_float(tsr_dtype dtype)
{
    return dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16;
}

/* Returns whether elements of this dtype are in blocks (quant.h). Their layouts count elements, as
 * all layouts do, and consist of whole blocks along the last dimension. */
static inline bool tsr__dtype_is_block(tsr_dtype dtype)
{
    return tsr_quant_format_of(dtype) != NULL;
}

/* Returns whether a cache of keys and values can have this block format, which attention reads. */
static inline bool tsr__dtype_is_cached_block(tsr_dtype dtype)
{
    return dtype == TSR_Q8_0 || dtype == TSR_Q4_0;
}

/* Returns the number of elements in a block of this dtype, or 1 if its elements are not in
 * blocks. */
static inline uint64_t tsr__dtype_block(tsr_dtype dtype)
{
    const tsr_quant_format *format = tsr_quant_format_of(dtype);
    return format != NULL ? (uint64_t)format->block_count : 1;
}

/* Returns the size in bytes of tsr__dtype_block elements, or 0 if tensors cannot have the dtype. */
static inline uint64_t tsr__dtype_block_bytes(tsr_dtype dtype)
{
    const tsr_quant_format *format = tsr_quant_format_of(dtype);
    return format != NULL ? (uint64_t)format->block_bytes : tsr_dtype_size(dtype);
}

/* Returns the size in bytes of `elements` elements, which must be whole blocks. */
static inline uint64_t tsr__dtype_bytes(tsr_dtype dtype, uint64_t elements)
{
    return elements / tsr__dtype_block(dtype) * tsr__dtype_block_bytes(dtype);
}

/* Returns a u8 layout of the bytes of a layout in blocks. Each row of blocks becomes a row of
 * bytes. Copies and the overlap test can then treat the bytes like elements of any other dtype. */
tsr_layout tsr__layout_of_bytes(const tsr_layout *layout);

#endif
