// Grouped product in bf16 by cooperative matrices; see matmul_grouped_coopmat.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_bfloat16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#define ELEMENT bfloat16_t
#define ELEMENT4 bf16vec4
#define ELEMENT4_OF(four) uintBitsToBFloat16EXT(u16vec4(unpack16(four.x), unpack16(four.y)))
#define DTYPE TSR_DT_BF16
#include "gpu/matmul_grouped_coopmat.glsl"
