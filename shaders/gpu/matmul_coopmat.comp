// Matrix product in f16 by cooperative matrices; see matmul_coopmat.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#define ONE float16_t(1.0)
#define LOW_PAIR(a, b) packFloat2x16(f16vec2(unpackFloat2x16(a).x, unpackFloat2x16(b).x))
#define HIGH_PAIR(a, b) packFloat2x16(f16vec2(unpackFloat2x16(a).y, unpackFloat2x16(b).y))
#define DTYPE TSR_DT_F16
#include "gpu/matmul_coopmat.glsl"
