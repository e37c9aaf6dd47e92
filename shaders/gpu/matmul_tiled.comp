// Matrix product by tiles in f32, of operands of any dtypes; see matmul_tiled.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#define WORD float
#define WORD_K 1
#define WORD_OF(value) (value)
#define FLOAT_OF(word) (word)
#define ADD_PRODUCTS(a, b, sum) fma(a, b, sum)
#include "gpu/matmul_tiled.glsl"
