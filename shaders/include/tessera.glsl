// Functions that all kernels share: access to memory by address, access to elements of any dtype,
// and conversions that give the same bits on every device.
//
// A dtype is a specialization constant. The driver removes the branches that depend on it, so that
// one shader serves every combination of dtypes. Only access to elements of less than 32 bits needs
// different SPIR-V. The build therefore makes two variants of a shader: one uses 8- and 16-bit
// storage (TSR_STORAGE16 is 1), and one accesses packed 32-bit words, for devices without it.
#ifndef TSR_TESSERA_GLSL
#define TSR_TESSERA_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#if TSR_STORAGE16
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#endif

#include "include/float16.glsl"
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
layout(buffer_reference, std430, buffer_reference_align = 2) buffer tsr_words16 {
    uint16_t v[];
};
layout(buffer_reference, std430, buffer_reference_align = 1) buffer tsr_bytes {
    uint8_t v[];
};
#endif

// The number of this workgroup in the grid that tsr__groups_for() chooses, counted row by row.
uint tsr_flat_group()
{
    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

// The number of this invocation. This is a macro because it must be expanded after the shader's
// declaration of local_size; before that, glslang takes gl_WorkGroupSize to be 1.
#define tsr_flat_invocation() (tsr_flat_group() * gl_WorkGroupSize.x + gl_LocalInvocationID.x)

// base + bytes, in 64 bits.
uvec2 tsr_at(uvec2 base, uint bytes)
{
    uint carry;
    uint low = uaddCarry(base.x, bytes, carry);
    return uvec2(low, base.y + carry);
}

// at + step, in 64 bits.
uvec2 tsr_next(uvec2 at, uvec2 step)
{
    uint carry;
    uint low = uaddCarry(at.x, step.x, carry);
    return uvec2(low, at.y + step.y + carry);
}

// base + count·size, in 64 bits throughout.
uvec2 tsr_at_mul(uvec2 base, uint count, uint size)
{
    uint high, low, carry;
    umulExtended(count, size, high, low);
    low = uaddCarry(base.x, low, carry);
    return uvec2(low, base.y + high + carry);
}

// Loads the 16-bit element i of an array at a 2-byte aligned address.
uint tsr_load_u16(uvec2 base, uint i)
{
#if TSR_STORAGE16
    return uint(tsr_words16(base).v[i]);
#else
    uvec2 at = tsr_at(base, 2 * i);
    uint word = tsr_words(uvec2(at.x & ~3u, at.y)).v[0];
    return (word >> ((at.x & 2u) * 8u)) & 0xffffu;
#endif
}

// The packed variant stores with atomics because the two elements of a word may belong to two
// invocations.
void tsr_store_u16(uvec2 base, uint i, uint bits)
{
#if TSR_STORAGE16
    tsr_words16(base).v[i] = uint16_t(bits);
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

// Loads element i of a float array. `dtype` is a specialization constant.
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
