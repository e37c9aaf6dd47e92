// Matrix product in bf16 by cooperative matrices; see matmul_coopmat.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_bfloat16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#define ELEMENT bfloat16_t
#define ONE bfloat16_t(1.0)
#define ELEMENT4 bf16vec4
#define ELEMENT4_OF(four) uintBitsToBFloat16EXT(u16vec4(unpack16(four.x), unpack16(four.y)))
#define ELEMENT2_OF(pair) uintBitsToBFloat16EXT(unpack16(pair))
#define LOW_PAIR(a, b) pack32(u16vec2(unpack16(a).x, unpack16(b).x))
#define HIGH_PAIR(a, b) pack32(u16vec2(unpack16(a).y, unpack16(b).y))
#define DTYPE TSR_DT_BF16
#include "gpu/matmul_coopmat.glsl"
