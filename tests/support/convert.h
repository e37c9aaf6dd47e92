/* The reference for conversions between dtypes, from element bits to element bits via exact
 * doubles. */
#ifndef TESTS_SUPPORT_CONVERT_H
#define TESTS_SUPPORT_CONVERT_H

#include <math.h>

#include "support/gpu.h"

static inline bool is_nan_bits(uint64_t bits, tsr_dtype dtype)
{
    return (dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16) &&
           isnan(gpu_value(bits, dtype));
}

/* Returns the value of an integer dtype's bits. */
static inline int64_t integer_value(uint64_t bits, tsr_dtype dtype)
{
    return dtype == TSR_I64 ? (int64_t)bits : (int64_t)gpu_value(bits, dtype);
}

/* Returns a double that rounds to every narrower float as `value` does. If `value` has more than 53
 * bits, the lost bits only set the last bit. */
static inline double double_of(int64_t value)
{
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint64_t kept = magnitude >> 11 | ((magnitude & 0x7ff) != 0);
    double wide = magnitude >> 53 ? ldexp((double)kept, 11) : (double)magnitude;
    return value < 0 ? -wide : wide;
}

static inline uint64_t convert_bits(uint64_t bits, tsr_dtype from, tsr_dtype to)
{
    if (from == to)
        return bits;
    bool from_float = from == TSR_F32 || from == TSR_F16 || from == TSR_BF16;
    bool to_float = to == TSR_F32 || to == TSR_F16 || to == TSR_BF16;
    if (from_float)
        return gpu_bits(gpu_value(bits, from), to);
    if (to_float)
        return gpu_bits(double_of(integer_value(bits, from)), to);
    uint64_t kept = (uint64_t)integer_value(bits, from);
    return tsr_dtype_size(to) == 8 ? kept : kept & ((UINT64_C(1) << 8 * tsr_dtype_size(to)) - 1);
}

#endif
