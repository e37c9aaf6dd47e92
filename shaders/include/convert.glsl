// Conversions between all dtypes. They use integer arithmetic, so that all devices give the same
// bits, including devices without 64-bit integers, those that flush subnormal numbers to 0, and
// those that round differently. Elements are raw bits as in elements.glsl.
#ifndef TSR_CONVERT_GLSL
#define TSR_CONVERT_GLSL

#include "include/tessera.glsl"

bool tsr_is_float(uint dtype)
{
    return dtype == TSR_DT_F32 || dtype == TSR_DT_F16 || dtype == TSR_DT_BF16;
}

// Converts the bits of a float dtype to f32 bits, exactly.
uint tsr_widen_float(uint bits, uint dtype)
{
    if (dtype == TSR_DT_BF16)
        return bits << 16;
    return dtype == TSR_DT_F16 ? tsr_widen_f16(bits) : bits;
}

uint tsr_narrow_float(uint bits, uint dtype)
{
    if (dtype == TSR_DT_F16)
        return tsr_f16_from_f32(uintBitsToFloat(bits));
    if (dtype == TSR_DT_BF16)
        return tsr_bf16_from_f32(uintBitsToFloat(bits));
    return bits;
}

uvec2 tsr_negate64(uvec2 value)
{
    return uvec2(~value.x + 1u, ~value.y + uint(value.x == 0u));
}

// Converts f32 bits to a 64-bit integer. The value is truncated and saturated; NaN becomes 0.
uvec2 tsr_i64_from_f32(uint bits)
{
    int exponent = int(bits >> 23 & 0xffu) - 127;
    uint mantissa = (bits & 0x7fffffu) | 0x800000u;
    bool negative = (bits & 0x80000000u) != 0u;
    if ((bits & 0x7fffffffu) > 0x7f800000u || exponent < 0)
        return uvec2(0u);
    if (exponent >= 63)
        return negative ? uvec2(0u, 0x80000000u) : uvec2(0xffffffffu, 0x7fffffffu);
    uvec2 value;
    if (exponent <= 23)
        value = uvec2(mantissa >> (23 - exponent), 0u);
    else if (exponent < 55) // the shift is 1 … 31
        value = uvec2(mantissa << (exponent - 23), mantissa >> (55 - exponent));
    else
        value = uvec2(0u, mantissa << (exponent - 55));
    return negative ? tsr_negate64(value) : value;
}

// Limits a 64-bit integer to the range of a narrower integer dtype. For i64 it stays as it is.
uvec2 tsr_saturate_i64(uvec2 value, uint dtype)
{
    bool negative = (value.y & 0x80000000u) != 0u;
    switch (dtype) {
    case TSR_DT_I32:
        if (int(value.y) != int(value.x) >> 31)
            return uvec2(negative ? 0x80000000u : 0x7fffffffu, 0u);
        break;
    case TSR_DT_U32:
        if (value.y != 0u)
            return uvec2(negative ? 0u : 0xffffffffu, 0u);
        break;
    case TSR_DT_U8:
        if (negative)
            return uvec2(0u);
        if (value.y != 0u || value.x > 0xffu)
            return uvec2(0xffu, 0u);
        break;
    }
    return value;
}

// Converts a 64-bit integer to f32 bits. If `round` is set, the value is rounded to nearest even.
// Otherwise it is truncated, for a caller that rounds the result to a 16-bit float: the lowest bit
// of the result is then set if any dropped bit was set, so that the caller's rounding takes the
// dropped bits into account.
uint tsr_f32_from_i64(uvec2 value, bool round)
{
    uint sign = value.y & 0x80000000u;
    if (sign != 0u)
        value = tsr_negate64(value);
    if (value.x == 0u && value.y == 0u)
        return 0u;
    // Shifts the value so that its highest set bit is bit 63.
    int top = value.y != 0u ? findMSB(value.y) + 32 : findMSB(value.x);
    int up = 63 - top;
    if (up >= 32)
        value = uvec2(0u, value.x << (up - 32));
    else if (up > 0)
        value = uvec2(value.x << up, value.y << up | value.x >> (32 - up));
    uint mantissa = value.y >> 8;
    // `rest` has the eight bits below the mantissa: 0x80 is half of its last place. `more` says
    // that one of the bits below `rest` is set.
    uint rest = value.y & 0xffu;
    bool more = value.x != 0u;
    if (round)
        mantissa += uint(rest > 0x80u || (rest == 0x80u && (more || (mantissa & 1u) == 1u)));
    else
        mantissa |= uint(rest != 0u || more);
    // A mantissa that is rounded up to 2^24 correctly carries into the exponent.
    return sign | ((uint(top + 126) << 23) + mantissa);
}

uvec2 tsr_widen_integer(uvec2 bits, uint dtype)
{
    return dtype == TSR_DT_I32 ? uvec2(bits.x, uint(int(bits.x) >> 31)) : bits;
}

// Converts an integer to a narrower dtype by keeping its low bits.
uvec2 tsr_narrow_integer(uvec2 bits, uint dtype)
{
    return dtype == TSR_DT_U8 ? uvec2(bits.x & 0xffu, 0u) : bits;
}

uvec2 tsr_convert(uvec2 bits, uint from, uint to)
{
    if (from == to)
        return bits;
    if (tsr_is_float(from)) {
        uint wide = tsr_widen_float(bits.x, from);
        if (tsr_is_float(to))
            return uvec2(tsr_narrow_float(wide, to), 0u);
        return tsr_saturate_i64(tsr_i64_from_f32(wide), to);
    }
    uvec2 integer = tsr_widen_integer(bits, from);
    if (tsr_is_float(to))
        return uvec2(tsr_narrow_float(tsr_f32_from_i64(integer, to == TSR_DT_F32), to), 0u);
    return tsr_narrow_integer(integer, to);
}

#endif
