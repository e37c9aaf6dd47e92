// Conversions between f32 and f16 or bf16, with the same bits on every device. The code has no
// branches, because CPU drivers execute both sides of a branch, and on some of them code after a
// branch is slow.
#ifndef TSR_FLOAT16_GLSL
#define TSR_FLOAT16_GLSL

// Converts an f32 to f16 bits, rounded to nearest even. It does not use the driver's conversion,
// because drivers may round differently. NaN stays NaN.
uint tsr_f16_from_f32(float value)
{
    uint bits = floatBitsToUint(value);
    uint magnitude = bits & 0x7fffffffu;
    uint normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    normal = min(normal, 0x7c00u); // 65520 and above round to infinity
    // Results below 2^-14 must be multiples of 2^-24. That is the distance between neighbouring f32
    // numbers from 0.5 to 1, so adding 0.5 rounds to such a multiple.
    precise float rounded = uintBitsToFloat(magnitude) + 0.5;
    uint subnormal = floatBitsToUint(rounded) - 0x3f000000u;
    uint result = mix(normal, subnormal, magnitude < 0x38800000u);
    result = mix(result, 0x7e00u, magnitude > 0x7f800000u);
    return ((bits >> 16) & 0x8000u) | result;
}

// Converts four numbers, without a loop, because glslc's optimizer drops `precise` when it unrolls
// a loop.
uvec4 tsr_f16_from_f32(vec4 value)
{
    return uvec4(tsr_f16_from_f32(value.x), tsr_f16_from_f32(value.y), tsr_f16_from_f32(value.z),
                 tsr_f16_from_f32(value.w));
}

// Converts f16 bits to f32 bits, exactly, including those of NaN.
uint tsr_widen_f16(uint bits)
{
    uint magnitude = bits & 0x7fffu;
    uint wide = (magnitude << 13) + 0x38000000u;
    // A subnormal number plus 2^-14 is a normal number, from which 2^-14 is subtracted.
    precise float small = uintBitsToFloat(0x38800000u | magnitude << 13) - uintBitsToFloat(0x38800000u);
    wide = mix(wide, floatBitsToUint(small), magnitude < 0x400u);
    wide = mix(wide, 0x7f800000u | magnitude << 13, magnitude >= 0x7c00u);
    return (bits & 0x8000u) << 16 | wide;
}

// 1: f16 numbers are widened by integer and f32 arithmetic, because the device's own conversion may
// replace subnormal numbers by 0. The id is known to src/gpu/pipeline/subnormals.c, which sets the
// value.
layout(constant_id = 100) const uint WIDEN_F16 = 0;

float tsr_f32_from_f16(uint bits)
{
    if (WIDEN_F16 != 0u)
        return uintBitsToFloat(tsr_widen_f16(bits));
    return unpackHalf2x16(bits).x;
}

// Converts the f16 in the low half and that in the high half of a word.
vec2 tsr_f32_from_f16_pair(uint pair)
{
    if (WIDEN_F16 != 0u)
        return uintBitsToFloat(uvec2(tsr_widen_f16(pair & 0xffffu), tsr_widen_f16(pair >> 16)));
    return unpackHalf2x16(pair);
}

uint tsr_bf16_from_f32(float value)
{
    uint bits = floatBitsToUint(value);
    uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return mix(rounded, (bits >> 16) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}

uvec4 tsr_bf16_from_f32(vec4 value)
{
    return uvec4(tsr_bf16_from_f32(value.x), tsr_bf16_from_f32(value.y), tsr_bf16_from_f32(value.z),
                 tsr_bf16_from_f32(value.w));
}

float tsr_f32_from_bf16(uint bits)
{
    return uintBitsToFloat(bits << 16);
}

#endif
