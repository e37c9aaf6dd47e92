// Rows: runs of elements along one dimension, dense or a fixed number of bytes apart, read and written four
// elements at a time.
#ifndef TSR_ROWS_GLSL
#define TSR_ROWS_GLSL

#include "tessera.glsl"

// Four floats whose address is a multiple of 4 only.
layout(buffer_reference, std430, buffer_reference_align = 4) buffer tsr_floats4_loose {
    vec4 v[];
};

// base + index·stride, in 64 bits throughout.
uvec2 tsr_at_stride(uvec2 base, uint index, uvec2 stride)
{
    uint high, low, carry;
    umulExtended(index, stride.x, high, low);
    low = uaddCarry(base.x, low, carry);
    return uvec2(low, base.y + high + index * stride.y + carry);
}

// The digits of `job` in the mixed radix `shape`, whose last of `ndim` entries is the lowest.
uvec4 tsr_row_position(uint job, uint ndim, uint shape[4])
{
    uvec4 at = uvec4(0u);
    if (ndim > 3u) {
        at.w = job % shape[3];
        job /= shape[3];
    }
    if (ndim > 2u) {
        at.z = job % shape[2];
        job /= shape[2];
    }
    if (ndim > 1u) {
        at.y = job % shape[1];
        job /= shape[1];
    }
    at.x = job;
    return at;
}

uint tsr_row_offset(uvec4 at, uint strides[4])
{
    return at.x * strides[0] + at.y * strides[1] + at.z * strides[2] + at.w * strides[3];
}

uint tsr_dtype_bytes(uint dtype)
{
    return dtype == TSR_DT_F32 ? 4u : 2u;
}

// Element j of a row of floats.
float tsr_load_row(uvec2 row, uvec2 step, uint j, uint dtype)
{
    return tsr_load_float(tsr_at_stride(row, j, step), 0u, dtype);
}

// Elements 0 to 3 from a 4-byte aligned address on.
vec4 tsr_load_dense4(uvec2 at, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return tsr_floats4_loose(at).v[0];
    uint low = tsr_words(at).v[0];
    uint high = tsr_words(at).v[1];
    if (dtype == TSR_DT_F16)
        return vec4(unpackHalf2x16(low), unpackHalf2x16(high));
    return uintBitsToFloat(uvec4(low << 16, low & 0xffff0000u, high << 16, high & 0xffff0000u));
}

void tsr_store_dense4(uvec2 at, uint dtype, vec4 value)
{
    if (dtype == TSR_DT_F32) {
        tsr_floats4_loose(at).v[0] = value;
        return;
    }
    uvec4 bits;
    [[unroll]] for (int k = 0; k < 4; k++)
        bits[k] = dtype == TSR_DT_F16 ? tsr_f16_from_f32(value[k]) : tsr_bf16_from_f32(value[k]);
    tsr_words(at).v[0] = bits.x | (bits.y << 16);
    tsr_words(at).v[1] = bits.z | (bits.w << 16);
}

// Elements j … j+3 of a row, all of which exist. A dense row has its elements side by side and starts at a 4-byte
// aligned address.
vec4 tsr_load_row4(uvec2 row, uvec2 step, uint j, uint dtype, bool dense)
{
    if (dense)
        return tsr_load_dense4(tsr_at(row, j * tsr_dtype_bytes(dtype)), dtype);
    vec4 value;
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        value[k] = tsr_load_row(row, step, j + k, dtype);
    return value;
}

// The same where the row may end before: `missing` stands for what is not there.
vec4 tsr_load_row4_tail(uvec2 row, uvec2 step, uint j, uint count, uint dtype, float missing)
{
    vec4 value = vec4(missing);
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        if (j + k < count)
            value[k] = tsr_load_row(row, step, j + k, dtype);
    }
    return value;
}

void tsr_store_row4(uvec2 row, uvec2 step, uint j, uint dtype, bool dense, vec4 value)
{
    if (dense) {
        tsr_store_dense4(tsr_at(row, j * tsr_dtype_bytes(dtype)), dtype, value);
    } else {
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            tsr_store_float(tsr_at_stride(row, j + k, step), 0u, dtype, value[k]);
    }
}

void tsr_store_row4_tail(uvec2 row, uvec2 step, uint j, uint count, uint dtype, vec4 value)
{
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        if (j + k < count)
            tsr_store_float(tsr_at_stride(row, j + k, step), 0u, dtype, value[k]);
    }
}

#endif
