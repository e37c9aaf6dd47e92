// Loads and stores of rows, four elements at a time. A row is the elements along one dimension,
// which are a fixed number of bytes apart.
#ifndef TSR_ROWS_GLSL
#define TSR_ROWS_GLSL

#include "include/tessera.glsl"
#include "params/rows.h"

// Four floats or words at an address that is a multiple of 4.
layout(buffer_reference, std430, buffer_reference_align = 4) buffer tsr_floats4_loose {
    vec4 v[];
};

layout(buffer_reference, std430, buffer_reference_align = 4) buffer tsr_words4_loose {
    uvec4 v[];
};

// base + index·stride, in 64 bits throughout.
uvec2 tsr_at_stride(uvec2 base, uint index, uvec2 stride)
{
    uint high, low, carry;
    umulExtended(index, stride.x, high, low);
    low = uaddCarry(base.x, low, carry);
    return uvec2(low, base.y + high + index * stride.y + carry);
}

// Converts a row's number `job` to its position in `ndim` dimensions, the last of which varies
// fastest.
uvec4 tsr_row_position(uint job, uint ndim, uint shape[TSR_ROW_DIMS])
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

uint tsr_row_offset(uvec4 at, uint strides[TSR_ROW_DIMS])
{
    return at.x * strides[0] + at.y * strides[1] + at.z * strides[2] + at.w * strides[3];
}

uint tsr_dtype_bytes(uint dtype)
{
    return dtype == TSR_DT_F32 ? 4u : 2u;
}

// Loads four contiguous elements that start at a 4-byte aligned address.
vec4 tsr_load_dense4(uvec2 at, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return tsr_floats4_loose(at).v[0];
    uint low = tsr_words(at).v[0];
    uint high = tsr_words(at).v[1];
    if (dtype == TSR_DT_F16)
        return vec4(tsr_f32_from_f16_pair(low), tsr_f32_from_f16_pair(high));
    return uintBitsToFloat(uvec4(low << 16, low & 0xffff0000u, high << 16, high & 0xffff0000u));
}

void tsr_store_dense4(uvec2 at, uint dtype, vec4 value)
{
    if (dtype == TSR_DT_F32) {
        tsr_floats4_loose(at).v[0] = value;
        return;
    }
    uvec4 bits = dtype == TSR_DT_F16 ? tsr_f16_from_f32(value) : tsr_bf16_from_f32(value);
    tsr_words(at).v[0] = bits.x | (bits.y << 16);
    tsr_words(at).v[1] = bits.z | (bits.w << 16);
}

// The address of element j of a row.
uvec2 tsr_row_element(uvec2 row, uvec2 step, uint j, uint form)
{
    return form == TSR_ROW_WIDE ? tsr_at_stride(row, j, step) : tsr_at(row, j * step.x);
}

// Loads four contiguous elements that start at a multiple of their size.
vec4 tsr_load_aligned4(uvec2 at, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return tsr_floats4(at).v[0];
    uvec2 pairs = tsr_words2(at).v[0];
    if (dtype == TSR_DT_F16)
        return vec4(tsr_f32_from_f16_pair(pairs.x), tsr_f32_from_f16_pair(pairs.y));
    return uintBitsToFloat(uvec4(pairs.x << 16, pairs.x & 0xffff0000u, pairs.y << 16, pairs.y & 0xffff0000u));
}

// Stores four contiguous elements that start at a multiple of their size.
void tsr_store_aligned4(uvec2 at, uint dtype, vec4 value)
{
    if (dtype == TSR_DT_F32) {
        tsr_floats4(at).v[0] = value;
        return;
    }
    uvec4 bits = dtype == TSR_DT_F16 ? tsr_f16_from_f32(value) : tsr_bf16_from_f32(value);
    tsr_words2(at).v[0] = uvec2(bits.x | (bits.y << 16), bits.z | (bits.w << 16));
}

// Loads elements j … j+3 of a row of `count` elements, where j < count. Elements past the end are
// `missing`. `form` is a specialization constant. The code has no branches, because CPU drivers
// execute both sides of a branch.
vec4 tsr_load_row4(uvec2 row, uvec2 step, uint j, uint count, uint dtype, uint form, float missing)
{
    if (form == TSR_ROW_ALIGNED4)
        return tsr_load_aligned4(tsr_at(row, j * tsr_dtype_bytes(dtype)), dtype);
    if (form == TSR_ROW_DENSE4)
        return tsr_load_dense4(tsr_at(row, j * tsr_dtype_bytes(dtype)), dtype);
    if (form == TSR_ROW_ENDS4)
        return mix(vec4(missing), tsr_load_aligned4(tsr_at(row, j * tsr_dtype_bytes(dtype)), dtype),
                   lessThan(uvec4(j) + uvec4(0u, 1u, 2u, 3u), uvec4(count)));
    vec4 value;
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        uvec2 at = tsr_row_element(row, step, min(j + k, count - 1u), form);
        float loaded = tsr_load_float(at, 0u, dtype);
        value[k] = j + k < count ? loaded : missing;
    }
    return value;
}

void tsr_store_float_bits(uvec2 at, uint dtype, uint bits)
{
    if (dtype == TSR_DT_F32)
        tsr_words(at).v[0] = bits;
    else
        tsr_store_u16(at, 0u, bits);
}

void tsr_store_row4(uvec2 row, uvec2 step, uint j, uint count, uint dtype, uint form, vec4 value)
{
    if (form == TSR_ROW_ALIGNED4 || (form == TSR_ROW_ENDS4 && j + 4u <= count)) {
        tsr_store_aligned4(tsr_at(row, j * tsr_dtype_bytes(dtype)), dtype, value);
    } else if (form == TSR_ROW_DENSE4) {
        tsr_store_dense4(tsr_at(row, j * tsr_dtype_bytes(dtype)), dtype, value);
    } else {
        // All four are encoded before the loop, because glslc's optimizer drops `precise` when it
        // unrolls a loop.
        uvec4 bits = dtype == TSR_DT_F16    ? tsr_f16_from_f32(value)
                     : dtype == TSR_DT_BF16 ? tsr_bf16_from_f32(value)
                                            : floatBitsToUint(value);
        [[unroll]] for (uint k = 0u; k < 4u; k++) {
            if (j + k < count)
                tsr_store_float_bits(tsr_row_element(row, step, j + k, form), dtype, bits[k]);
        }
    }
}

#endif
