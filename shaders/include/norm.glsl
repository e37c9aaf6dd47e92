// What the kernels of layer and RMS normalisation share: where rows are, and their elements less the mean.
#ifndef TSR_NORM_GLSL
#define TSR_NORM_GLSL

#include "include/rows.glsl"
#include "params/norm.h"

uvec2 norm_row(tsr_norm_rows rows, uint row, uint inner, uint dtype)
{
    uint outer = row / inner;
    return tsr_at_mul(rows.at, outer * rows.strides[0] + (row - outer * inner) * rows.strides[1],
                      tsr_dtype_bytes(dtype));
}

// The second part of the mean is smaller than what the first may lose in rounding: so not their sum.
vec4 norm_centred(vec4 x, vec4 stats)
{
    precise vec4 value = (x - stats.y) - stats.z;
    return value;
}

// Four elements of the weight, or of the bias; `nothing` where there is none, its dtype 0.
vec4 norm_weight4(uvec2 at, uvec2 step, uint j, uint count, uint dtype, uint form, float nothing)
{
    return dtype == 0u ? vec4(nothing) : tsr_load_row4(at, step, j, count, dtype, form, 0.0);
}

#endif
