// Loads indices of i32, i64, u32 or u8.
#ifndef TSR_INDEX_GLSL
#define TSR_INDEX_GLSL

#include "include/rows.glsl"

const uint TSR_NO_INDEX = 0xffffffffu;

// Loads element i. Returns TSR_NO_INDEX if the index does not fit 32 bits. Negative indices become
// numbers that are larger than any size.
uint tsr_load_index(uvec2 base, uint i, uvec2 stride, uint size_bytes)
{
    uvec2 at = tsr_at_stride(base, i, stride);
    if (size_bytes == 1u)
        return tsr_load_u8(at, 0u);
    uint index = tsr_words(at).v[0];
    if (size_bytes == 8u && tsr_words(at).v[1] != 0u)
        index = TSR_NO_INDEX;
    return index;
}

#endif
