// Matrix product for strides that do not fit 32-bit offsets: one element of y per invocation, and
// 64-bit addresses throughout.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "include/activation.glsl"
#include "params/matmul.h"

layout(constant_id = 0) const uint THREADS = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint B_DTYPE = TSR_DT_F32;

layout(push_constant, std430) uniform tsr_push
{
    tsr_matmul_wide_push p;
};

uvec2 add(uvec2 base, uvec2 more)
{
    uint carry;
    uint low = uaddCarry(base.x, more.x, carry);
    return uvec2(low, base.y + more.y + carry);
}

// base + count·stride bytes
uvec2 at(uvec2 base, uint count, uvec2 stride)
{
    uvec2 more = tsr_at_mul(uvec2(0), count, stride.x);
    return add(base, uvec2(more.x, more.y + count * stride.y));
}

void main()
{
    uint group = tsr_flat_group();
    uint across = (p.n + THREADS - 1) / THREADS;
    uint row = group / across;
    uint col = group % across * THREADS + gl_LocalInvocationIndex;
    if (row >= p.m || col >= p.n)
        return;

    uvec2 a = at(p.a, row, p.a_row);
    uvec2 b = at(p.b, col, p.b_col);
    float sum = 0.0;
    for (uint k = 0; k < p.k; k++) {
        sum = fma(tsr_load_float(a, 0, A_DTYPE), tsr_load_float(b, 0, B_DTYPE), sum);
        a = add(a, p.a_k);
        b = add(b, p.b_k);
    }

    uvec2 y = at(at(p.y, row, p.y_row), col, p.y_col);
    uint y_dtype = (p.mode >> TSR_MM_Y_DTYPE_SHIFT) & TSR_MM_FIELD_MASK;
    float value = p.alpha * sum;
    if ((p.mode & TSR_MM_ACCUMULATE) != 0)
        value += tsr_load_float(y, 0, y_dtype);
    if ((p.mode & TSR_MM_BIAS) != 0)
        value += tsr_load_float(at(at(p.bias, row, p.bias_row), col, p.bias_col), 0,
                                (p.mode >> TSR_MM_BIAS_DTYPE_SHIFT) & TSR_MM_FIELD_MASK);
    uint activation = (p.mode >> TSR_MM_ACTIVATION_SHIFT) & TSR_MM_FIELD_MASK;
    if (activation != 0)
        value = tsr_activate(value, activation);
    tsr_store_float(y, 0, y_dtype, value);
}
