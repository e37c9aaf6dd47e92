// RMS normalisation of the rows of a, which a product applies while it loads them: an element is
// multiplied by the norm's weight, and a sum by the row's factor, which depends on the sum of the
// squares of the row. Such products have no batch dimensions and one range of k.
#ifndef TSR_MATMUL_NORM_GLSL
#define TSR_MATMUL_NORM_GLSL

#include "include/matmul_common.glsl"
#include "include/norm.glsl"

// Elements 4·i … 4·i + 3 of the weight.
vec4 mm_norm_weight4(uint i, uint dtype)
{
    return mm_load4(uvec2(p.TSR_MM_NORM_LOW, p.TSR_MM_NORM_HIGH), i, dtype);
}

// The sum of `squares` and of the squares of four elements.
float mm_add_squares(float squares, vec4 x)
{
    [[unroll]] for (uint c = 0u; c < 4u; c++)
        squares = fma(x[c], x[c], squares);
    return squares;
}

// The factor of a row, from the sum of its squares.
float mm_norm_factor(float squares)
{
    return norm_factor(squares / float(p.k), uintBitsToFloat(p.TSR_MM_NORM_EPSILON));
}

#endif
