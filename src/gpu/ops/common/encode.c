#include "gpu/ops/common/encode.h"

#include <string.h>

/* Encodes a number in a float format with the given numbers of explicit mantissa bits and of
 * exponent bits. It uses integer arithmetic only. */
static uint64_t encode_float(double value, unsigned mantissa_bits, unsigned exponent_bits)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t sign = (bits >> 63) << (mantissa_bits + exponent_bits);
    uint64_t infinity = ((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits;
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff);
    if (exponent == 0x7ff)
        return sign | infinity | (mantissa != 0 ? UINT64_C(1) << (mantissa_bits - 1) : 0);

    exponent -= 1023 - ((1 << (exponent_bits - 1)) - 1);
    if (exponent >= (1 << exponent_bits) - 1)
        return sign | infinity;
    mantissa |= UINT64_C(1) << 52;
    /* the number of mantissa bits to round away; for subnormal numbers there are more */
    unsigned drop = 52 - mantissa_bits;
    if (exponent < 1) {
        drop += (unsigned)(1 - exponent);
        exponent = 1;
    }
    if (drop > 54)
        return sign;
    uint64_t kept = mantissa >> drop, rest = mantissa & ((UINT64_C(1) << drop) - 1);
    uint64_t half = UINT64_C(1) << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1));
    /* `kept` still has the mantissa's implicit bit. The addition turns it into 1 in the exponent
     * field, which therefore starts as exponent − 1. If rounding carries out of the mantissa, the
     * exponent also grows by 1. */
    return sign | (((uint64_t)(exponent - 1) << mantissa_bits) + kept);
}

static uint64_t encode_integer(double value, double low, double high, uint64_t low_bits,
                               uint64_t high_bits)
{
    if (value != value)
        return 0;
    if (value <= low)
        return low_bits;
    if (value >= high)
        return high_bits;
    return value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
}

uint64_t tsr__encode(double value, tsr_dtype dtype)
{
    switch (dtype) {
    case TSR_F32:
        return encode_float(value, 23, 8);
    case TSR_F16:
        return encode_float(value, 10, 5);
    case TSR_BF16:
        return encode_float(value, 7, 8);
    case TSR_I32:
        return encode_integer(value, INT32_MIN, INT32_MAX, 0x80000000, INT32_MAX) & UINT32_MAX;
    case TSR_U32:
        return encode_integer(value, 0, UINT32_MAX, 0, UINT32_MAX);
    case TSR_I64:
        return encode_integer(value, -0x1p63, 0x1p63, UINT64_C(1) << 63, INT64_MAX);
    default: /* TSR_U8: callers exclude block formats */
        return encode_integer(value, 0, UINT8_MAX, 0, UINT8_MAX);
    }
}
