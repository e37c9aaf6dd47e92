/* Converts f16 and bf16 to f32 and back. The functions have no branches, so that the compiler can
 * vectorise loops of them. Conversions from f32 round to the nearest value, and to the even one of
 * two equally near values. They turn a NaN into a quiet NaN of the same sign, as
 * shaders/include/float16.glsl does. A conversion to f16 removes the NaN's payload, a conversion to
 * bf16 removes its lower half. */
#ifndef TSR_BASE_FLOAT16_H
#define TSR_BASE_FLOAT16_H

#include <stdint.h>
#include <string.h>

#define TSR__NAN_F32 0x7fc00000u
#define TSR__NAN_F16 0x7e00u
#define TSR__NAN_BF16 0x7fc0u

static inline float tsr__f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t tsr__bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns `value`, or the positive quiet NaN whose payload is 0 if `value` is any NaN. */
static inline float tsr__tidy_f32(float value)
{
    return value == value ? value : tsr__f32_of_bits(TSR__NAN_F32);
}

static inline float tsr__f32_of_f16(uint16_t half)
{
    const uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16;
    /* The exponent bias of f32 is larger by 112 than that of f16. Infinity and NaN need another
     * 112, so that their exponent has all bits set. */
    uint32_t bits = (magnitude << 13) + (112u << 23);
    bits += magnitude >= 0x7c00u ? 112u << 23 : 0u;
    /* A subnormal f16 needs another formula. An f32 with the exponent of 2^-14 and this mantissa is
     * normal, and its value is 2^-14 plus the value of the f16. Subtracting 2^-14 is exact. */
    const uint32_t small =
        tsr__bits_of_f32(tsr__f32_of_bits(0x38800000u + (magnitude << 13)) - 0x1p-14f);
    bits = magnitude < 0x400u ? small : bits;
    return tsr__f32_of_bits(bits | sign);
}

static inline uint16_t tsr__f16_of_f32(float value)
{
    const uint32_t pattern = tsr__bits_of_f32(value), magnitude = pattern & 0x7fffffffu;
    const uint32_t moved = magnitude - (112u << 23);
    uint32_t bits = (moved + 0xfffu + (moved >> 13 & 1u)) >> 13;
    /* If the result is a subnormal f16, add 0.5 to the magnitude. The last bit of the f32 sum has
     * the same value as the last bit of the f16 result, so the addition does the rounding. */
    const uint32_t small =
        tsr__bits_of_f32(tsr__f32_of_bits(magnitude) + 0.5f) - tsr__bits_of_f32(0.5f);
    bits = magnitude < 0x38800000u ? small : bits;
    bits = magnitude >= 0x477ff000u ? 0x7c00u : bits; /* values from 65520 on become infinity */
    bits = magnitude > 0x7f800000u ? TSR__NAN_F16 : bits;
    return (uint16_t)(bits | (pattern >> 16 & 0x8000u));
}

static inline float tsr__f32_of_bf16(uint16_t half)
{
    return tsr__f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t tsr__bf16_of_f32(float value)
{
    const uint32_t pattern = tsr__bits_of_f32(value);
    const uint32_t bits = (pattern + 0x7fffu + (pattern >> 16 & 1u)) >> 16;
    return (uint16_t)((pattern & 0x7fffffffu) > 0x7f800000u ? pattern >> 16 | 0x40u : bits);
}

#endif
