// Functions that the kernels of layer and RMS normalisation share: addresses of rows, elements
// minus the mean, and the factor that normalises them.
#ifndef TSR_NORM_GLSL
#define TSR_NORM_GLSL

#include "include/nan.glsl"
#include "include/rows.glsl"
#include "params/norm.h"

uvec2 norm_row(tsr_norm_rows rows, uint row, uint inner, uint dtype)
{
    uint outer = row / inner;
    return tsr_at_mul(rows.at, outer * rows.strides[0] + (row - outer * inner) * rows.strides[1],
                      tsr_dtype_bytes(dtype));
}

// Subtracts the two parts of the mean one after the other, because rounding their sum to a float
// would drop the second part.
vec4 norm_centred(vec4 x, vec4 stats)
{
    precise vec4 value = (x - stats.y) - stats.z;
    return value;
}

// 1 / √(variance + epsilon). A variance that rounding has made negative counts as 0, NaN stays NaN,
// and infinity gives 0. The code tests the bits, because a driver may presume that there is no NaN
// and compile `variance < 0.0 ? 0.0 : variance` to a maximum, which gives 0 for NaN.
float norm_factor(float variance, float epsilon)
{
    uint bits = floatBitsToUint(variance);
    bool is_negative = bits > 0x80000000u && bits <= 0xff800000u; // the bits of a NaN are larger
    precise float sum = (is_negative ? 0.0 : variance) + epsilon;
    float factor = 1.0 / sqrt(sum);
    return tsr_is_nan(variance) ? variance : bits == 0x7f800000u ? 0.0 : factor;
}

// Loads four elements of the weight or the bias. If there is none, `dtype` is 0 and all four
// elements are `nothing`.
vec4 norm_weight4(uvec2 at, uvec2 step, uint j, uint count, uint dtype, uint form, float nothing)
{
    return dtype == 0u ? vec4(nothing) : tsr_load_row4(at, step, j, count, dtype, form, 0.0);
}

#endif
