// Matrix product of f16 by tiles; see matmul_pairs.glsl. This form needs no feature, so that CPU drivers
// test what the two forms share; GPUs use matmul_dot2.comp.
#version 450
#extension GL_GOOGLE_include_directive : require

float add_products(uint a, uint b, float sum)
{
    vec2 x = unpackHalf2x16(a), y = unpackHalf2x16(b);
    return fma(x.y, y.y, fma(x.x, y.x, sum));
}

#define ADD_PRODUCTS(a, b, sum) add_products(a, b, sum)
#include "gpu/matmul_pairs.glsl"
