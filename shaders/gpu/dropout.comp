// y = x · scale for elements whose random word is at least the threshold, otherwise 0.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/random.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint DENSE = 0u;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint X_DTYPE = TSR_DT_F32;

layout(push_constant, std430) uniform Push {
    tsr_random_fill_params p;
};

#include "include/random_walk.glsl"

void tsr_random_emit(uint y_row, uint x_row, uint e, uint word)
{
    float y = 0.0;
    if (word >= p.threshold)
        y = tsr_load_float(p.x, x_row + e * p.x_strides[3], X_DTYPE) * p.scale;
    tsr_store_float(p.y, y_row + e * p.y_strides[3], Y_DTYPE, y);
}

void tsr_random_emit4(uint e, uvec4 words)
{
    vec4 x = tsr_load_dense4(tsr_at_mul(p.x, e, tsr_dtype_bytes(X_DTYPE)), X_DTYPE);
    vec4 kept = mix(vec4(0.0), x * p.scale, greaterThanEqual(words, uvec4(p.threshold)));
    tsr_store_dense4(tsr_at_mul(p.y, e, tsr_dtype_bytes(Y_DTYPE)), Y_DTYPE, kept);
}

void main()
{
    tsr_random_walk();
}
