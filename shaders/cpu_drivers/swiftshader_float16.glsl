// f16 and bf16 to f32 on SwiftShader, by pairs that share a word: exactly what float16.glsl makes of them, in a third of the time.
//
// SwiftShader multiplies and converts vectors, but shifts lane by lane, by constants too. A constant takes two instructions, a
// selection four, of which most go through the stack; min() is one.
#ifndef TSR_SWIFTSHADER_FLOAT16_GLSL
#define TSR_SWIFTSHADER_FLOAT16_GLSL

#include "include/tessera.glsl"

// The f32 of an f16: `sign` is its first bit, in place, and `magnitude` the 15 others, with the mantissa where an f32's begins.
//
// x is 2^112 times the f16: exponents are 224 higher than an f16's, so that its infinities and NaN are f32's, and 112 higher than they
// should be. A subnormal f16 has got the first bit that it lacks, and is 2^97 · (1 + mantissa) instead of 2^98 · mantissa: 2·x - 2^98 is
// right. No number on the way is subnormal, which SwiftShader takes for 0.
float tsr_f16_at(uint magnitude, uint sign)
{
    precise float x = uintBitsToFloat(magnitude | 0x70000000u);
    precise float below = x - uintBitsToFloat(0x70800000u);
    x += min(below, 0.0);
    x *= uintBitsToFloat(0x07800000u);
    return uintBitsToFloat(floatBitsToUint(x) | sign);
}

vec2 tsr_floats_from_f16(uint pair)
{
    return vec2(tsr_f16_at((pair & 0x7fffu) * 0x2000u, (pair & 0x8000u) * 0x10000u),
                tsr_f16_at(uint(int(float(int(pair & 0x7fff0000u)) * 0.125)), pair & 0x80000000u));
}

vec2 tsr_floats_from_bf16(uint pair)
{
    return uintBitsToFloat(uvec2(pair * 0x10000u, pair & 0xffff0000u));
}

vec2 tsr_floats_from(uint pair, uint dtype)
{
    return dtype == TSR_DT_F16 ? tsr_floats_from_f16(pair) : tsr_floats_from_bf16(pair);
}

// Element i at any even address: as the second of a pair.
float tsr_float_at(uvec2 base, uint i, uint dtype)
{
    uvec2 at = tsr_at(base, 2 * i);
    uint pair = tsr_words(uvec2(at.x & ~3u, at.y)).v[0];
    return tsr_floats_from(pair * mix(0x10000u, 1u, (at.x & 2u) != 0), dtype).y;
}

#endif
