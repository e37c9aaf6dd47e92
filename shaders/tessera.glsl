// What every kernel shares: memory by address, elements of any dtype, conversions whose bits agree on every device.
//
// A dtype is a specialization constant: the driver folds the branches on it, and one shader serves every mixture of
// dtypes. Only the way to reach memory below 32 bits changes the SPIR-V, so only that is a variant of the build
// (TSR_STORAGE16): native 8- and 16-bit storage, or packed 32-bit words for devices without.
#ifndef TSR_TESSERA_GLSL
#define TSR_TESSERA_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#if TSR_STORAGE16
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#endif

#include "params/types.h"

layout(buffer_reference, std430, buffer_reference_align = 4) buffer tsr_words {
    uint v[];
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer tsr_words2 {
    uvec2 v[];
};
layout(buffer_reference, std430, buffer_reference_align = 16) buffer tsr_words4 {
    uvec4 v[];
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer tsr_floats {
    float v[];
};
layout(buffer_reference, std430, buffer_reference_align = 16) buffer tsr_floats4 {
    vec4 v[];
};
#if TSR_STORAGE16
layout(buffer_reference, std430, buffer_reference_align = 2) buffer tsr_halves {
    uint16_t v[];
};
layout(buffer_reference, std430, buffer_reference_align = 1) buffer tsr_bytes {
    uint8_t v[];
};
#endif

// Workgroups are laid out in x and y by tsr__groups_for(); this is their number in one line.
uint tsr_flat_group()
{
    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

// A macro, since it has to be expanded behind the shader's local_size: before that, gl_WorkGroupSize is 1 for glslang.
#define tsr_flat_invocation() (tsr_flat_group() * gl_WorkGroupSize.x + gl_LocalInvocationID.x)

// base + bytes, in 64 bits.
uvec2 tsr_at(uvec2 base, uint bytes)
{
    uint carry;
    uint low = uaddCarry(base.x, bytes, carry);
    return uvec2(low, base.y + carry);
}

// base + count·size, in 64 bits throughout.
uvec2 tsr_at_mul(uvec2 base, uint count, uint size)
{
    uint high, low, carry;
    umulExtended(count, size, high, low);
    low = uaddCarry(base.x, low, carry);
    return uvec2(low, base.y + high + carry);
}

// The 16-bit element i of an array at a 2-byte aligned address.
uint tsr_load_u16(uvec2 base, uint i)
{
#if TSR_STORAGE16
    return uint(tsr_halves(base).v[i]);
#else
    uvec2 at = tsr_at(base, 2 * i);
    uint word = tsr_words(uvec2(at.x & ~3u, at.y)).v[0];
    return (word >> ((at.x & 2u) * 8u)) & 0xffffu;
#endif
}

// Two invocations may own the two halves of one word, so the packed variant stores with atomics.
void tsr_store_u16(uvec2 base, uint i, uint bits)
{
#if TSR_STORAGE16
    tsr_halves(base).v[i] = uint16_t(bits);
#else
    uvec2 at = tsr_at(base, 2 * i);
    uint shift = (at.x & 2u) * 8u;
    tsr_words word = tsr_words(uvec2(at.x & ~3u, at.y));
    atomicAnd(word.v[0], ~(0xffffu << shift));
    atomicOr(word.v[0], (bits & 0xffffu) << shift);
#endif
}

uint tsr_load_u8(uvec2 base, uint i)
{
#if TSR_STORAGE16
    return uint(tsr_bytes(base).v[i]);
#else
    uvec2 at = tsr_at(base, i);
    uint word = tsr_words(uvec2(at.x & ~3u, at.y)).v[0];
    return (word >> ((at.x & 3u) * 8u)) & 0xffu;
#endif
}

void tsr_store_u8(uvec2 base, uint i, uint bits)
{
#if TSR_STORAGE16
    tsr_bytes(base).v[i] = uint8_t(bits);
#else
    uvec2 at = tsr_at(base, i);
    uint shift = (at.x & 3u) * 8u;
    tsr_words word = tsr_words(uvec2(at.x & ~3u, at.y));
    atomicAnd(word.v[0], ~(0xffu << shift));
    atomicOr(word.v[0], (bits & 0xffu) << shift);
#endif
}

// Bits of f32 rounded to nearest even, in integers because drivers are free to round their own way. NaN stays NaN.
uint tsr_f16_from_f32(float value)
{
    uint bits = floatBitsToUint(value);
    uint sign = (bits >> 16) & 0x8000u;
    uint magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return sign | 0x7e00u;
    if (magnitude >= 0x477ff000u) // 65520 and above round to infinity
        return sign | 0x7c00u;
    if (magnitude < 0x38800000u) { // below 2^-14: subnormal, in steps of 2^-24
        uint exponent = magnitude >> 23;
        if (exponent < 102u) // below 2^-25
            return sign;
        uint mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        uint shift = 126u - exponent;
        uint whole = mantissa >> shift;
        uint rest = mantissa & ((1u << shift) - 1u);
        uint half_step = 1u << (shift - 1u);
        whole += uint(rest > half_step || (rest == half_step && (whole & 1u) == 1u));
        return sign | whole;
    }
    uint rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return sign | ((rounded - 0x38000000u) >> 13);
}

float tsr_f32_from_f16(uint bits)
{
    return unpackHalf2x16(bits).x;
}

uint tsr_bf16_from_f32(float value)
{
    uint bits = floatBitsToUint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

float tsr_f32_from_bf16(uint bits)
{
    return uintBitsToFloat(bits << 16);
}

// Element i of a float array. `dtype` is a specialization constant.
float tsr_load_float(uvec2 base, uint i, uint dtype)
{
    if (dtype == TSR_DT_F16)
        return tsr_f32_from_f16(tsr_load_u16(base, i));
    if (dtype == TSR_DT_BF16)
        return tsr_f32_from_bf16(tsr_load_u16(base, i));
    return tsr_floats(base).v[i];
}

void tsr_store_float(uvec2 base, uint i, uint dtype, float value)
{
    if (dtype == TSR_DT_F16)
        tsr_store_u16(base, i, tsr_f16_from_f32(value));
    else if (dtype == TSR_DT_BF16)
        tsr_store_u16(base, i, tsr_bf16_from_f32(value));
    else
        tsr_floats(base).v[i] = value;
}

#endif
