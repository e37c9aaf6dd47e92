// The main() of the element-wise kernels. An invocation computes four neighbours of y's innermost
// dimension. A kernel includes this file and defines ew_apply, which computes one element in f32.
#ifndef TSR_ELEMENTWISE_GLSL
#define TSR_ELEMENTWISE_GLSL

#include "include/elements.glsl"
#include "include/walk.glsl"
#include "params/elementwise.h"

#ifndef EW_INPUTS
#define EW_INPUTS 2
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint B_DTYPE = 0; // 0: there is no b
layout(constant_id = 4) const uint C_DTYPE = 0;
layout(constant_id = 5) const uint Y_INNER = TSR_EW_ALIGNED;
layout(constant_id = 6) const uint A_INNER = TSR_EW_ALIGNED;
layout(constant_id = 7) const uint B_INNER = TSR_EW_ALIGNED;
layout(constant_id = 8) const uint C_INNER = TSR_EW_ALIGNED;
layout(constant_id = 9) const uint FUNCTION = TSR_EW_ADD;

layout(push_constant, std430) uniform tsr_push
{
#if EW_INPUTS == 3
    tsr_elementwise3_params p;
#else
    tsr_elementwise_params p;
#endif
};

float ew_apply(float a, float b, float c);

tsr_walk ew_walk()
{
#if EW_INPUTS == 3
    return tsr_walk(p.items, p.inner, p.shifts, uint[3]((p.inner + 3u) / 4u, p.size1, p.size2), p.magic);
#else
    return p.walk;
#endif
}

uint ew_size(uint dtype)
{
    return dtype == TSR_DT_F32 ? 4u : dtype == TSR_DT_U8 ? 1u : 2u;
}

float ew_decode(uint bits, uint dtype)
{
    return dtype == TSR_DT_F16    ? tsr_f32_from_f16(bits)
           : dtype == TSR_DT_BF16 ? tsr_f32_from_bf16(bits)
           : dtype == TSR_DT_U8   ? float(bits)
                                  : uintBitsToFloat(bits);
}

uint ew_encode(float value, uint dtype)
{
    return dtype == TSR_DT_U8 ? uint(value) : tsr_bits_of(value, dtype);
}

// Loads four elements. Elements past the row's end are whatever follows in memory, or the last
// element again; their results are not stored.
vec4 ew_load(uvec2 base, uint at, uint stride, uint count, uint dtype, uint inner)
{
    uint size = ew_size(dtype);
    uvec2 bits[4];
    if (inner == TSR_EW_ALIGNED)
        tsr_load_bits4(base, at, size, bits);
    else if (inner == TSR_EW_ONE)
        bits[0] = bits[1] = bits[2] = bits[3] = tsr_load_bits(base, at, size);
    else
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            bits[k] = tsr_load_bits(base, at + min(k, count - 1u) * stride, size);
    return vec4(ew_decode(bits[0].x, dtype), ew_decode(bits[1].x, dtype), ew_decode(bits[2].x, dtype),
                ew_decode(bits[3].x, dtype));
}

void ew_store(uvec2 base, uint at, uint stride, uint count, uint dtype, uint inner, vec4 values)
{
    uint size = ew_size(dtype);
    uvec2 bits[4];
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        bits[k] = uvec2(ew_encode(values[k], dtype), 0u);
    if (inner == TSR_EW_ALIGNED && count == 4u)
        tsr_store_bits4(base, at, size, bits);
    else if (inner != TSR_EW_STRIDED)
        tsr_store_run(base, at, size, count, bits);
    else
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            if (k < count)
                tsr_store_bits(base, at + k * stride, size, bits[k]);
}

void main()
{
    tsr_walk walk = ew_walk();
    uint item = tsr_flat_invocation();
    if (item >= walk.items)
        return;
    uvec4 position = tsr_walk_position(walk, item);
    position.w *= 4u;
    uint count = min(4u, walk.inner - position.w);
    vec4 a = ew_load(p.a, tsr_walk_element(position, p.a_strides), p.a_strides[3], count, A_DTYPE, A_INNER);
    vec4 b = vec4(0.0), c = vec4(0.0);
    if (B_DTYPE != 0u)
        b = ew_load(p.b, tsr_walk_element(position, p.b_strides), p.b_strides[3], count, B_DTYPE, B_INNER);
#if EW_INPUTS == 3
    c = ew_load(p.c, tsr_walk_element(position, p.c_strides), p.c_strides[3], count, C_DTYPE, C_INNER);
#endif
    vec4 y;
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        y[k] = ew_apply(a[k], b[k], c[k]);
    ew_store(p.y, tsr_walk_element(position, p.y_strides), p.y_strides[3], count, Y_DTYPE, Y_INNER, y);
}

#endif
