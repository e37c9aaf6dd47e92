// Converts f16 and bf16 to f32 on SwiftShader, in pairs that share a word. The results have the
// same bits as those of float16.glsl and take a third of the time.
//
// SwiftShader multiplies and converts all lanes of a vector at once, but shifts lane by lane, even
// by constants. A constant takes two instructions, and min() takes one. A selection takes four,
// most of which go through the stack.
#ifndef TSR_SWIFTSHADER_FLOAT16_GLSL
#define TSR_SWIFTSHADER_FLOAT16_GLSL

#include "include/tessera.glsl"

// Converts an f16 to f32. `sign` is its sign bit, shifted to an f32's; `magnitude` is its 15 other
// bits, shifted so that its mantissa starts where an f32's does.
//
// x is 2^112 times the f16: its exponent is 224 higher than the f16's, which makes infinities and
// NaN those of an f32, and 112 higher than it should be. A subnormal f16 has gained an implicit
// first bit and is 2^97 · (1 + mantissa) instead of 2^98 · mantissa, so that 2·x − 2^98 is right.
// No intermediate result is subnormal, because SwiftShader treats subnormals as 0.
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

// Loads element i of an array at any even address, and converts it as the second element of a pair.
float tsr_float_at(uvec2 base, uint i, uint dtype)
{
    uvec2 at = tsr_at(base, 2 * i);
    uint pair = tsr_words(uvec2(at.x & ~3u, at.y)).v[0];
    return tsr_floats_from(pair * mix(0x10000u, 1u, (at.x & 2u) != 0), dtype).y;
}

#endif
