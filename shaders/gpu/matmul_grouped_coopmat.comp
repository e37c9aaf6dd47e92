// Grouped product in f16 by cooperative matrices; see matmul_grouped_coopmat.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#define DTYPE TSR_DT_F16
#include "gpu/matmul_grouped_coopmat.glsl"
